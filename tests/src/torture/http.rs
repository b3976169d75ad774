//! HTTP/1.1 messages as they pass through a proxy: whole, and as they are.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// A connection and what was read of its next message.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![] }
    }

    /// The next whole message; `None` when the other side has ended. Safe to be given up and called again.
    pub(super) async fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(length) = length(&self.buffer) {
                let rest = self.buffer.split_off(length);
                return Some(std::mem::replace(&mut self.buffer, rest));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Reads on; whether there was more.
    pub(super) async fn more(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }
}

/// The length of the message that these bytes begin with, as soon as it is all there.
fn length(bytes: &[u8]) -> Option<usize> {
    let body = find(bytes, b"\r\n\r\n")? + 4;
    let head = &bytes[..body];
    if header(head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return chunked(bytes, body);
    }
    let length = header(head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    Some(body + length).filter(|end| *end <= bytes.len())
}

fn chunked(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        at += line + 2 + size + 2;
        if at > bytes.len() {
            return None;
        }
        if size == 0 {
            return Some(at);
        }
    }
}

/// A header's value; names in lower case.
pub(super) fn header(message: &[u8], name: &str) -> Option<String> {
    let end = find(message, b"\r\n\r\n").unwrap_or(message.len());
    let head = String::from_utf8_lossy(&message[..end]);
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_its_last_byte_is_there() {
        let plain = b"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(header(plain, "x-amz-target").as_deref(), Some("AmazonSQS.SendMessage"));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for whole in [&plain[..], chunked, b"HTTP/1.1 204 No Content\r\n\r\n"] {
            for part in 0..whole.len() {
                assert_eq!(length(&whole[..part]), None, "{part}");
            }
            assert_eq!(length(&[whole, b"next"].concat()), Some(whole.len()));
        }
    }
}

//! Records gathered for one invocation.

use axum::body::Bytes;

use super::record::Record;

/// Lambda's limit for the payload of an invocation: 6 MB.
const MAX_PAYLOAD: usize = 6_000_000;
const HEAD: &str = "{\"Records\":[";
const END: &str = "]}";

/// Records for one invocation, limited by number and bytes.
#[derive(Debug)]
pub(super) struct Batch {
    records: Vec<Record>,
    capacity: usize,
    bytes: usize,
}

impl Batch {
    pub(super) fn new(capacity: usize) -> Self {
        Self { records: Vec::new(), capacity, bytes: HEAD.len() + END.len() }
    }

    /// How many more records may come.
    pub(super) fn missing(&self) -> usize {
        self.capacity - self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Takes records while they fit and leaves the rest; a single record always fits.
    pub(super) fn take_from(&mut self, waiting: &mut Vec<Record>) {
        let mut bytes = self.bytes;
        let fit = waiting.iter().take(self.missing()).take_while(|record| {
            bytes += record.json.len() + 1;
            bytes <= MAX_PAYLOAD
        });
        let count = fit.count().max(usize::from(self.is_empty() && !waiting.is_empty()));
        self.bytes += waiting[..count].iter().map(|record| record.json.len() + 1).sum::<usize>();
        self.records.extend(waiting.drain(..count));
    }

    /// The event as Lambda sends it.
    pub(super) fn payload(&self) -> Bytes {
        let mut json = String::with_capacity(self.bytes);
        json.push_str(HEAD);
        for (index, record) in self.records.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str(&record.json);
        }
        json.push_str(END);
        json.into()
    }

    pub(super) fn message_ids(&self) -> Vec<&str> {
        self.records.iter().map(|record| record.message_id.as_str()).collect()
    }

    /// Receipt handles of all records whose message ID satisfies `wanted`.
    pub(super) fn receipt_handles(self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let wanted = self.records.into_iter().filter(|record| wanted(&record.message_id));
        wanted.map(|record| record.receipt_handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(sizes: &[usize]) -> Vec<Record> {
        let record = |(n, &size): (usize, &usize)| Record {
            message_id: n.to_string(),
            receipt_handle: format!("r{n}"),
            json: format!("\"{}\"", "x".repeat(size)),
        };
        sizes.iter().enumerate().map(record).collect()
    }

    #[test]
    fn takes_no_more_than_its_capacity() {
        let (mut batch, mut waiting) = (Batch::new(2), records(&[1, 2, 3]));
        batch.take_from(&mut waiting);
        assert_eq!((batch.len(), batch.missing(), waiting.len()), (2, 0, 1));
        assert_eq!(batch.payload(), r#"{"Records":["x","xx"]}"#);
        assert_eq!(batch.message_ids(), ["0", "1"]);
        assert_eq!(batch.receipt_handles(|id| id == "1"), ["r1"]);
    }

    #[test]
    fn stops_at_6_mb_but_always_takes_one() {
        let (mut batch, mut waiting) = (Batch::new(10), records(&[7_000_000, 1, 1]));
        batch.take_from(&mut waiting);
        assert_eq!((batch.len(), waiting.len()), (1, 2));
        let (mut batch, mut waiting) = (Batch::new(10), records(&[2_000_000; 4]));
        batch.take_from(&mut waiting);
        assert_eq!((batch.len(), waiting.len()), (2, 2));
        assert!(batch.payload().len() <= MAX_PAYLOAD);
    }
}

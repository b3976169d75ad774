//! The cluster's hash slots.

/// The slot of a key: the CRC16 (XMODEM) of what stands in its first braces, or of all of it, modulo 16384.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    hashed.bytes().fold(0u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    }) % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT
        for (key, expected) in [("123456789", 12739), ("foo", 12182), ("bar", 5061), ("s{foo}r:{bar}", 12182), ("", 0)]
        {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("{}foo"), slot("x{}foo".strip_prefix('x').unwrap()));
        assert_ne!(slot("{}foo"), slot("foo"), "empty braces count as any other bytes");
    }
}

//! Reading what scripts answer: an answer that a script never gives is an error, never a default.

use redis::Value;

use crate::store::StoreError;

pub(crate) fn wrong(script: &'static str, reply: &impl std::fmt::Debug) -> StoreError {
    StoreError::Reply { script, reply: format!("{reply:?}").chars().take(200).collect() }
}

pub(crate) fn array(script: &'static str, value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong(script, &other)),
    }
}

/// Exactly `N` integers.
pub(crate) fn integers<const N: usize>(script: &'static str, value: Value) -> Result<[i64; N], StoreError> {
    let items = array(script, value)?;
    let numbers: Option<Vec<i64>> = items.iter().map(integer).collect();
    numbers.and_then(|n| n.try_into().ok()).ok_or_else(|| wrong(script, &items))
}

pub(crate) fn integer(value: &Value) -> Option<i64> {
    if let Value::Int(n) = value { Some(*n) } else { None }
}

/// Little-endian fields of a packed answer.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u48(&mut self) -> Option<u64> {
        self.take::<6>().map(|[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }
}

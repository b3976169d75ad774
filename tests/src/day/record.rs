//! A send's record as Redis holds it: RECORD of head.lua.

/// What a send holds in the calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// The calendar.
    pub(super) epoch: u32,
    /// Its slot's second and position.
    pub(super) slot: (u32, u32),
    /// Second, position and units of each of its places, guard positions in front included.
    pub(super) places: Vec<(u32, u32, u32)>,
    /// It goes on over several seconds.
    pub(super) run: bool,
    /// It stands in the place of another send.
    pub(super) under: bool,
}

const FIXED: usize = 44;
const PLACE: usize = 10;

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

impl Held {
    /// '<BBBBHHI3I4I3I4I6I4I4c8' and '<I4I3I3' for each place, then perhaps a recipient of 8 bytes.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let tail = record.get(FIXED..)?;
        let (cost, slot) = (number(&record[8..11]), (number(&record[11..15]), number(&record[15..18])));
        let place = |p: &[u8]| (number(&p[..4]), number(&p[4..7]), number(&p[7..]));
        let mut places: Vec<_> = tail.chunks_exact(PLACE).map(place).collect();
        if places.is_empty() {
            places.push((slot.0, slot.1, cost));
        }
        let flags = record[0];
        Some(Self { epoch: number(&record[18..22]), slot, places, run: flags & 16 > 0, under: flags & 64 > 0 })
    }
}

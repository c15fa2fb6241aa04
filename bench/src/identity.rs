//! Ids that can be made again from a number, so that millions of rows need not be remembered to be asked about.

use uuid::Uuid;

/// When the first of the numbered things was made: 2025-01-01, in milliseconds.
const FIRST_MILLIS: u64 = 1_735_689_600_000;
/// Milliseconds from one to the next.
const STEP_MILLIS: u64 = 2;

/// The things that are made in bulk.
#[derive(Debug, Clone, Copy)]
pub enum Numbered {
    Run = 1,
    Note = 2,
    Touch = 3,
    Task = 4,
    Package = 5,
    Link = 6,
    Item = 7,
}

/// The UUIDv7 of the thing with this number: sorted by number, random where UUIDv7 is random.
pub fn id(kind: Numbered, number: u64) -> Uuid {
    let seed = (kind as u64) << 56 | number;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&mixed(seed).to_be_bytes());
    random[8..].copy_from_slice(&mixed(!seed).to_be_bytes()[..2]);
    uuid::Builder::from_unix_timestamp_millis(FIRST_MILLIS + number * STEP_MILLIS, &random).into_uuid()
}

/// When the thing with this number was made, in microseconds.
pub fn micros(number: u64) -> i64 {
    i64::try_from((FIRST_MILLIS + number * STEP_MILLIS) * 1_000).unwrap_or(i64::MAX)
}

/// Bits that look random and are the same each time (splitmix64).
pub fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The `draw`th random number below `limit`.
pub fn below(limit: u64, draw: usize) -> u64 {
    mixed(draw as u64 ^ 0x5eed_0000_0000_0000) % limit.max(1)
}

/// A place in a list of this length.
pub fn place(number: u64, length: usize) -> usize {
    usize::try_from(number % length.max(1) as u64).unwrap_or_default()
}

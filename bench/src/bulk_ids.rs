//! Ids computed from a number, so that a benchmark can ask about any of millions of rows without storing their ids.

use uuid::Uuid;

/// Creation time of number 0: 2025-01-01, in milliseconds.
const FIRST_MILLIS: u64 = 1_735_689_600_000;
/// Milliseconds between the creation times of consecutive numbers.
const STEP_MILLIS: u64 = 2;

/// The kinds of rows that benchmarks insert in bulk.
#[derive(Debug, Clone, Copy)]
pub enum IdKind {
    Run = 1,
    Note = 2,
    Touch = 3,
    Task = 4,
    Package = 5,
    Link = 6,
    Item = 7,
}

/// The UUIDv7 for a kind and a number. Ids sort by number. The bits that are random in UUIDv7 are a hash.
pub fn bulk_id(kind: IdKind, number: u64) -> Uuid {
    let seed = (kind as u64) << 56 | number;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&splitmix64(seed).to_be_bytes());
    random[8..].copy_from_slice(&splitmix64(!seed).to_be_bytes()[..2]);
    uuid::Builder::from_unix_timestamp_millis(FIRST_MILLIS + number * STEP_MILLIS, &random).into_uuid()
}

/// Creation time for a number, in microseconds.
pub fn created_micros(number: u64) -> i64 {
    i64::try_from((FIRST_MILLIS + number * STEP_MILLIS) * 1_000).unwrap_or(i64::MAX)
}

/// The output of splitmix64 for this seed: pseudo-random, and the same in every run.
pub fn splitmix64(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The pseudo-random number below `limit` with index `draw`.
pub fn random_below(limit: u64, draw: usize) -> u64 {
    splitmix64(draw as u64 ^ 0x5eed_0000_0000_0000) % limit.max(1)
}

/// An index into a list of this length.
pub fn index_in(number: u64, length: usize) -> usize {
    usize::try_from(number % length.max(1) as u64).unwrap_or_default()
}

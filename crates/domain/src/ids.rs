//! Ids: UUIDv7, typed by the kind of thing they identify, and shown to people by their last digits.

use std::{cell::RefCell, cmp::Ordering, fmt, hash::Hash, marker::PhantomData};

use uuid::Uuid;

use crate::Time;

/// The id of one `K`. The type parameter keeps code from passing a run's id where a task's id is expected.
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<fn() -> K>,
}

/// Hex digits in the short form of an id.
pub const SHORT_DIGITS: usize = 8;
/// Minimum number of hex digits that a suffix may have.
pub const SUFFIX_DIGITS_MIN: usize = 6;

/// An error message for a text that looks like the end of an id but has too few digits; otherwise none.
pub fn short_suffix_hint(text: &str) -> Option<String> {
    let is_short = (1..SUFFIX_DIGITS_MIN).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_short.then(|| format!("an id needs at least its last {SUFFIX_DIGITS_MIN} digits"))
}

impl<K> Id<K> {
    /// Creates an id that sorts by `now` to the microsecond. The twelve bits below the millisecond hold the fraction of
    /// the millisecond (RFC 9562, method 3), so ids created within one millisecond still sort by time.
    pub fn new(now: Time) -> Self {
        let micros = u64::try_from(now.micros()).unwrap_or_default();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&eight_random_bytes());
        let fraction = (micros % 1_000 * 4_096 / 1_000).to_be_bytes();
        random[..2].copy_from_slice(&fraction[6..]);
        Self::from(uuid::Builder::from_unix_timestamp_millis(micros / 1_000, &random).into_uuid())
    }

    pub fn uuid(self) -> Uuid {
        self.uuid
    }

    /// The last eight hex digits.
    pub fn short(self) -> String {
        suffix(self.uuid, SHORT_DIGITS)
    }
}

/// Random bytes, fetched from the operating system in blocks: a system call per id takes longer than creating the id.
struct RandomPool {
    bytes: [u8; POOL_BYTES],
    unused: usize,
}

const POOL_BYTES: usize = 1_024;

thread_local! {
    static POOL: RefCell<RandomPool> = const { RefCell::new(RandomPool { bytes: [0; POOL_BYTES], unused: 0 }) };
}

/// Takes eight bytes from the pool. The pool stays readable in memory, so these bytes suit ids but no secrets.
fn eight_random_bytes() -> [u8; 8] {
    let mut taken = [0; 8];
    POOL.with_borrow_mut(|pool| {
        if pool.unused < taken.len() {
            if getrandom::fill(&mut pool.bytes).is_err() {
                // `new_v4` asks the system again, and panics with the reason if that fails too.
                return taken.copy_from_slice(&Uuid::new_v4().as_bytes()[8..]);
            }
            pool.unused = POOL_BYTES;
        }
        pool.unused -= taken.len();
        taken.copy_from_slice(&pool.bytes[pool.unused..pool.unused + 8]);
    });
    taken
}

/// The last `digits` hex digits of an id.
pub fn suffix(uuid: Uuid, digits: usize) -> String {
    let hex = uuid.simple().to_string();
    hex[hex.len() - digits.min(hex.len())..].to_owned()
}

/// The last eight hex digits in reverse order, as a number. Ids with a common suffix have keys with a common prefix, so
/// one ordinary index finds the ids that end in a suffix, and the ids that look alike in the short form.
pub fn short_key(uuid: Uuid) -> i64 {
    reversed_number(&suffix(uuid, SHORT_DIGITS))
}

/// The range of the short keys of all ids that end in `suffix`. `suffix` must consist of hex digits.
pub fn short_key_range(suffix: &str) -> (i64, i64) {
    let last_digits = &suffix[suffix.len() - suffix.len().min(SHORT_DIGITS)..];
    let open_digits = SHORT_DIGITS - last_digits.len();
    let low = reversed_number(last_digits) << (4 * open_digits);
    (low, low + (1_i64 << (4 * open_digits)) - 1)
}

fn reversed_number(hex: &str) -> i64 {
    hex.chars().rev().filter_map(|digit| digit.to_digit(16)).fold(0, |key, digit| key << 4 | i64::from(digit))
}

/// Parses the end of an id as a person types it: hex digits, with hyphens as in a whole UUID.
pub fn parse_suffix(text: &str) -> Option<String> {
    let hex: String = text.chars().filter(|character| *character != '-').collect();
    let has_valid_length = (SUFFIX_DIGITS_MIN..=32).contains(&hex.len());
    (has_valid_length && hex.chars().all(|digit| digit.is_ascii_hexdigit())).then(|| hex.to_ascii_lowercase())
}

impl<K> From<Uuid> for Id<K> {
    fn from(uuid: Uuid) -> Self {
        Self { uuid, kind: PhantomData }
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.uuid == other.uuid
    }
}
impl<K> Eq for Id<K> {}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uuid.cmp(&other.uuid)
    }
}
impl<K> Hash for Id<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.uuid.hash(state);
    }
}
impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid.fmt(formatter)
    }
}
impl<K> fmt::Display for Id<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid.fmt(formatter)
    }
}
impl<K> serde::Serialize for Id<K> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.uuid.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn later_ids_sort_later(micros in 0..4_000_000_000_000_000i64, gap in 1..1_000_000i64) {
            let earlier = Id::<crate::kind::Run>::new(Time::from_micros(micros));
            let later = Id::new(Time::from_micros(micros + gap));
            prop_assert!(earlier < later);
            prop_assert_eq!(later.uuid().get_version_num(), 7);
        }

        #[test]
        fn short_key_is_in_the_range_of_every_suffix_of_its_id(bits: u128, digits in SUFFIX_DIGITS_MIN..=32usize) {
            let uuid = Uuid::from_u128(bits);
            let (low, high) = short_key_range(&suffix(uuid, digits));
            prop_assert!((low..=high).contains(&short_key(uuid)));
        }

        #[test]
        fn range_of_a_suffix_excludes_ids_with_other_endings(bits: u128, other: u128, digits in SUFFIX_DIGITS_MIN..=SHORT_DIGITS) {
            let (uuid, other) = (Uuid::from_u128(bits), Uuid::from_u128(other));
            let (low, high) = short_key_range(&suffix(uuid, digits));
            prop_assert_eq!((low..=high).contains(&short_key(other)), suffix(uuid, digits) == suffix(other, digits));
        }

        #[test]
        fn parsing_any_text_never_panics(text in ".*") {
            if let Some(suffix) = parse_suffix(&text) {
                short_key_range(&suffix);
            }
        }
    }
}

//! Ids: UUIDv7, typed by what they name, shown short.

use std::{cell::RefCell, cmp::Ordering, fmt, hash::Hash, marker::PhantomData};

use uuid::Uuid;

use crate::Time;

/// The id of one `K`. Typed, so that a run's id cannot stand where a task's is wanted.
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<fn() -> K>,
}

/// How many hex digits people see.
pub const SHORT_DIGITS: usize = 8;
/// How few hex digits a suffix may have.
pub const SUFFIX_DIGITS_MIN: usize = 6;

/// What to say to who typed the end of an id, and less of it than is looked for.
pub fn too_short(text: &str) -> Option<String> {
    let is_short = (1..SUFFIX_DIGITS_MIN).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_short.then(|| format!("of an id at least the last {SUFFIX_DIGITS_MIN} digits are needed"))
}

impl<K> Id<K> {
    /// A new id that sorts by the time given, to the microsecond: the twelve bits below the millisecond hold its
    /// fraction (RFC 9562, method 3), so that the newest is the last even within a millisecond.
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

/// Random bytes that were fetched together: asking the system for each id takes longer than making it.
struct Fetched {
    bytes: [u8; FETCHED],
    left: usize,
}

/// How many.
const FETCHED: usize = 1_024;

thread_local! {
    static RANDOM: RefCell<Fetched> = const { RefCell::new(Fetched { bytes: [0; FETCHED], left: 0 }) };
}

/// For ids, which are no secrets.
fn eight_random_bytes() -> [u8; 8] {
    let mut taken = [0; 8];
    RANDOM.with_borrow_mut(|fetched| {
        if fetched.left < taken.len() {
            if getrandom::fill(&mut fetched.bytes).is_err() {
                // Says what is the matter, if it is still the matter.
                return taken.copy_from_slice(&Uuid::new_v4().as_bytes()[8..]);
            }
            fetched.left = FETCHED;
        }
        fetched.left -= taken.len();
        taken.copy_from_slice(&fetched.bytes[fetched.left..fetched.left + 8]);
    });
    taken
}

/// The last `digits` hex digits of an id.
pub fn suffix(uuid: Uuid, digits: usize) -> String {
    let hex = uuid.simple().to_string();
    hex[hex.len() - digits.min(hex.len())..].to_owned()
}

/// The last eight hex digits, read backwards as a number. Ids that share a suffix then share a prefix,
/// so one ordinary index answers both "which id ends so" and "which ids would look alike".
pub fn short_key(uuid: Uuid) -> i64 {
    backwards(&suffix(uuid, SHORT_DIGITS))
}

/// The range of short keys of the ids that end in `suffix`, which must be hex digits.
pub fn short_key_range(suffix: &str) -> (i64, i64) {
    let seen = &suffix[suffix.len() - suffix.len().min(SHORT_DIGITS)..];
    let open_digits = SHORT_DIGITS - seen.len();
    let low = backwards(seen) << (4 * open_digits);
    (low, low + (1_i64 << (4 * open_digits)) - 1)
}

fn backwards(hex: &str) -> i64 {
    hex.chars().rev().filter_map(|digit| digit.to_digit(16)).fold(0, |key, digit| key << 4 | i64::from(digit))
}

/// Reads what a person typed as the end of an id: hex digits, hyphens allowed as in a whole UUID.
pub fn parse_suffix(text: &str) -> Option<String> {
    let hex: String = text.chars().filter(|character| *character != '-').collect();
    let right_length = (SUFFIX_DIGITS_MIN..=32).contains(&hex.len());
    (right_length && hex.chars().all(|digit| digit.is_ascii_hexdigit())).then(|| hex.to_ascii_lowercase())
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
        fn an_id_lies_in_the_range_of_each_of_its_suffixes(bits: u128, digits in SUFFIX_DIGITS_MIN..=32usize) {
            let uuid = Uuid::from_u128(bits);
            let (low, high) = short_key_range(&suffix(uuid, digits));
            prop_assert!((low..=high).contains(&short_key(uuid)));
        }

        #[test]
        fn ids_with_other_endings_lie_outside(bits: u128, other: u128, digits in SUFFIX_DIGITS_MIN..=SHORT_DIGITS) {
            let (uuid, other) = (Uuid::from_u128(bits), Uuid::from_u128(other));
            let (low, high) = short_key_range(&suffix(uuid, digits));
            prop_assert_eq!((low..=high).contains(&short_key(other)), suffix(uuid, digits) == suffix(other, digits));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            if let Some(suffix) = parse_suffix(&text) {
                short_key_range(&suffix);
            }
        }
    }
}

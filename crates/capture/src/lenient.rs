//! JSON of odd shapes: what can be understood counts, and the rest says nothing. The usual shapes are read in one go;
//! only one that fails is looked at again.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// Reads a value that may be of any shape: a field that is odd says nothing, the others do.
pub fn lenient<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    let Some(raw) = raw else { return T::default() };
    serde_json::from_str(raw.get())
        .or_else(|_| serde_json::from_str(&mended(raw.get()).unwrap_or_default()))
        .unwrap_or_else(|_| by_fields(&mended(raw.get()).unwrap_or_else(|| raw.get().to_owned())))
}

/// Reads those fields of an object that can be read by themselves.
fn by_fields<T: DeserializeOwned + Default>(text: &str) -> T {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else { return T::default() };
    let understood = |(name, value): &(String, &RawValue)| {
        serde_json::to_string(&BTreeMap::from([(name, value)])).is_ok_and(|one| serde_json::from_str::<T>(&one).is_ok())
    };
    let kept: BTreeMap<_, _> = fields.into_iter().filter(understood).collect();
    serde_json::to_string(&kept).ok().and_then(|kept| serde_json::from_str(&kept).ok()).unwrap_or_default()
}

/// A small value of an odd shape says nothing, and what it is part of still does.
pub fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Yes or no, which models like to write as a text.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(match <&RawValue>::deserialize(deserializer)?.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    })
}

/// A number of something, which some servers write with a fraction.
pub fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?.get();
    let rounded = || raw.parse::<f64>().ok().and_then(|number| format!("{number:.0}").parse().ok());
    Ok(raw.parse().ok().or_else(rounded))
}

/// A name or a path. None has a NUL in it, and PostgreSQL keeps no text that has.
pub fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    Ok(name.map(|name| if name.contains('\0') { name.replace('\0', "") } else { name }))
}

/// A text of JSON in which halves of characters stand for themselves no more: a client that cuts a text in the middle of
/// an emoji writes such. None when there are none.
pub fn mended(text: &str) -> Option<String> {
    let mut mended = String::new();
    let (mut kept, mut place) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[place..]) {
        let start = place + found;
        match (half_at(text, start), half_at(text, start + ESCAPE)) {
            (Some(Half::First), Some(Half::Second)) => place = start + 2 * ESCAPE,
            (Some(_), _) => {
                mended += &text[kept..start];
                mended += "\\ufffd";
                place = start + ESCAPE;
                kept = place;
            }
            // What follows a backslash is no backslash of its own.
            (None, _) => place = (start + 2).min(text.len()),
        }
    }
    (kept > 0).then(|| mended + &text[kept..])
}

/// Bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// Half of a character beyond the first 65,536.
enum Half {
    First,
    Second,
}

fn half_at(text: &str, start: usize) -> Option<Half> {
    let digits = text.get(start..start + ESCAPE)?.strip_prefix("\\u")?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Half::First),
        0xdc00..=0xdfff => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_of_characters_are_mended_and_nothing_else_is() {
        for (text, wanted) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00b\ud83d\ud83d\ude00""#, Some(r#""\ufffdb\ufffd\ud83d\ude00""#)),
            (r#""\ud83d\ude00 \\ud83d \n""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufffd""#)),
            (r#""\uD83Dé""#, Some(r#""\ufffdé""#)),
            ("\\", None),
            ("\\u00", None),
        ] {
            assert_eq!(mended(text).as_deref(), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_mended_can_be_read(pieces in proptest::collection::vec(prop_oneof![
            Just(r"\ud83d".to_owned()), Just(r"\ude00".to_owned()), Just(r"\\".to_owned()), Just("u".to_owned()), "[a-é]"
        ], 0..20)) {
            let text = format!("\"{}\"", pieces.concat());
            let whole = mended(&text).unwrap_or_else(|| text.clone());
            prop_assert!(serde_json::from_str::<String>(&whole).is_ok(), "{} {}", text, whole);
        }
    }
}

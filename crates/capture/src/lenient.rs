//! Lenient JSON parsing: fields with an unexpected shape get their default value, and the other fields are still read.
//! Values with the expected shape are parsed once; only a failure causes a second, slower attempt.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// Parses a value of any shape. A field with an unexpected shape gets its default.
pub fn lenient<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    let Some(raw) = raw else { return T::default() };
    serde_json::from_str(raw.get())
        .or_else(|_| serde_json::from_str(&replace_lone_surrogates(raw.get()).unwrap_or_default()))
        .unwrap_or_else(|_| parse_fields(&replace_lone_surrogates(raw.get()).unwrap_or_else(|| raw.get().to_owned())))
}

/// Tries each field of an object separately, and parses the object without the fields that fail.
fn parse_fields<T: DeserializeOwned + Default>(text: &str) -> T {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else { return T::default() };
    let is_valid = |(name, value): &(String, &RawValue)| {
        serde_json::to_string(&BTreeMap::from([(name, value)])).is_ok_and(|one| serde_json::from_str::<T>(&one).is_ok())
    };
    let valid: BTreeMap<_, _> = fields.into_iter().filter(is_valid).collect();
    serde_json::to_string(&valid).ok().and_then(|valid| serde_json::from_str(&valid).ok()).unwrap_or_default()
}

/// Deserializes a field, or returns its default if the value has an unexpected shape.
pub fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Deserializes a boolean. Models often write it as a text.
pub fn boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(match <&RawValue>::deserialize(deserializer)?.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    })
}

/// Deserializes an integer. Some servers write it with a fraction.
pub fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?.get();
    let rounded = || raw.parse::<f64>().ok().and_then(|number| format!("{number:.0}").parse().ok());
    Ok(raw.parse().ok().or_else(rounded))
}

/// Deserializes a name or a path without NUL characters, which PostgreSQL cannot store.
pub fn without_nul<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    Ok(name.map(|name| if name.contains('\0') { name.replace('\0', "") } else { name }))
}

/// Replaces escapes of lone surrogates in a JSON text by the escape of U+FFFD. None if there are none. A client writes
/// a lone surrogate when it cuts a text in the middle of an emoji.
pub fn replace_lone_surrogates(text: &str) -> Option<String> {
    let mut replaced = String::new();
    let (mut copied, mut position) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[position..]) {
        let start = position + found;
        match (surrogate_at(text, start), surrogate_at(text, start + ESCAPE)) {
            (Some(Surrogate::High), Some(Surrogate::Low)) => position = start + 2 * ESCAPE,
            (Some(_), _) => {
                replaced += &text[copied..start];
                replaced += "\\ufffd";
                position = start + ESCAPE;
                copied = position;
            }
            // Skip the escaped character, which may be a backslash itself.
            (None, _) => position = (start + 2).min(text.len()),
        }
    }
    (copied > 0).then(|| replaced + &text[copied..])
}

/// Bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// A half of a character beyond U+FFFF in UTF-16.
enum Surrogate {
    High,
    Low,
}

fn surrogate_at(text: &str, start: usize) -> Option<Surrogate> {
    let digits = text.get(start..start + ESCAPE)?.strip_prefix("\\u")?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Surrogate::High),
        0xdc00..=0xdfff => Some(Surrogate::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, wanted) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00b\ud83d\ud83d\ude00""#, Some(r#""\ufffdb\ufffd\ud83d\ude00""#)),
            (r#""\ud83d\ude00 \\ud83d \n""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufffd""#)),
            (r#""\uD83Dé""#, Some(r#""\ufffdé""#)),
            ("\\", None),
            ("\\u00", None),
        ] {
            assert_eq!(replace_lone_surrogates(text).as_deref(), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_with_replaced_surrogates_can_be_parsed(pieces in proptest::collection::vec(prop_oneof![
            Just(r"\ud83d".to_owned()), Just(r"\ude00".to_owned()), Just(r"\\".to_owned()), Just("u".to_owned()), "[a-é]"
        ], 0..20)) {
            let text = format!("\"{}\"", pieces.concat());
            let whole = replace_lone_surrogates(&text).unwrap_or_else(|| text.clone());
            prop_assert!(serde_json::from_str::<String>(&whole).is_ok(), "{} {}", text, whole);
        }
    }
}

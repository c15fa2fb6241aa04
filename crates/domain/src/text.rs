//! Strings from people and models are data: cleaned first, then measured.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Characters in a name or a title.
pub const LINE_MAX: usize = 200;
/// Characters in a description, a comment, a message of a run.
pub const TEXT_MAX: usize = 100_000;
/// Characters in a path.
pub const PATH_MAX: usize = 4_096;
/// Characters in the body of a note or a message.
pub const BODY_MAX: usize = 1_000_000;

/// What a line that must say something holds, as a pattern: not only blanks and control characters.
pub const SAYS_SOMETHING: &str = r"[^\s\x00-\x1f\x7f-\x9f]";
/// What a name is made of, as a pattern. Control characters may be sent, and are removed.
pub const NAME: &str = r"^[\w.@:+ \x00-\x1f\x7f-\x9f-]*[\w.@:+-][\w.@:+ \x00-\x1f\x7f-\x9f-]*$";

/// The same for a name that can be cleared.
pub const NAME_OR_NONE: &str = r"^$|^[\w.@:+ \x00-\x1f\x7f-\x9f-]*[\w.@:+-][\w.@:+ \x00-\x1f\x7f-\x9f-]*$";

/// Bytes of a text that is its own key: indexes do not take any length.
const KEY_MAX: usize = 600;

/// Every character that counts as blank, for a database to trim.
pub const BLANKS: &str = "\t\n\u{b}\u{c}\r \u{85}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Removes control characters other than tab and line feed. CR LF becomes LF.
pub fn clean(text: &str) -> String {
    if is_clean(text) {
        return text.to_owned();
    }
    text.chars().filter(|character| !character.is_control() || matches!(character, '\t' | '\n')).collect()
}

/// The same for every text in a value.
///
/// PostgreSQL keeps no NUL inside JSON, and its objects have no order: so neither engine does.
pub fn clean_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(values) => values.into_iter().map(clean_json).collect(),
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(name, value)| (clean(&name), clean_json(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        other => other,
    }
}

/// Whether there is nothing to remove, as in most texts. A character that is none of ASCII's may look as if it were.
pub fn is_clean(text: &str) -> bool {
    // Other control characters than those of ASCII begin with 0xc2.
    let is_plain = |byte: &u8| (*byte >= b' ' && *byte != 0x7f && *byte != 0xc2) || matches!(byte, b'\t' | b'\n');
    // By pieces, which the machine looks at many bytes at once.
    text.as_bytes().chunks(64).all(|piece| piece.iter().fold(true, |plain, byte| plain & is_plain(byte)))
}

/// Cleans a one-line field: tabs and line feeds become spaces, the ends are trimmed.
pub fn clean_line(text: &str) -> String {
    let line: String =
        clean(text).chars().map(|character| if matches!(character, '\t' | '\n') { ' ' } else { character }).collect();
    line.trim().to_owned()
}

/// Cleans a one-line field and refuses it when it is longer than `max` characters.
pub fn line(field: &str, text: &str, max: usize) -> Result<String> {
    limited(field, clean_line(text), max)
}

/// Cleans a one-line field that must say something.
pub fn required_line(field: &str, text: &str, max: usize) -> Result<String> {
    let cleaned = line(field, text, max)?;
    if cleaned.is_empty() {
        return Err(Error::usage(format!("{field} is empty")));
    }
    Ok(cleaned)
}

/// Cleans a text of several lines and refuses it when it is longer than `max` characters.
pub fn body(field: &str, text: &str, max: usize) -> Result<String> {
    limited(field, clean(text), max)
}

fn limited(field: &str, cleaned: String, max: usize) -> Result<String> {
    let length = cleaned.chars().count();
    if length > max {
        return Err(Error::usage(format!("{field} has {length} characters, the limit is {max}")));
    }
    Ok(cleaned)
}

/// What a text of any length is looked up by: itself, or the hash of a long one.
pub fn key(text: &str) -> String {
    if text.len() <= KEY_MAX {
        text.to_owned()
    } else {
        format!("sha256:{}", crate::spawn::hex(&Sha256::digest(text.as_bytes())))
    }
}

/// The first `max` characters, with an ellipsis when something was cut.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// How long a text is to whoever counts in UTF-16, as JavaScript does.
pub fn utf16_length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The beginning of a text that has at most `max` units of UTF-16, the ellipsis where something was cut included.
pub fn cut_utf16(text: &str, max: usize) -> String {
    if utf16_length(text) <= max {
        return text.to_owned();
    }
    let mut room = max.saturating_sub(1);
    let fits = |character: &char| {
        let left = room.checked_sub(character.len_utf16());
        room = left.unwrap_or_default();
        left.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Checks a name that people type: letters, digits and `. _ - @ : +`, with single spaces between them.
pub fn name(field: &str, text: &str) -> Result<String> {
    let name = required_line(field, text, LINE_MAX)?;
    let allowed = |character: char| character.is_alphanumeric() || "._-@:+ ".contains(character);
    if let Some(odd) = name.chars().find(|character| !allowed(*character)) {
        return Err(Error::usage(format!("{field} {name:?} contains {odd:?}"))
            .hint("use letters, digits, spaces and any of . _ - @ : +"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(clean_line(" a\tb\r\nc\u{7}\u{9b}d\0 "), "a b cd");
        assert_eq!(clean("a\tb\r\nc\u{1b}[31m"), "a\tb\nc[31m");
    }

    #[test]
    fn length_is_measured_after_cleaning_in_characters() {
        assert_eq!(line("title", "\u{1}\u{1}𝔸𝔸", 2).unwrap(), "𝔸𝔸");
        let error = line("title", "abc", 2).unwrap_err();
        assert_eq!(error.to_string(), "title has 3 characters, the limit is 2");
    }

    #[test]
    fn blanks_are_all_that_trim_takes_away() {
        let all: String =
            (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|one| one.is_whitespace()).collect();
        assert_eq!(BLANKS, all);
    }

    #[test]
    fn a_text_is_cut_by_what_javascript_counts() {
        assert_eq!((utf16_length("a𝔸é"), cut_utf16("a𝔸é", 4).as_str()), (4, "a𝔸é"));
        assert_eq!(["a𝔸éb", "𝔸𝔸𝔸", "ééééé"].map(|text| cut_utf16(text, 4)), ["a𝔸…", "𝔸…", "ééé…"]);
    }

    proptest! {
        #[test]
        fn cut_texts_stay_within(text in ".{0,80}", max in 1usize..40) {
            let cut = cut_utf16(&text, max);
            prop_assert!(utf16_length(&cut) <= max);
            prop_assert!(text.starts_with(cut.strip_suffix('…').unwrap_or(&cut)));
        }

        #[test]
        fn cleaning_twice_changes_nothing(text in ".*") {
            prop_assert_eq!(clean(&clean(&text)), clean(&text));
            prop_assert_eq!(clean_line(&clean_line(&text)), clean_line(&text));
            prop_assert!(!clean_line(&text).contains(['\n', '\t', '\r', '\0']));
        }
    }
}

//! Strings from people and models are data: these functions clean them first, then check their length.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Maximum number of characters in a name or a title.
pub const LINE_MAX: usize = 200;
/// Maximum number of characters in a description, a comment or the final message of a run.
pub const TEXT_MAX: usize = 100_000;
/// Maximum number of characters in a path.
pub const PATH_MAX: usize = 4_096;
/// Maximum number of characters in the body of a note or a message.
pub const BODY_MAX: usize = 1_000_000;

/// Regular expression for a text that is not blank: it has a character that is neither a blank nor a control character.
pub const NOT_BLANK_PATTERN: &str = r"[^\s\x00-\x1f\x7f-\x9f]";
/// Regular expression for a name. It admits control characters, because [`clean`] removes them.
pub const NAME_PATTERN: &str = r"^[\w.@:+ \x00-\x1f\x7f-\x9f-]*[\w.@:+-][\w.@:+ \x00-\x1f\x7f-\x9f-]*$";

/// Regular expression for a name, or for an empty text, which clears the name.
pub const NAME_OR_EMPTY_PATTERN: &str = r"^$|^[\w.@:+ \x00-\x1f\x7f-\x9f-]*[\w.@:+-][\w.@:+ \x00-\x1f\x7f-\x9f-]*$";

/// Maximum number of bytes of a text that is its own lookup key. Databases limit the length of index entries.
const KEY_MAX: usize = 600;

/// Every whitespace character, for SQL `trim`: it must remove the same characters as [`str::trim`].
pub const WHITESPACE: &str = "\t\n\u{b}\u{c}\r \u{85}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

/// Removes control characters other than tab and line feed. CR LF becomes LF.
pub fn clean(text: &str) -> String {
    if is_clean(text) {
        return text.to_owned();
    }
    text.chars().filter(|character| !character.is_control() || matches!(character, '\t' | '\n')).collect()
}

/// Cleans every text in a JSON value, and sorts the fields of objects by name.
///
/// PostgreSQL stores no NUL inside JSON and does not preserve the order of fields. Cleaning makes SQLite behave in the
/// same way.
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

/// Whether [`clean`] has nothing to remove, as in most texts. May return false for a clean text with characters beyond
/// ASCII.
pub fn is_clean(text: &str) -> bool {
    // In UTF-8, all control characters beyond ASCII begin with the byte 0xc2.
    let is_plain = |byte: &u8| (*byte >= b' ' && *byte != 0x7f && *byte != 0xc2) || matches!(byte, b'\t' | b'\n');
    // Without an early exit inside a chunk, the compiler vectorises the loop.
    text.as_bytes().chunks(64).all(|chunk| chunk.iter().fold(true, |plain, byte| plain & is_plain(byte)))
}

/// Cleans a one-line field: replaces tabs and line feeds by spaces, and trims both ends.
pub fn clean_line(text: &str) -> String {
    let line: String =
        clean(text).chars().map(|character| if matches!(character, '\t' | '\n') { ' ' } else { character }).collect();
    line.trim().to_owned()
}

/// Cleans a one-line field. Fails if it is longer than `max` characters.
pub fn check_line(field: &str, text: &str, max: usize) -> Result<String> {
    check_length(field, clean_line(text), max)
}

/// Cleans a one-line field. Fails if it is blank, or longer than `max` characters.
pub fn check_required_line(field: &str, text: &str, max: usize) -> Result<String> {
    let cleaned = check_line(field, text, max)?;
    if cleaned.is_empty() {
        return Err(Error::usage(format!("{field} is empty")));
    }
    Ok(cleaned)
}

/// Cleans a text of several lines. Fails if it is longer than `max` characters.
pub fn check_body(field: &str, text: &str, max: usize) -> Result<String> {
    check_length(field, clean(text), max)
}

fn check_length(field: &str, cleaned: String, max: usize) -> Result<String> {
    let length = cleaned.chars().count();
    if length > max {
        return Err(Error::usage(format!("{field} has {length} characters, the limit is {max}")));
    }
    Ok(cleaned)
}

/// The key by which a text of any length is indexed: the text itself, or its hash if it is long.
pub fn lookup_key(text: &str) -> String {
    if text.len() <= KEY_MAX {
        text.to_owned()
    } else {
        format!("sha256:{}", crate::spawn::hex(&Sha256::digest(text.as_bytes())))
    }
}

/// The first `max` characters, followed by an ellipsis if the text is longer.
pub fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The length of a text in UTF-16 code units, as JavaScript counts.
pub fn utf16_length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The beginning of a text, of at most `max` UTF-16 code units. They include the ellipsis that marks a cut.
pub fn cut_utf16(text: &str, max: usize) -> String {
    if utf16_length(text) <= max {
        return text.to_owned();
    }
    let mut budget = max.saturating_sub(1);
    let fits = |character: &char| {
        let rest = budget.checked_sub(character.len_utf16());
        budget = rest.unwrap_or_default();
        rest.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Cleans and checks a name that people type: letters, digits, spaces and `. _ - @ : +`.
pub fn check_name(field: &str, text: &str) -> Result<String> {
    let name = check_required_line(field, text, LINE_MAX)?;
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
    fn cleaning_removes_control_characters_and_line_ends() {
        assert_eq!(clean_line(" a\tb\r\nc\u{7}\u{9b}d\0 "), "a b cd");
        assert_eq!(clean("a\tb\r\nc\u{1b}[31m"), "a\tb\nc[31m");
    }

    #[test]
    fn length_counts_characters_after_cleaning() {
        assert_eq!(check_line("title", "\u{1}\u{1}𝔸𝔸", 2).unwrap(), "𝔸𝔸");
        let error = check_line("title", "abc", 2).unwrap_err();
        assert_eq!(error.to_string(), "title has 3 characters, the limit is 2");
    }

    #[test]
    fn whitespace_constant_has_every_character_that_trim_removes() {
        let all: String =
            (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|one| one.is_whitespace()).collect();
        assert_eq!(WHITESPACE, all);
    }

    #[test]
    fn cut_utf16_counts_code_units() {
        assert_eq!((utf16_length("a𝔸é"), cut_utf16("a𝔸é", 4).as_str()), (4, "a𝔸é"));
        assert_eq!(["a𝔸éb", "𝔸𝔸𝔸", "ééééé"].map(|text| cut_utf16(text, 4)), ["a𝔸…", "𝔸…", "ééé…"]);
    }

    proptest! {
        #[test]
        fn cut_text_is_a_prefix_within_the_limit(text in ".{0,80}", max in 1usize..40) {
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

//! `-` in place of a long text reads it from standard input: one argument holds at most 128 KiB on Linux.

use std::{ffi::OsString, io::Read};

use trackway_domain::Error as Rule;

use crate::failure::Failure;

/// Flags whose value may be `-`.
const FLAGS: &[&str] = &["--body", "--content", "--script", "--description", "--message", "--detail", "--identity"];
/// Bytes that are read. The longest text has a million characters of four bytes.
const BYTES_MAX: u64 = 4_000_000;

/// The arguments, with the text that stands on standard input put where `-` was.
pub fn filled_in(arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let wanted =
        |index: usize| index > 0 && arguments[index] == "-" && FLAGS.iter().any(|flag| arguments[index - 1] == *flag);
    let Some(place) = (0..arguments.len()).find(|index| wanted(*index)) else {
        return Ok(arguments);
    };
    let mut text = String::new();
    std::io::stdin().lock().take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| {
        Rule::usage(format!("standard input cannot be read: {error}")).hint("it must be text in UTF-8")
    })?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Rule::usage(format!("standard input has more than {BYTES_MAX} bytes")).into());
    }
    let mut arguments = arguments;
    arguments[place] = text.into();
    Ok(arguments)
}

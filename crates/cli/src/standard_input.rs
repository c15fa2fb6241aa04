//! `-` in place of a long text reads it from standard input: one argument holds at most 128 KiB on Linux.

use std::ffi::OsString;

use trackway_domain::{Error as Rule, text::BODY_MAX};

use crate::{arguments::FREE_TEXTS, failure::Failure, long_text};

/// The arguments, with the text that stands on standard input put where `-` was.
pub fn filled_in(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let is_text = |flag: &str| flag.strip_prefix("--").is_some_and(|name| FREE_TEXTS.contains(&name));
    let mut wanted = Vec::new();
    for index in 1..arguments.len() {
        let Some(argument) = arguments[index].to_str() else { continue };
        let before = arguments[index - 1].to_str().unwrap_or_default();
        match argument.strip_suffix("=-") {
            Some(flag) if is_text(flag) => wanted.push((index, format!("{flag}="))),
            _ if argument == "-" && is_text(before) => wanted.push((index, String::new())),
            _ => {}
        }
    }
    match wanted.as_slice() {
        [] => {}
        [(place, flag)] => {
            arguments[*place] =
                format!("{flag}{}", long_text::of_characters("standard input", std::io::stdin().lock(), BODY_MAX)?)
                    .into();
        }
        _ => return Err(Rule::usage("standard input can be read for one of them only").into()),
    }
    Ok(arguments)
}

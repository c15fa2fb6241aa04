//! Replaces `-` as the value of a text flag by the content of standard input, because Linux limits a single argument to
//! 128 KiB.

use std::ffi::OsString;

use trackway_domain::{Error as Rule, text::BODY_MAX};

use crate::{arguments::FREE_TEXTS, failure::Failure, long_text};

pub fn substitute_dash(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let is_text = |flag: &str| flag.strip_prefix("--").is_some_and(|name| FREE_TEXTS.contains(&name));
    let mut placeholders = Vec::new();
    for index in 1..arguments.len() {
        let Some(argument) = arguments[index].to_str() else { continue };
        let before = arguments[index - 1].to_str().unwrap_or_default();
        match argument.strip_suffix("=-") {
            Some(flag) if is_text(flag) => placeholders.push((index, format!("{flag}="))),
            _ if argument == "-" && is_text(before) => placeholders.push((index, String::new())),
            _ => {}
        }
    }
    match placeholders.as_slice() {
        [] => {}
        [(index, flag)] => {
            arguments[*index] = format!(
                "{flag}{}",
                long_text::read_characters_limited("standard input", std::io::stdin().lock(), BODY_MAX)?
            )
            .into();
        }
        _ => return Err(Rule::usage("only one argument can be - (standard input)").into()),
    }
    Ok(arguments)
}

//! Reads texts that are too long for an argument, from a file or from standard input.

use std::{
    borrow::Cow,
    fs::File,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, parser::ValueSource};
use encoding_rs::{Encoding, UTF_8};
use trackway_actions::{LongText, registry::ActionEntry};
use trackway_domain::Error as Rule;

use crate::failure::Failure;

/// Additional bytes to read, because cleaning a text removes control characters before its length is checked.
const CLEANING_RESERVE: u64 = 100_000;

/// The `--file` argument, for actions whose text is the value of another argument.
pub fn argument(action: &ActionEntry) -> Option<Arg> {
    let Some(LongText::Flag { field, .. }) = action.long_text else {
        return None;
    };
    Some(
        Arg::new("file")
            .long("file")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .conflicts_with(field)
            .help(format!("Read the {field} from this file [default without --{field}: standard input]")),
    )
}

/// The text for an action, if its arguments do not contain it.
pub fn read(action: &ActionEntry, matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let (file, limit) = match action.long_text {
        None => return Ok(None),
        Some(LongText::File { field, bytes_max }) => {
            (matches.get_one::<String>(field).map(PathBuf::from), Limit::Bytes(bytes_max))
        }
        Some(LongText::Flag { field, .. }) if matches.value_source(field) == Some(ValueSource::CommandLine) => {
            return Ok(None);
        }
        Some(LongText::Flag { field, characters_max }) => {
            let file = matches.get_one::<PathBuf>("file").cloned();
            if file.is_none() && std::io::stdin().is_terminal() {
                return Err(Rule::usage(format!("no {field} given"))
                    .hint(format!("use --{field}, --file, or standard input"))
                    .into());
            }
            (file, Limit::Characters(characters_max))
        }
    };
    match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => read_file(&file, limit).map(Some),
        None => read_limited("standard input", std::io::stdin().lock(), limit).map(Some),
    }
}

fn read_file(path: &Path, limit: Limit) -> Result<String, Failure> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::from(Rule::not_found(format!("there is no file {name:?}"))),
        _ => Failure::from(Rule::usage(format!("{name:?} cannot be read: {error}"))),
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(Rule::usage(format!("{name:?} is a directory")).into());
    }
    if metadata.len() > limit.bytes() {
        return Err(limit.exceeded_error(&name));
    }
    read_limited(&name, file, limit)
}

/// The maximum length of a text.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Bytes(u64),
    Characters(usize),
}

impl Limit {
    /// The number of bytes to read. A character has at most four bytes.
    fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Characters(characters) => characters as u64 * 4 + CLEANING_RESERVE,
        }
    }

    fn exceeded_error(self, name: &str) -> Failure {
        let limit = match self {
            Self::Bytes(bytes) => format!("{bytes} bytes"),
            Self::Characters(characters) => format!("{characters} characters"),
        };
        Rule::usage(format!("{name} exceeds the limit of {limit}")).into()
    }
}

pub fn read_bytes_limited(name: &str, from: impl Read, bytes_max: u64) -> Result<String, Failure> {
    read_limited(name, from, Limit::Bytes(bytes_max))
}

pub fn read_characters_limited(name: &str, from: impl Read, characters_max: usize) -> Result<String, Failure> {
    read_limited(name, from, Limit::Characters(characters_max))
}

fn read_limited(name: &str, from: impl Read, limit: Limit) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(limit.bytes() + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit.bytes() {
        return Err(limit.exceeded_error(name));
    }
    let text = decode(bytes).ok_or_else(|| Rule::usage(format!("{name} is not text in UTF-8")))?;
    if text.len() as u64 > limit.bytes() { Err(limit.exceeded_error(name)) } else { Ok(text) }
}

/// Decodes UTF-8, UTF-16 with a byte order mark, or XML in its declared encoding.
fn decode(bytes: Vec<u8>) -> Option<String> {
    let (encoding, mark) = match Encoding::for_bom(&bytes) {
        Some((encoding, mark)) if encoding != UTF_8 => (encoding, mark),
        _ => match String::from_utf8(bytes) {
            Ok(text) => return Some(text),
            Err(error) => return decode_as(xml_encoding(error.as_bytes())?, error.as_bytes()),
        },
    };
    decode_as(encoding, bytes.get(mark..)?)
}

fn decode_as(encoding: &'static Encoding, bytes: &[u8]) -> Option<String> {
    encoding.decode_without_bom_handling_and_without_replacement(bytes).map(Cow::into_owned)
}

/// The encoding in an XML declaration.
fn xml_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let declaration = bytes.strip_prefix(b"<?xml")?.split(|byte| *byte == b'>').next()?;
    let rest = std::str::from_utf8(declaration).ok()?.split_once("encoding")?.1;
    Encoding::for_label(rest.split(['"', '\'']).nth(1)?.as_bytes())
}

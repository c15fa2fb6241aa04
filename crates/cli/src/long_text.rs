//! A text that is too long for an argument: from a file, or from standard input.

use std::{
    borrow::Cow,
    fs::File,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, parser::ValueSource};
use encoding_rs::{Encoding, UTF_8};
use trackway_actions::{LongText, registry::Entry};
use trackway_domain::Error as Rule;

use crate::failure::Failure;

/// Bytes of control characters that a text may hold beside what counts.
const ROOM_FOR_CLEANING: u64 = 100_000;

/// The argument that names the file, where another holds the text.
pub fn argument(action: &Entry) -> Option<Arg> {
    let Some(LongText::Flag { field, .. }) = action.long_text else {
        return None;
    };
    Some(
        Arg::new("file")
            .long("file")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .conflicts_with(field)
            .help(format!("Read the {field} from this file; without it and without --{field}, from standard input")),
    )
}

/// The text that an action is to be given, when it is not among its arguments.
pub fn read(action: &Entry, matches: &ArgMatches) -> Result<Option<String>, Failure> {
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
                return Err(Rule::usage(format!("there is no {field}"))
                    .hint(format!("give it with --{field}, from a file with --file, or on standard input"))
                    .into());
            }
            (file, Limit::Characters(characters_max))
        }
    };
    match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => from_file(&file, limit).map(Some),
        None => within("standard input", std::io::stdin().lock(), limit).map(Some),
    }
}

fn from_file(path: &Path, limit: Limit) -> Result<String, Failure> {
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
        return Err(limit.passed_by(&name));
    }
    within(&name, file, limit)
}

/// How long a text may be.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Bytes(u64),
    Characters(usize),
}

impl Limit {
    /// Bytes that are read: characters have up to four, and cleaning takes some away.
    fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Characters(characters) => characters as u64 * 4 + ROOM_FOR_CLEANING,
        }
    }

    fn passed_by(self, name: &str) -> Failure {
        let limit = match self {
            Self::Bytes(bytes) => format!("{bytes} bytes"),
            Self::Characters(characters) => format!("{characters} characters"),
        };
        Rule::usage(format!("{name} has more than {limit}, the limit")).into()
    }
}

/// Reads a text, and no more than one byte past its limit.
pub fn text(name: &str, from: impl Read, bytes_max: u64) -> Result<String, Failure> {
    within(name, from, Limit::Bytes(bytes_max))
}

/// The same with a limit in characters.
pub fn of_characters(name: &str, from: impl Read, characters_max: usize) -> Result<String, Failure> {
    within(name, from, Limit::Characters(characters_max))
}

fn within(name: &str, from: impl Read, limit: Limit) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(limit.bytes() + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit.bytes() {
        return Err(limit.passed_by(name));
    }
    let text = decoded(bytes).ok_or_else(|| Rule::usage(format!("{name} is not text in UTF-8")))?;
    if text.len() as u64 > limit.bytes() { Err(limit.passed_by(name)) } else { Ok(text) }
}

/// Text in UTF-8, in the UTF-16 that its first bytes tell of, or, where it is XML, in the encoding that it says it has.
fn decoded(bytes: Vec<u8>) -> Option<String> {
    let (encoding, mark) = match Encoding::for_bom(&bytes) {
        Some((encoding, mark)) if encoding != UTF_8 => (encoding, mark),
        _ => match String::from_utf8(bytes) {
            Ok(text) => return Some(text),
            Err(error) => return in_encoding(declared(error.as_bytes())?, error.as_bytes()),
        },
    };
    in_encoding(encoding, bytes.get(mark..)?)
}

fn in_encoding(encoding: &'static Encoding, bytes: &[u8]) -> Option<String> {
    encoding.decode_without_bom_handling_and_without_replacement(bytes).map(Cow::into_owned)
}

/// The encoding in the declaration of XML.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let declaration = bytes.strip_prefix(b"<?xml")?.split(|byte| *byte == b'>').next()?;
    let rest = std::str::from_utf8(declaration).ok()?.split_once("encoding")?.1;
    Encoding::for_label(rest.split(['"', '\'']).nth(1)?.as_bytes())
}

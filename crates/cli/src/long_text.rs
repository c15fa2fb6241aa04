//! A text that is too long for an argument: from a file, or from standard input.

use std::{
    fs::File,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, parser::ValueSource};
use trackway_actions::{LongText, registry::Entry};
use trackway_domain::Error as Rule;

use crate::failure::Failure;

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
    let (file, bytes_max) = match action.long_text {
        None => return Ok(None),
        Some(LongText::File { field, bytes_max }) => (matches.get_one::<String>(field).map(PathBuf::from), bytes_max),
        Some(LongText::Flag { field, .. }) if matches.value_source(field) == Some(ValueSource::CommandLine) => {
            return Ok(None);
        }
        Some(LongText::Flag { field, bytes_max }) => {
            let file = matches.get_one::<PathBuf>("file").cloned();
            if file.is_none() && std::io::stdin().is_terminal() {
                return Err(Rule::usage(format!("there is no {field}"))
                    .hint(format!("give it with --{field}, from a file with --file, or on standard input"))
                    .into());
            }
            (file, bytes_max)
        }
    };
    match file.filter(|file| file.as_os_str() != "-") {
        Some(file) => from_file(&file, bytes_max).map(Some),
        None => text("standard input", std::io::stdin().lock(), bytes_max).map(Some),
    }
}

fn from_file(path: &Path, bytes_max: u64) -> Result<String, Failure> {
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
    if metadata.len() > bytes_max {
        return Err(too_long(&name, bytes_max));
    }
    text(&name, file, bytes_max)
}

/// Reads a text, and no more than one byte past its limit.
pub fn text(name: &str, from: impl Read, bytes_max: u64) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_long(name, bytes_max));
    }
    String::from_utf8(bytes).map_err(|_| Rule::usage(format!("{name} is not text in UTF-8")).into())
}

fn too_long(name: &str, bytes_max: u64) -> Failure {
    Rule::usage(format!("{name} has more than {bytes_max} bytes, the limit")).into()
}

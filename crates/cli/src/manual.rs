//! Manual pages, made from the grammar as the help is.

use std::{fs, path::PathBuf};

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use trackway_domain::Error as Rule;

use crate::{arguments, door::Outcome, failure::Failure, render::Shape};

/// The command that writes them.
pub fn command() -> Command {
    Command::new("man").about("Write manual pages, one for each command").arg(
        Arg::new("dir")
            .long("dir")
            .value_name("DIR")
            .required(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help("The folder to write them to, such as ~/.local/share/man/man1; made where there is none"),
    )
}

/// Writes them; pages that are there are replaced.
pub fn write(matches: &ArgMatches) -> Result<Outcome, Failure> {
    let folder = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let unwritable = |error: std::io::Error| {
        Failure::from(Rule::usage(format!("{} cannot be written to: {error}", folder.display())))
    };
    fs::create_dir_all(&folder).map_err(unwritable)?;
    let mut root = arguments::command().disable_help_subcommand(true);
    root.build();
    let pages = pages(&root);
    for page in &pages {
        page.generate_to(&folder).map_err(unwritable)?;
    }
    Ok(Outcome::new(json!({ "directory": folder, "pages": pages.len() }), Shape::Fields))
}

/// A page for each command, those below it included.
fn pages(command: &Command) -> Vec<clap_mangen::Man> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(pages);
    std::iter::once(clap_mangen::Man::new(command.clone())).chain(below).collect()
}

//! `trackway man`: writes manual pages, generated from the clap commands.

use std::{fs, path::PathBuf};

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use trackway_domain::Error as Rule;

use crate::{arguments, dispatch::CommandOutcome, failure::Failure, render::Layout};

pub fn command() -> Command {
    Command::new("man").about("Write manual pages, one for each command").arg(
        Arg::new("dir")
            .long("dir")
            .value_name("DIR")
            .required(true)
            .value_parser(clap::value_parser!(PathBuf))
            .help("Output directory, such as ~/.local/share/man/man1. It is created if it does not exist"),
    )
}

/// Writes the pages, and replaces existing ones.
pub fn write(matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let folder = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let unwritable =
        |error: std::io::Error| Failure::from(Rule::usage(format!("cannot write to {}: {error}", folder.display())));
    fs::create_dir_all(&folder).map_err(unwritable)?;
    let mut root = arguments::command().disable_help_subcommand(true);
    root.build();
    let pages = pages(&root);
    for page in &pages {
        page.generate_to(&folder).map_err(unwritable)?;
    }
    Ok(CommandOutcome::new(json!({ "directory": folder, "pages": pages.len() }), Layout::Fields))
}

/// A page for the command and for each of its subcommands.
fn pages(command: &Command) -> Vec<clap_mangen::Man> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(pages);
    std::iter::once(clap_mangen::Man::new(command.clone())).chain(below).collect()
}

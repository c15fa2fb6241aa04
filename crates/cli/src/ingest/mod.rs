//! `trackway ingest`: reads the transcripts that clients left into the record.

mod bar;
mod watch;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use trackway_actions::{Context, Core};
use trackway_capture::ingest::{Ingest, Selection, Source};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, Time};

use self::bar::Bar;
use crate::{
    door::{House, Outcome},
    failure::Failure,
    location::Location,
    render::Shape,
};

pub fn command() -> Command {
    Command::new("ingest")
        .about("Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage")
        .long_about(
            "Read Claude Code's transcripts into the record: sessions, subagents, runs, files, usage\n\n\
             Without paths: all of them, or in a project's database the project's own. A second run reads only new lines; \
             --full reads them from the start, and restores what a clean-up removed.",
        )
        .arg(
            Arg::new("paths")
                .value_name("PATH")
                .num_args(0..)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Transcripts, or folders that hold some"),
        )
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("TIME")
                .value_parser(clap::value_parser!(Time))
                .help("Only transcripts written to since then: a day, or a time"),
        )
        .arg(
            Arg::new("full")
                .long("full")
                .action(ArgAction::SetTrue)
                .help("Read transcripts from the start, those that were read before too"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on reading as transcripts grow, until interrupted"),
        )
}

pub fn ingest(house: &House, location: &Location, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let given: Vec<PathBuf> = matches.get_many::<PathBuf>("paths").into_iter().flatten().cloned().collect();
    if let Some(path) = given.iter().find(|path| !path.exists()) {
        return Err(Rule::not_found(format!("there is nothing at {}", path.display())).into());
    }
    let sources = if given.is_empty() {
        let folders = CLIENTS.0.iter().filter_map(|client| Some((*client, client.transcripts_folder()?)));
        let folders: Vec<_> = folders.map(|(client, path)| Source { client, path }).collect();
        if folders.iter().all(|source| !source.path.exists()) {
            let looked_at = |Source { client, path }: &Source| {
                format!("{} has left no transcripts in {}", client.display_name(), path.display())
            };
            let none: Vec<String> = folders.iter().map(looked_at).collect();
            return Err(Rule::not_found(none.join("; ")).hint("give a PATH").into());
        }
        folders.into_iter().filter(|source| source.path.exists()).collect()
    } else {
        given.iter().filter_map(|path| Some(Source { client: CLIENTS.named(None)?, path: path.clone() })).collect()
    };
    let mut selection = Selection::new(sources);
    selection.since = matches.get_one::<Time>("since").copied();
    selection.project = location.project.clone().filter(|_| given.is_empty());
    selection.exclude.clone_from(&location.exclude);
    selection.full = matches.get_flag("full");
    let context = house.context()?;
    let mut ingesting = Ingest::new(&house.core, &context, selection);
    let mut remarks = Vec::new();
    if matches.get_flag("watch") {
        watch::until_stopped(&mut ingesting)?;
    } else {
        let read = ingesting.pass(&mut Bar::default())?;
        remarks = read.problems.iter().map(|problem| format!("warning: {problem}")).collect();
    }
    let ingested = ingesting.summary()?;
    let mut data = serde_json::to_value(&ingested).map_err(|error| Rule::usage(error.to_string()))?;
    if ingested.problems.is_empty()
        && let Some(fields) = data.as_object_mut()
    {
        fields.remove("problems");
    }
    let mut outcome = Outcome::new(data, Shape::Fields);
    outcome.remarks = remarks;
    Ok(outcome)
}

/// Reads the transcripts below a folder.
pub fn ingest_folder(core: &Core, context: &Context, folder: &Path) -> Result<(), Failure> {
    let sources = CLIENTS.named(None).map(|client| Source { client, path: folder.to_path_buf() }).into_iter().collect();
    Ingest::new(core, context, Selection::new(sources)).pass(&mut Bar::default())?;
    Ok(())
}

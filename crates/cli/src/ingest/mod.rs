//! `trackway ingest`: imports transcripts of agent clients.

mod progress_bar;
mod watch;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use trackway_actions::{Context, Core};
use trackway_capture::{
    client::Client,
    ingest::{Ingest, Selection, Source},
};
use trackway_clients::CLIENTS;
use trackway_domain::{Error as Rule, Time};

use self::progress_bar::ProgressBar;
use crate::{
    client_argument::{ClientParser, named_clients},
    dispatch::{App, CommandOutcome},
    failure::Failure,
    location::Location,
    render::Layout,
};

pub fn command() -> Command {
    let clients = CLIENTS.display_names();
    Command::new("ingest")
        .about(format!("Import {clients} transcripts: sessions, subagents, runs, files, usage"))
        .long_about(format!(
            "Import {clients} transcripts: sessions, subagents, runs, files, usage\n\n\
             Without paths, imports the transcripts of every client, or only those of the project for a project's \
             database. With paths, the client that wrote each transcript is recognised by its file. Later imports read \
             only new lines. --full reads the transcripts from the start, and restores what a cleanup removed.",
        ))
        .arg(
            Arg::new("paths")
                .value_name("PATH")
                .num_args(0..)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Transcripts, or directories that contain transcripts"),
        )
        .arg(
            Arg::new("client")
                .long("client")
                .value_name("CLIENT")
                .value_parser(ClientParser)
                .help("Only transcripts of this agent client [default: all clients]"),
        )
        .arg(
            Arg::new("since")
                .long("since")
                .value_name("TIME")
                .value_parser(clap::value_parser!(Time))
                .help("Only transcripts modified since this day or time"),
        )
        .arg(
            Arg::new("full")
                .long("full")
                .action(ArgAction::SetTrue)
                .help("Read transcripts from the start, even if they were imported before"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Keep importing new lines until interrupted"),
        )
}

pub fn ingest(app: &App, location: &Location, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let given: Vec<PathBuf> = matches.get_many::<PathBuf>("paths").into_iter().flatten().cloned().collect();
    if let Some(path) = given.iter().find(|path| !path.exists()) {
        return Err(Rule::not_found(format!("{} does not exist", path.display())).into());
    }
    let mut clients = named_clients(matches, "client");
    if clients.is_empty() {
        clients = CLIENTS.0.to_vec();
    }
    let sources = if given.is_empty() {
        let folders = clients.iter().filter_map(|client| Some((*client, client.transcripts_folder()?)));
        let folders: Vec<_> = folders.map(|(client, path)| Source { client, path }).collect();
        if folders.is_empty() {
            let names = clients.iter().map(|client| client.display_name()).collect::<Vec<_>>().join(", ");
            return Err(Rule::not_found(format!("cannot find the transcripts of {names}: HOME is not set"))
                .hint("name the transcripts with PATH")
                .into());
        }
        if folders.iter().all(|source| !source.path.exists()) {
            let description = |Source { client, path }: &Source| {
                format!("no {} transcripts in {}", client.display_name(), path.display())
            };
            let missing: Vec<String> = folders.iter().map(description).collect();
            return Err(Rule::not_found(missing.join("; ")).hint("name the transcripts with PATH").into());
        }
        folders.into_iter().filter(|source| source.path.exists()).collect()
    } else {
        let sources_of = |path: &PathBuf| {
            let source = |client: &&'static dyn Client| Source { client: *client, path: path.clone() };
            clients.iter().map(source).collect::<Vec<_>>()
        };
        given.iter().flat_map(sources_of).collect()
    };
    let mut selection = Selection::new(sources);
    selection.since = matches.get_one::<Time>("since").copied();
    selection.project = location.project.clone().filter(|_| given.is_empty());
    selection.exclude.clone_from(&location.exclude);
    selection.full = matches.get_flag("full");
    let context = app.context()?;
    let mut ingesting = Ingest::new(&app.core, &context, selection);
    let mut remarks = Vec::new();
    if matches.get_flag("watch") {
        watch::until_stopped(&mut ingesting)?;
    } else {
        let read = ingesting.pass(&mut ProgressBar::default())?;
        remarks = read.problems.iter().map(|problem| format!("warning: {problem}")).collect();
    }
    let ingested = ingesting.summary()?;
    let mut data = serde_json::to_value(&ingested).map_err(|error| Rule::usage(error.to_string()))?;
    if ingested.problems.is_empty()
        && let Some(fields) = data.as_object_mut()
    {
        fields.remove("problems");
    }
    let mut outcome = CommandOutcome::new(data, Layout::Fields);
    outcome.remarks = remarks;
    Ok(outcome)
}

/// Imports the transcripts in a directory.
pub fn ingest_folder(core: &Core, context: &Context, folder: &Path) -> Result<(), Failure> {
    let sources = CLIENTS.named(None).map(|client| Source { client, path: folder.to_path_buf() }).into_iter().collect();
    Ingest::new(core, context, Selection::new(sources)).pass(&mut ProgressBar::default())?;
    Ok(())
}

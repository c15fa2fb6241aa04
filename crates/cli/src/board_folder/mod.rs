//! `trackway board export`, `import`, `sync` and `diff`: synchronise a board with a folder of YAML files.

mod export;
mod files;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_actions::board::{SyncBoard, SyncResult};
use trackway_domain::{
    Error as Rule, Ref,
    board_folder::{BOARD_FILE, RELATIONS_FILE, board_yaml, file_names, relations_yaml, stickie_yaml},
    board_sync::{Counts, Difference, EditedSide, compare_stickies, find_edited_side},
    kind,
};
use uuid::Uuid;

use self::files::{Files, RelationsMode};
use crate::{
    dispatch::{App, CommandOutcome},
    failure::Failure,
    render::Layout,
};

const FOLDER_COMMANDS: [&str; 4] = ["export", "import", "sync", "diff"];

pub fn is_folder_command(verb: &str) -> bool {
    FOLDER_COMMANDS.contains(&verb)
}

/// Adds the commands that read and write folders. The action `sync` receives the content of a folder; on the command
/// line, the user names a directory instead.
pub fn commands(board: Command) -> Command {
    let directory = || {
        Arg::new("dir").value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf)).help("The folder")
    };
    let board_argument = || Arg::new("board").value_name("BOARD").required(true).help("The board, by name or id");
    let force = |help| Arg::new("force").long("force").action(ArgAction::SetTrue).help(help);
    board
        .subcommand(
            Command::new("export")
                .about("Write a board to a folder: a file for each stickie, one for the relations, one for the board")
                .args([board_argument(), directory(), force("Overwrite edits in the folder")]),
        )
        .subcommand(Command::new("import").about("Create or update a board from a folder").args([
            directory(),
            force("Overwrite edits on the board"),
            dry_run(),
        ]))
        .subcommand(
            Command::new("diff")
                .about("Compare a board with its folder. The exit code is 1 if they differ")
                .long_about(
                    "Compare a board with its folder. The exit code is 1 if they differ\n\n\
                     Marks: = same, ~ changed, + only on the board, - only in the folder",
                )
                .args([board_argument(), directory()]),
        )
        .mut_subcommand("sync", sync_command)
}

fn dry_run() -> Arg {
    Arg::new("dry_run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Show what would happen, without changing anything")
}

fn sync_command(sync: Command) -> Command {
    if sync.get_arguments().next().is_none() {
        return sync;
    }
    let side = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("DIR").value_parser(clap::value_parser!(PathBuf)).help(help)
    };
    sync.mut_arg("board", |board| board.required(true))
        .mut_arg("folder", |folder| folder.required(false).hide(true))
        .mut_arg("force", |force| force.help("Overwrite edits on the other side"))
        .args([side("from", "Update the board from this folder"), side("to", "Update this folder from the board")])
        .group(ArgGroup::new("side").args(["from", "to", "folder"]).required(true))
}

pub fn run(app: &App, verb: &str, matches: &ArgMatches) -> Result<CommandOutcome, Failure> {
    let directory = |name: &str| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
    let board = matches.try_get_one::<Ref<kind::Board>>("board").ok().flatten().cloned();
    let board = board.or_else(|| matches.try_get_one::<String>("board").ok().flatten().map(Ref::new));
    let force = matches.try_get_one::<bool>("force").ok().flatten().copied().unwrap_or_default();
    let is_dry_run = matches.try_get_one::<bool>("dry_run").ok().flatten().copied().unwrap_or_default();
    match (verb, board, directory("dir"), directory("from"), directory("to")) {
        ("import", _, Some(from), ..) | ("sync", None, _, Some(from), _) => import(app, None, &from, force, is_dry_run),
        ("sync", Some(board), _, Some(from), _) => import(app, Some(board), &from, force, is_dry_run),
        ("export", Some(board), Some(to), ..) | ("sync", Some(board), _, _, Some(to)) => {
            export::export(app, &board, &to, force, is_dry_run)
        }
        ("diff", Some(board), Some(with), ..) => diff(app, &board, &with),
        _ => Err(Rule::usage("no folder given").hint("use --from DIR or --to DIR").into()),
    }
}

/// Updates the board from the folder, and then completes the files, for example with the ids of new stickies.
fn import(
    app: &App,
    board: Option<Ref<kind::Board>>,
    directory: &Path,
    force: bool,
    is_dry_run: bool,
) -> Result<CommandOutcome, Failure> {
    let files = Files::read(directory, RelationsMode::Read)?;
    let context = app.context()?;
    let sync = SyncBoard { board, folder: files.folder.clone(), force };
    let synced = if is_dry_run { app.core.dry_run(&context, &sync)? } else { app.core.execute(&context, &sync)? };
    let mut remarks = Vec::new();
    if synced.left > 0 {
        remarks.push(format!(
            "note: {} newer changes on the board were kept; to bring them to the folder: trackway board sync --to DIR",
            synced.left
        ));
    }
    if !is_dry_run {
        // The board is committed, so a failed write is only a warning. The next sync matches such files by their names
        // or contents.
        if let Err(failure) = write_back(&files, &synced) {
            remarks.push(format!("warning: the board was updated, but not its folder: {}", failure.message));
        }
    }
    let data = outcome_data(synced.counts, synced.board, synced.relations, Some(synced.id.uuid()));
    let mut outcome = CommandOutcome::new(data, Layout::Fields);
    (outcome.remarks, outcome.is_dry_run) = (remarks, is_dry_run);
    Ok(outcome)
}

fn write_back(files: &Files, synced: &SyncResult) -> Result<(), Failure> {
    files.remove_leftovers()?;
    // The lines contain the present names of the stickies, and no deleted stickies.
    if let Some(lines) = synced.lines.as_ref().filter(|lines| files.folder.relations.as_ref() != Some(lines)) {
        files.replace(RELATIONS_FILE, &relations_yaml(lines)?)?;
    }
    for one in &synced.files {
        files.replace(&one.file, &stickie_yaml(one.id.uuid(), &one.content, one.edit_count)?)?;
    }
    let before = files.folder.board.as_ref();
    let seen = synced.synced_at.or_else(|| before.and_then(|board| board.synced_at));
    // If only the board has changed since the file was written, keep the file: its edit count names the version of the
    // board that the file is based on.
    let is_older = before.is_some_and(|board| {
        board.edit_count.is_some_and(|number| number < synced.edit_count) && synced.board == "same"
    });
    let text = board_yaml(synced.id.uuid(), &synced.content, synced.edit_count, seen)?;
    if !is_older {
        files.replace(BOARD_FILE, &text)?;
    }
    Ok(())
}

fn outcome_data(counts: Counts, board: &str, relations: Counts, id: Option<Uuid>) -> Value {
    json!({
        "id": id,
        "created": counts.created,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "removed": counts.removed,
        "board": board,
        "relations": relations,
    })
}

/// Compares a board with its folder. Returns one line for each file and relation, with a mark for the difference.
fn diff(app: &App, board: &Ref<kind::Board>, directory: &Path) -> Result<CommandOutcome, Failure> {
    let files = Files::read(directory, RelationsMode::Read)?;
    let mut read = app.reader()?;
    let id = read.resolve(board)?;
    let contents = read.board_contents(id)?;
    read.reject_foreign_ids(&contents, &files.folder)?;
    let earlier = read.stickie_contents_at_edits(&contents, &files.folder)?;
    let compared = compare_stickies(&contents.stickies, &files.folder, &earlier, Uuid::now_v7)?;
    let file_stems: Vec<(Uuid, Option<&str>)> = contents
        .stickies
        .iter()
        .filter(|known| !known.is_deleted)
        .map(|known| (known.id, known.content.name.as_deref()))
        .collect();
    let file_stems = file_names(&file_stems);
    let mut lines = Vec::new();
    let (mut counts, mut relation_counts) = (Counts::default(), Counts::default());
    let board_status = board_line(&mut read, &contents, &files)?;
    lines.push(board_status);
    for one in &compared {
        let file =
            one.file.map_or_else(|| file_stems.get(&one.id).cloned().unwrap_or_default(), |file| file.file.clone());
        lines.push(diff_line(one.difference, one.edited_side, file));
        count(&mut counts, one.difference);
    }
    let (relations, names) = read.compare_relations(&contents, &files.folder, &compared, &earlier)?;
    for one in &relations {
        lines.push(diff_line(one.difference, one.edited_side, one.display_name(&names)));
        count(&mut relation_counts, one.difference);
    }
    let differs = lines.iter().any(|line| line["mark"] != "=");
    let board_status = if lines[0]["mark"] == "=" { "same" } else { "changed" };
    let mut data = outcome_data(counts, board_status, relation_counts, Some(id.uuid()));
    data["lines"] = Value::Array(lines);
    let mut outcome = CommandOutcome::new(data, Layout::BoardDiff);
    outcome.has_failed = differs;
    Ok(outcome)
}

fn count(counts: &mut Counts, difference: Difference) {
    match difference {
        Difference::Same => counts.unchanged += 1,
        Difference::Changed => counts.updated += 1,
        Difference::OnlyInDatabase => counts.created += 1,
        Difference::OnlyInFolder => counts.removed += 1,
    }
}

fn diff_line(difference: Difference, edited_side: EditedSide, what: String) -> Value {
    let edited = match edited_side {
        EditedSide::Neither => None,
        EditedSide::Folder => Some("folder"),
        EditedSide::Database => Some("board"),
        EditedSide::Both => Some("both"),
    };
    json!({ "mark": difference.mark().to_string(), "what": what, "edited": edited })
}

/// The line for the board's own fields.
fn board_line(
    read: &mut trackway_store::Reader<'_>,
    contents: &trackway_store::boards::BoardContents,
    files: &Files,
) -> Result<Value, Failure> {
    let Some(file) = &files.folder.board else {
        return Ok(diff_line(Difference::OnlyInDatabase, EditedSide::Database, BOARD_FILE.to_owned()));
    };
    let present = contents.row.content();
    if file.applied_to(&present)? == present {
        return Ok(diff_line(Difference::Same, EditedSide::Neither, BOARD_FILE.to_owned()));
    }
    let board = &contents.row.board;
    let base = file.edit_count.map(|number| read.board_content_at_edit(board.id, number)).transpose()?.flatten();
    let edited_side = find_edited_side(file.edit_count, board.edit_count, base.as_ref(), |base| file.applied_to(base))?;
    Ok(diff_line(Difference::Changed, edited_side, BOARD_FILE.to_owned()))
}

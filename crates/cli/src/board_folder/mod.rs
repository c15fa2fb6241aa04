//! `trackway board export, import, sync, diff`: a board as a folder of files.

mod files;
mod outward;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use serde_json::{Value, json};
use trackway_actions::board::{SyncBoard, Synced};
use trackway_domain::{
    Error as Rule, Ref,
    board_folder::{BOARD_FILE, RELATIONS_FILE, board_yaml, file_names, relations_yaml, stickie_yaml},
    board_sync::{Counts, Moved, Place, compare_stickies, who_moved},
    kind,
};
use uuid::Uuid;

use self::files::{Files, Relations};
use crate::{
    door::{House, Outcome},
    failure::Failure,
    render::Shape,
};

const VERBS: [&str; 4] = ["export", "import", "sync", "diff"];

/// Whether a verb of `board` is about folders.
pub fn is_about_folders(verb: &str) -> bool {
    VERBS.contains(&verb)
}

/// Adds the commands that read and write folders. `sync` is an action; here its folder is a directory.
pub fn commands(board: Command) -> Command {
    let directory = || {
        Arg::new("dir").value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf)).help("The folder")
    };
    let named = || Arg::new("board").value_name("BOARD").required(true).help("The board, by name or id");
    let force = |help| Arg::new("force").long("force").action(ArgAction::SetTrue).help(help);
    board
        .subcommand(
            Command::new("export")
                .about("Write a board to a folder: a file for each stickie, one for the relations, one for the board")
                .args([named(), directory(), force("Overwrite what was edited in the folder")]),
        )
        .subcommand(
            Command::new("import")
                .about("Bring a folder in: make its board, or change it as the folder was changed")
                .args([directory(), force("Overwrite what was edited on the board"), dry_run()]),
        )
        .subcommand(
            Command::new("diff")
                .about("Compare a board with its folder; exit 1 when they differ")
                .long_about(
                    "Compare a board with its folder; exit 1 when they differ\n\n\
                     = same, ~ changed, + only in the database, - only in the folder",
                )
                .args([named(), directory()]),
        )
        .mut_subcommand("sync", sync_command)
}

fn dry_run() -> Arg {
    Arg::new("dry_run").long("dry-run").action(ArgAction::SetTrue).help("Show what would happen, and change nothing")
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
        .mut_arg("force", |force| force.help("Overwrite what was edited on the other side"))
        .args([
            side("from", "Bring what was edited in this folder to the board"),
            side("to", "Bring what was edited on the board to this folder"),
        ])
        .group(ArgGroup::new("side").args(["from", "to", "folder"]).required(true))
}

pub fn answer(house: &House, verb: &str, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let directory = |name: &str| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
    let board = matches.try_get_one::<Ref<kind::Board>>("board").ok().flatten().cloned();
    let board = board.or_else(|| matches.try_get_one::<String>("board").ok().flatten().map(Ref::new));
    let force = matches.try_get_one::<bool>("force").ok().flatten().copied().unwrap_or_default();
    let dry = matches.try_get_one::<bool>("dry_run").ok().flatten().copied().unwrap_or_default();
    match (verb, board, directory("dir"), directory("from"), directory("to")) {
        ("import", _, Some(from), ..) | ("sync", None, _, Some(from), _) => inward(house, None, &from, force, dry),
        ("sync", Some(board), _, Some(from), _) => inward(house, Some(board), &from, force, dry),
        ("export", Some(board), Some(to), ..) | ("sync", Some(board), _, _, Some(to)) => {
            outward::outward(house, &board, &to, force, dry)
        }
        ("diff", Some(board), Some(with), ..) => diff(house, &board, &with),
        _ => Err(Rule::usage("give a folder: --from DIR or --to DIR").into()),
    }
}

/// From the folder to the board; then what the files did not know yet is written into them.
fn inward(
    house: &House,
    board: Option<Ref<kind::Board>>,
    directory: &Path,
    force: bool,
    dry: bool,
) -> Result<Outcome, Failure> {
    let files = Files::read(directory, Relations::AreRead)?;
    let context = house.context()?;
    let sync = SyncBoard { board, folder: files.folder.clone(), force };
    let synced = if dry { house.core.rehearse(&context, &sync)? } else { house.core.execute(&context, &sync)? };
    let mut remarks = Vec::new();
    if synced.left > 0 {
        remarks
            .push(format!("note: {} newer on the board stays; board sync --to brings it to the folder", synced.left));
    }
    if !dry {
        // The board has it all: what cannot be written here is found again by name, or by what it says.
        if let Err(failure) = write_back(&files, &synced) {
            remarks.push(format!("warning: the board is up to date; its folder is not: {}", failure.message));
        }
    }
    let data = answered(synced.counts, synced.board, synced.relations, Some(synced.id.uuid()));
    let mut outcome = Outcome::new(data, Shape::Fields);
    (outcome.remarks, outcome.dry_run) = (remarks, dry);
    Ok(outcome)
}

fn write_back(files: &Files, synced: &Synced) -> Result<(), Failure> {
    files.remove_leftovers()?;
    // Stickies are named here as they are now, and those that are gone are not.
    if let Some(lines) = synced.lines.as_ref().filter(|lines| files.folder.relations.as_ref() != Some(lines)) {
        files.replace(RELATIONS_FILE, &relations_yaml(lines)?)?;
    }
    for one in &synced.files {
        files.replace(&one.file, &stickie_yaml(one.id.uuid(), &one.content, one.edit_count)?)?;
    }
    let before = files.folder.board.as_ref();
    let seen = synced.synced_at.or_else(|| before.and_then(|board| board.synced_at));
    // Where the board moved on alone, the file stays what it is an edit of.
    let is_older = before.is_some_and(|board| {
        board.edit_count.is_some_and(|number| number < synced.edit_count) && synced.board == "same"
    });
    let text = board_yaml(synced.id.uuid(), &synced.content, synced.edit_count, seen)?;
    if !is_older {
        files.replace(BOARD_FILE, &text)?;
    }
    Ok(())
}

fn answered(counts: Counts, board: &str, relations: Counts, id: Option<Uuid>) -> Value {
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

/// One line for each thing, with its mark.
fn diff(house: &House, board: &Ref<kind::Board>, directory: &Path) -> Result<Outcome, Failure> {
    let files = Files::read(directory, Relations::AreRead)?;
    let mut read = house.reader()?;
    let id = read.resolve(board)?;
    let whole = read.whole_board(id)?;
    read.refuse_foreign(&whole, &files.folder)?;
    let earlier = read.earlier_stickies(&whole, &files.folder)?;
    let compared = compare_stickies(&whole.stickies, &files.folder, &earlier, Uuid::now_v7)?;
    let stems: Vec<(Uuid, Option<&str>)> = whole
        .stickies
        .iter()
        .filter(|known| !known.is_deleted)
        .map(|known| (known.id, known.content.name.as_deref()))
        .collect();
    let stems = file_names(&stems);
    let mut lines = Vec::new();
    let (mut counts, mut of_relations) = (Counts::default(), Counts::default());
    let of_board = board_line(&mut read, &whole, &files)?;
    lines.push(of_board);
    for one in &compared {
        let file = one.file.map_or_else(|| stems.get(&one.id).cloned().unwrap_or_default(), |file| file.file.clone());
        lines.push(line(one.place, one.moved, file));
        count(&mut counts, one.place);
    }
    let (relations, names) = read.compare_relations(&whole, &files.folder, &compared, &earlier)?;
    for one in &relations {
        lines.push(line(one.place, one.moved, one.called(&names)));
        count(&mut of_relations, one.place);
    }
    let differs = lines.iter().any(|line| line["mark"] != "=");
    let of_board = if lines[0]["mark"] == "=" { "same" } else { "changed" };
    let mut data = answered(counts, of_board, of_relations, Some(id.uuid()));
    data["lines"] = Value::Array(lines);
    let mut outcome = Outcome::new(data, Shape::BoardDiff);
    outcome.failed = differs;
    Ok(outcome)
}

fn count(counts: &mut Counts, place: Place) {
    match place {
        Place::Same => counts.unchanged += 1,
        Place::Changed => counts.updated += 1,
        Place::OnlyInDatabase => counts.created += 1,
        Place::OnlyInFolder => counts.removed += 1,
    }
}

fn line(place: Place, moved: Moved, what: String) -> Value {
    let edited = match moved {
        Moved::Neither => None,
        Moved::Folder => Some("folder"),
        Moved::Database => Some("board"),
        Moved::Both => Some("both"),
    };
    json!({ "mark": place.mark().to_string(), "what": what, "edited": edited })
}

/// What is said of the board itself, on both sides.
fn board_line(
    read: &mut trackway_store::Reader<'_>,
    whole: &trackway_store::boards::WholeBoard,
    files: &Files,
) -> Result<Value, Failure> {
    let Some(file) = &files.folder.board else {
        return Ok(line(Place::OnlyInDatabase, Moved::Database, BOARD_FILE.to_owned()));
    };
    let present = whole.shown.content();
    if file.applied_to(&present)? == present {
        return Ok(line(Place::Same, Moved::Neither, BOARD_FILE.to_owned()));
    }
    let board = &whole.shown.board;
    let base = file.edit_count.map(|number| read.earlier_board(board.id, number)).transpose()?.flatten();
    let moved = who_moved(file.edit_count, board.edit_count, base.as_ref(), |base| file.applied_to(base))?;
    Ok(line(Place::Changed, moved, BOARD_FILE.to_owned()))
}

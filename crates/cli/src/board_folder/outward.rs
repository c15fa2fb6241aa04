//! From the board to its folder.

use std::{collections::HashSet, fs, path::Path};

use trackway_domain::{
    Error as Rule, Ref,
    board::BoardContent,
    board_folder::{
        BOARD_FILE, Folder, RELATIONS_FILE, RelationFile, STICKIE_SUFFIX, board_yaml, called, file_names,
        relations_yaml, stickie_yaml,
    },
    board_relations::{ComparedRelation, line},
    board_sync::{Compared, Counts, Moved, Place, compare_stickies, who_moved},
    field, kind, sentence,
};
use trackway_store::boards::WholeBoard;
use uuid::Uuid;

use super::{
    answered,
    files::{Files, Relations},
};
use crate::{
    door::{House, Outcome},
    failure::Failure,
    render::Shape,
};

/// What is to be done to a folder, in this order: a kill in between leaves what the next sync completes.
#[derive(Debug, Default)]
struct Plan {
    steps: Vec<Step>,
    counts: Counts,
    /// Changes of the folder that the board does not have yet.
    left: i64,
}

#[derive(Debug)]
enum Step {
    Write(String, String),
    /// Renames, then writes: a stickie never has two files.
    Move {
        from: String,
        to: String,
        text: String,
    },
    Remove(String),
}

pub(super) fn outward(
    house: &House,
    board: &Ref<kind::Board>,
    directory: &Path,
    force: bool,
    dry: bool,
) -> Result<Outcome, Failure> {
    let read_as = if force { Relations::AreWrittenAnew } else { Relations::AreRead };
    let mut files = if directory.exists() { Files::read(directory, read_as)? } else { Files::none(directory) };
    let mut read = house.reader()?;
    let id = read.resolve(board)?;
    let whole = read.whole_board(id)?;
    read.refuse_foreign(&whole, &files.folder)?;
    let earlier = read.earlier_stickies(&whole, &files.folder)?;
    let compared = compare_stickies(&whole.stickies, &files.folder, &earlier, Uuid::now_v7)?;
    let earlier_board = match files.folder.board.as_ref().and_then(|file| file.edit_count) {
        Some(number) => read.earlier_board(id, number)?,
        None => None,
    };
    let unsaid = Folder { relations: None, ..files.folder.clone() };
    let (relations, names) = match read.compare_relations(&whole, &files.folder, &compared, &earlier) {
        // They are written anew, whatever they say.
        Err(_) if force => read.compare_relations(&whole, &unsaid, &compared, &earlier)?,
        compared => compared?,
    };
    drop(read);

    let mut plan = Plan::default();
    let mut both: Vec<String> = compared.iter().filter(|one| one.moved == Moved::Both).map(Compared::called).collect();
    both.extend(relations.iter().filter(|one| one.moved == Moved::Both).map(|one| one.called(&names)));
    let of_relations = plan_relations(&mut plan, &whole, &files, &relations, force)?;
    plan_stickies(&mut plan, &whole, &compared, force)?;
    let moved = plan_board(&mut plan, &whole, &files, earlier_board.as_ref(), force)?;
    both.extend((moved == Moved::Both).then(|| BOARD_FILE.to_owned()));
    if !both.is_empty() && !force {
        return Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
            .hint(sentence![
                "see board diff; ",
                field!(force),
                " takes the word of the side that is read. Nothing was changed",
            ])
            .into());
    }
    if !dry {
        fs::create_dir_all(directory)?;
        files.remove_leftovers()?;
        for step in &plan.steps {
            match step {
                Step::Write(name, text) => files.replace(name, text)?,
                Step::Remove(name) => files.remove(name)?,
                Step::Move { from, to, text } => {
                    if files.rename(from, to)? {
                        files.replace(to, text)?;
                    }
                }
            }
        }
    }
    let of_board = if moved == Moved::Database { "changed" } else { "same" };
    let mut outcome = Outcome::new(answered(plan.counts, of_board, of_relations, Some(id.uuid())), Shape::Fields);
    outcome.dry_run = dry;
    if plan.left > 0 {
        outcome
            .remarks
            .push(format!("note: {} edited in the folder stays; board sync --from brings it to the board", plan.left));
    }
    Ok(outcome)
}

fn plan_stickies(plan: &mut Plan, whole: &WholeBoard, compared: &[Compared<'_>], force: bool) -> Result<(), Failure> {
    let living: Vec<(Uuid, Option<&str>)> = whole
        .stickies
        .iter()
        .filter(|known| !known.is_deleted)
        .map(|known| (known.id, known.content.name.as_deref()))
        .collect();
    let wanted = file_names(&living);
    let mut taken: HashSet<String> =
        compared.iter().filter_map(|one| one.file.map(|file| file.file.to_lowercase())).collect();
    for one in compared {
        let Some(known) = one.known.filter(|known| !known.is_deleted) else {
            let is_old = one.moved == Moved::Database || (one.moved == Moved::Both && force);
            if let (true, Some(file)) = (is_old, one.file) {
                plan.steps.push(Step::Remove(file.file.clone()));
                plan.counts.removed += 1;
            } else {
                plan.left += 1;
            }
            continue;
        };
        if one.moved == Moved::Folder && one.place == Place::Changed && !force {
            plan.counts.unchanged += 1;
            plan.left += 1;
            continue;
        }
        match one.place {
            Place::Same => plan.counts.unchanged += 1,
            Place::OnlyInDatabase => plan.counts.created += 1,
            _ => plan.counts.updated += 1,
        }
        let text = stickie_yaml(known.id, &known.content, known.edit_count)?;
        let is_named_so = one.said()?.is_some_and(|said| said.name == known.content.name || one.place == Place::Same);
        match one.file {
            Some(file)
                if one.place == Place::Same && file.edit_count == Some(known.edit_count) && file.id.is_some() => {}
            Some(file) if is_named_so => plan.steps.push(Step::Write(file.file.clone(), text)),
            file => {
                let named = wanted.get(&known.id).cloned().unwrap_or_default();
                let by_id = format!("{}{STICKIE_SUFFIX}", known.id);
                let is_its_own = file.is_some_and(|file| file.file == named);
                let to = if is_its_own || taken.insert(named.to_lowercase()) { named } else { by_id };
                plan.steps.push(match file.map(|file| file.file.clone()).filter(|from| *from != to) {
                    Some(from) => Step::Move { from, to, text },
                    None => Step::Write(to, text),
                });
            }
        }
    }
    Ok(())
}

/// Plans `relations.yaml`, the first to be written: stickies are found in it by the names they have on the board. A line
/// that was edited in the folder stays until the board has it.
fn plan_relations(
    plan: &mut Plan,
    whole: &WholeBoard,
    files: &Files,
    relations: &[ComparedRelation<'_>],
    force: bool,
) -> Result<Counts, Failure> {
    let name = |id: Uuid| {
        let stickie = whole.stickies.iter().find(|known| known.id == id && !known.is_deleted)?;
        Some(called(id, stickie.content.name.as_deref()))
    };
    let mut counts = Counts::default();
    let mut lines: Vec<RelationFile> = Vec::new();
    for one in relations {
        let (of_board, edge) = (one.known, one.edge);
        if one.moved == Moved::Folder && !force {
            plan.left += 1;
            counts.unchanged += 1;
            lines.extend(one.line.map(|said| {
                let name = |id, said: &str| name(id).unwrap_or_else(|| said.to_owned());
                let (from, to) = (name(edge.from, &said.from), name(edge.to, &said.to));
                RelationFile { from, to, ..said.clone() }
            }));
            continue;
        }
        match one.place {
            Place::Same => counts.unchanged += 1,
            Place::Changed => counts.updated += 1,
            Place::OnlyInDatabase => counts.created += 1,
            Place::OnlyInFolder => counts.removed += 1,
        }
        let called = |id| name(id).unwrap_or_else(|| Uuid::to_string(&id));
        lines.extend(of_board.map(|known| line(edge, &known.labels, Some(known.edit_count), called)));
    }
    if files.folder.relations.as_ref() != Some(&lines) {
        plan.steps.push(Step::Write(RELATIONS_FILE.to_owned(), relations_yaml(&lines)?));
    }
    Ok(counts)
}

/// Plans `blackboard.yaml`, the last to be written: what the folder has seen is true only then.
fn plan_board(
    plan: &mut Plan,
    whole: &WholeBoard,
    files: &Files,
    earlier: Option<&BoardContent>,
    force: bool,
) -> Result<Moved, Failure> {
    let board = &whole.shown.board;
    let seen = Some(board.changed_at);
    let present = whole.shown.content();
    let Some(file) = &files.folder.board else {
        let text = board_yaml(board.id.uuid(), &present, board.edit_count, seen)?;
        plan.steps.push(Step::Write(BOARD_FILE.to_owned(), text));
        return Ok(Moved::Database);
    };
    let said = file.applied_to(&present)?;
    let moved = if said == present {
        Moved::Neither
    } else {
        who_moved(file.edit_count, board.edit_count, earlier, |base| file.applied_to(base))?
    };
    let (content, edit_count) = match moved {
        Moved::Folder if !force => {
            plan.left += 1;
            (said, file.edit_count.unwrap_or(board.edit_count))
        }
        _ => (present, board.edit_count),
    };
    let text = board_yaml(board.id.uuid(), &content, edit_count, seen)?;
    plan.steps.push(Step::Write(BOARD_FILE.to_owned(), text));
    Ok(moved)
}

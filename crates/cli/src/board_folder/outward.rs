//! From the board to its folder.

use std::{collections::HashSet, fs, path::Path};

use trackway_domain::{
    Error as Rule, Ref, Time,
    board_folder::{
        BOARD_FILE, RELATIONS_FILE, RelationFile, STICKIE_SUFFIX, board_yaml, file_names, relations_yaml, stickie_yaml,
    },
    board_sync::{Compared, Counts, Moved, Place, compare_relations, compare_stickies, names, who_moved},
    kind,
};
use trackway_store::boards::WholeBoard;
use uuid::Uuid;

use super::{answered, files::Files};
use crate::{
    door::{House, Outcome},
    failure::Failure,
    render::Shape,
};

/// What is to be done to a folder, in this order: a kill in between leaves what the next sync completes.
#[derive(Debug, Default)]
struct Plan {
    write: Vec<(String, String)>,
    remove: Vec<String>,
    counts: Counts,
    /// Changes of the folder that the board does not have yet.
    left: i64,
}

pub(super) fn outward(
    house: &House,
    board: &Ref<kind::Board>,
    directory: &Path,
    force: bool,
    dry: bool,
) -> Result<Outcome, Failure> {
    let files = if directory.exists() { Files::read(directory)? } else { Files::none(directory) };
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
    drop(read);

    let mut plan = Plan::default();
    let mut both: Vec<String> = compared.iter().filter(|one| one.moved == Moved::Both).map(Compared::called).collect();
    plan_stickies(&mut plan, &whole, &compared, force)?;
    let (of_relations, all_related) = plan_relations(&mut plan, &whole, &files, &compared, force)?;
    let seen = if all_related {
        Some(whole.shown.board.changed_at)
    } else {
        files.folder.board.as_ref().and_then(|file| file.synced_at)
    };
    let moved = plan_board(&mut plan, &whole, &files, earlier_board.as_ref(), seen, force)?;
    both.extend((moved == Moved::Both).then(|| BOARD_FILE.to_owned()));
    if !both.is_empty() && !force {
        return Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
            .hint("see board diff; --force takes the word of the side that is read. Nothing was changed")
            .into());
    }
    if !dry {
        fs::create_dir_all(directory)?;
        for (name, text) in &plan.write {
            files.replace(name, text)?;
        }
        for name in &plan.remove {
            files.remove(name)?;
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
                plan.remove.push(file.file.clone());
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
            Some(file) if is_named_so => plan.write.push((file.file.clone(), text)),
            file => {
                let named = wanted.get(&known.id).cloned().unwrap_or_default();
                let by_id = format!("{}{STICKIE_SUFFIX}", known.id);
                let name = if taken.insert(named.to_lowercase()) { named } else { by_id };
                plan.remove.extend(file.map(|file| file.file.clone()).filter(|old| *old != name));
                plan.write.push((name, text));
            }
        }
    }
    Ok(())
}

/// Plans `relations.yaml`, and says whether it then has all relations of the board. One that was edited in the folder is
/// left as it is until the board has it.
fn plan_relations(
    plan: &mut Plan,
    whole: &WholeBoard,
    files: &Files,
    compared: &[Compared<'_>],
    force: bool,
) -> Result<(Counts, bool), Failure> {
    let names = names(compared)?;
    let relations = compare_relations(&whole.relations, &files.folder, |name| names.get(name).copied())?;
    let edited = relations.iter().filter(|one| one.moved == Moved::Folder).count();
    let mut counts = Counts::default();
    if edited > 0 && !force {
        plan.left += i64::try_from(edited).unwrap_or(i64::MAX);
        counts.unchanged = i64::try_from(relations.len()).unwrap_or(i64::MAX);
        return Ok((counts, relations.iter().all(|one| one.moved != Moved::Database)));
    }
    for one in &relations {
        match one.place {
            Place::Same => counts.unchanged += 1,
            Place::Changed => counts.updated += 1,
            Place::OnlyInDatabase => counts.created += 1,
            Place::OnlyInFolder => counts.removed += 1,
        }
    }
    let wanted: Vec<RelationFile> = whole.relation_files();
    if files.folder.relations.as_ref() != Some(&wanted) {
        plan.write.push((RELATIONS_FILE.to_owned(), relations_yaml(&wanted)?));
    }
    Ok((counts, true))
}

/// Plans `blackboard.yaml`, the last to be written: what the folder has seen is true only then.
fn plan_board(
    plan: &mut Plan,
    whole: &WholeBoard,
    files: &Files,
    earlier: Option<&trackway_domain::board::BoardContent>,
    seen: Option<Time>,
    force: bool,
) -> Result<Moved, Failure> {
    let board = &whole.shown.board;
    let present = whole.shown.content();
    let Some(file) = &files.folder.board else {
        plan.write.push((BOARD_FILE.to_owned(), board_yaml(board.id.uuid(), &present, board.edit_count, seen)?));
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
    plan.write.push((BOARD_FILE.to_owned(), board_yaml(board.id.uuid(), &content, edit_count, seen)?));
    Ok(moved)
}

//! Writes a board to its folder.

use std::{collections::HashSet, fs, path::Path};

use trackway_domain::{
    Error as Rule, Ref,
    board::BoardContent,
    board_folder::{
        BOARD_FILE, Folder, RELATIONS_FILE, RelationFile, STICKIE_SUFFIX, board_yaml, file_names, relations_yaml,
        stickie_display_name, stickie_yaml,
    },
    board_relations::{ComparedRelation, relation_line},
    board_sync::{ComparedStickie, Counts, Difference, EditedSide, compare_stickies, find_edited_side},
    field, kind, sentence,
};
use trackway_store::boards::BoardContents;
use uuid::Uuid;

use super::{
    files::{Files, RelationsMode},
    outcome_data,
};
use crate::{
    dispatch::{App, CommandOutcome},
    failure::Failure,
    render::Layout,
};

/// The steps of an export, in order. If the process is killed between two steps, the next sync completes the export.
#[derive(Debug, Default)]
struct Plan {
    steps: Vec<Step>,
    counts: Counts,
    /// The number of edits that the export leaves in the folder, because they are not on the board yet.
    kept_changes: i64,
}

#[derive(Debug)]
enum Step {
    Write(String, String),
    /// Rename and then write a file, so that a stickie never has two files.
    Move {
        from: String,
        to: String,
        text: String,
    },
    Remove(String),
}

pub(super) fn export(
    app: &App,
    board: &Ref<kind::Board>,
    directory: &Path,
    force: bool,
    is_dry_run: bool,
) -> Result<CommandOutcome, Failure> {
    let mode = if force { RelationsMode::Overwrite } else { RelationsMode::Read };
    let mut files = if directory.exists() { Files::read(directory, mode)? } else { Files::empty(directory) };
    let mut read = app.reader()?;
    let id = read.resolve(board)?;
    let contents = read.board_contents(id)?;
    read.reject_foreign_ids(&contents, &files.folder)?;
    let earlier = read.stickie_contents_at_edits(&contents, &files.folder)?;
    let compared = compare_stickies(&contents.stickies, &files.folder, &earlier, Uuid::now_v7)?;
    let earlier_board = match files.folder.board.as_ref().and_then(|file| file.edit_count) {
        Some(number) => read.board_content_at_edit(id, number)?,
        None => None,
    };
    let without_relations = Folder { relations: None, ..files.folder.clone() };
    let (relations, names) = match read.compare_relations(&contents, &files.folder, &compared, &earlier) {
        // With --force, invalid relations in the folder are ignored, because the export overwrites them.
        Err(_) if force => read.compare_relations(&contents, &without_relations, &compared, &earlier)?,
        compared => compared?,
    };
    drop(read);

    let mut plan = Plan::default();
    let mut both: Vec<String> =
        compared.iter().filter(|one| one.edited_side == EditedSide::Both).map(ComparedStickie::display_name).collect();
    both.extend(relations.iter().filter(|one| one.edited_side == EditedSide::Both).map(|one| one.display_name(&names)));
    let relation_counts = plan_relations(&mut plan, &contents, &files, &relations, force)?;
    plan_stickies(&mut plan, &contents, &compared, force)?;
    let edited_side = plan_board(&mut plan, &contents, &files, earlier_board.as_ref(), force)?;
    both.extend((edited_side == EditedSide::Both).then(|| BOARD_FILE.to_owned()));
    if !both.is_empty() && !force {
        return Err(Rule::conflict(format!("edited on both sides: {}", both.join(", ")))
            .hint(sentence![
                "see the differences with board diff. To overwrite the edits in the folder: ",
                field!(force),
                ". Nothing was changed",
            ])
            .into());
    }
    if !is_dry_run {
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
    let board_status = if edited_side == EditedSide::Database { "changed" } else { "same" };
    let mut outcome =
        CommandOutcome::new(outcome_data(plan.counts, board_status, relation_counts, Some(id.uuid())), Layout::Fields);
    outcome.is_dry_run = is_dry_run;
    if plan.kept_changes > 0 {
        outcome.remarks.push(format!(
            "note: {} edits in the folder were kept; to bring them to the board: trackway board sync --from DIR",
            plan.kept_changes
        ));
    }
    Ok(outcome)
}

fn plan_stickies(
    plan: &mut Plan,
    contents: &BoardContents,
    compared: &[ComparedStickie<'_>],
    force: bool,
) -> Result<(), Failure> {
    let stickies: Vec<(Uuid, Option<&str>)> = contents
        .stickies
        .iter()
        .filter(|known| !known.is_deleted)
        .map(|known| (known.id, known.content.name.as_deref()))
        .collect();
    let file_names = file_names(&stickies);
    let mut used_names: HashSet<String> =
        compared.iter().filter_map(|one| one.file.map(|file| file.file.to_lowercase())).collect();
    for one in compared {
        let Some(known) = one.known.filter(|known| !known.is_deleted) else {
            let is_outdated = one.edited_side == EditedSide::Database || (one.edited_side == EditedSide::Both && force);
            if let (true, Some(file)) = (is_outdated, one.file) {
                plan.steps.push(Step::Remove(file.file.clone()));
                plan.counts.removed += 1;
            } else {
                plan.kept_changes += 1;
            }
            continue;
        };
        if one.edited_side == EditedSide::Folder && one.difference == Difference::Changed && !force {
            plan.counts.unchanged += 1;
            plan.kept_changes += 1;
            continue;
        }
        match one.difference {
            Difference::Same => plan.counts.unchanged += 1,
            Difference::OnlyInDatabase => plan.counts.created += 1,
            _ => plan.counts.updated += 1,
        }
        let text = stickie_yaml(known.id, &known.content, known.edit_count)?;
        let keeps_file_name = one
            .folder_content()?
            .is_some_and(|content| content.name == known.content.name || one.difference == Difference::Same);
        match one.file {
            Some(file)
                if one.difference == Difference::Same
                    && file.edit_count == Some(known.edit_count)
                    && file.id.is_some() => {}
            Some(file) if keeps_file_name => plan.steps.push(Step::Write(file.file.clone(), text)),
            file => {
                let name = file_names.get(&known.id).cloned().unwrap_or_default();
                let by_id = format!("{}{STICKIE_SUFFIX}", known.id);
                let has_own_name = file.is_some_and(|file| file.file == name);
                let to = if has_own_name || used_names.insert(name.to_lowercase()) { name } else { by_id };
                plan.steps.push(match file.map(|file| file.file.clone()).filter(|from| *from != to) {
                    Some(from) => Step::Move { from, to, text },
                    None => Step::Write(to, text),
                });
            }
        }
    }
    Ok(())
}

/// Plans `relations.yaml`. The export writes this file first, because its lines refer to stickies by their names on the
/// board. A line that was edited in the folder stays until it is imported.
fn plan_relations(
    plan: &mut Plan,
    contents: &BoardContents,
    files: &Files,
    relations: &[ComparedRelation<'_>],
    force: bool,
) -> Result<Counts, Failure> {
    let name = |id: Uuid| {
        let stickie = contents.stickies.iter().find(|known| known.id == id && !known.is_deleted)?;
        Some(stickie_display_name(id, stickie.content.name.as_deref()))
    };
    let mut counts = Counts::default();
    let mut lines: Vec<RelationFile> = Vec::new();
    for one in relations {
        let (known, edge) = (one.known, one.edge);
        if one.edited_side == EditedSide::Folder && !force {
            plan.kept_changes += 1;
            counts.unchanged += 1;
            lines.extend(one.line.map(|line| {
                let name = |id, old: &str| name(id).unwrap_or_else(|| old.to_owned());
                let (from, to) = (name(edge.from, &line.from), name(edge.to, &line.to));
                RelationFile { from, to, ..line.clone() }
            }));
            continue;
        }
        match one.difference {
            Difference::Same => counts.unchanged += 1,
            Difference::Changed => counts.updated += 1,
            Difference::OnlyInDatabase => counts.created += 1,
            Difference::OnlyInFolder => counts.removed += 1,
        }
        let name_or_id = |id| name(id).unwrap_or_else(|| Uuid::to_string(&id));
        lines.extend(known.map(|known| relation_line(edge, &known.labels, Some(known.edit_count), name_or_id)));
    }
    if files.folder.relations.as_ref() != Some(&lines) {
        plan.steps.push(Step::Write(RELATIONS_FILE.to_owned(), relations_yaml(&lines)?));
    }
    Ok(counts)
}

/// Plans `blackboard.yaml`. The export writes this file last, because it records that the folder was synced.
fn plan_board(
    plan: &mut Plan,
    contents: &BoardContents,
    files: &Files,
    earlier: Option<&BoardContent>,
    force: bool,
) -> Result<EditedSide, Failure> {
    let board = &contents.row.board;
    let synced_at = Some(board.changed_at);
    let present = contents.row.content();
    let Some(file) = &files.folder.board else {
        let text = board_yaml(board.id.uuid(), &present, board.edit_count, synced_at)?;
        plan.steps.push(Step::Write(BOARD_FILE.to_owned(), text));
        return Ok(EditedSide::Database);
    };
    let folder_content = file.applied_to(&present)?;
    let edited_side = if folder_content == present {
        EditedSide::Neither
    } else {
        find_edited_side(file.edit_count, board.edit_count, earlier, |base| file.applied_to(base))?
    };
    let (content, edit_count) = match edited_side {
        EditedSide::Folder if !force => {
            plan.kept_changes += 1;
            (folder_content, file.edit_count.unwrap_or(board.edit_count))
        }
        _ => (present, board.edit_count),
    };
    let text = board_yaml(board.id.uuid(), &content, edit_count, synced_at)?;
    plan.steps.push(Step::Write(BOARD_FILE.to_owned(), text));
    Ok(edited_side)
}

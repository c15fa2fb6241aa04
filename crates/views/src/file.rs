//! Recorded files: looks them up by path, compares them with the file on disk, and traces lines to runs.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id,
    enums::ChangeEvidence,
    kind,
    lexical_path::normalize,
    line_trace::{self, LineHashes, TraceMatch},
    spawn::hex,
    text, work_tree,
};
use trackway_store::{Reader, Result, params, registry::Entry};
use uuid::Uuid;

/// Maximum number of changes of a file that are searched for the origin of a line, newest first.
const CHANGES_MAX: i64 = 1_000;

/// A file in the database, and its path on disk.
#[derive(Debug)]
pub struct RecordedFile {
    pub entry: Entry,
    pub path: PathBuf,
}

/// The current text of a line, and the run that wrote it.
#[derive(Debug)]
pub struct TracedLine {
    pub text: String,
    pub writer: Option<(Id<kind::Run>, TraceMatch)>,
}

pub fn is_on_disk(path: &str) -> bool {
    Path::new(path).exists()
}

/// Finds the recorded file for a path, which may be relative to the current directory. Searches the workspace that
/// contains the path, then files outside workspaces. If nothing exists at the path, searches for a recorded file of
/// that name.
pub fn find_by_path(read: &mut Reader<'_>, typed: &str) -> Result<Option<RecordedFile>> {
    let here = env::current_dir().unwrap_or_default();
    let absolute = normalize(&here.join(typed));
    let mut candidates = vec![absolute.clone()];
    candidates.extend(absolute.canonicalize().ok().filter(|real| *real != absolute));
    for candidate in candidates {
        for root in candidate.ancestors().skip(1) {
            let relative = candidate.strip_prefix(root).unwrap_or(&candidate).to_string_lossy().into_owned();
            // A linked git work tree belongs to the workspace of the repository's main work tree.
            let main = main_work_tree(root).unwrap_or_else(|| root.to_path_buf());
            let found = read.one::<(Uuid,)>(
                "select f.id from files f where f.tenant_id = ?1 and f.path_key = ?4 and f.workspace_id in
                 (select id from workspaces where tenant_id = ?1 and directory in (?2, ?3) and deleted_at is null
                  union select workspace_id from sessions where tenant_id = ?1 and root = ?2) limit 1",
                params![
                    root.to_string_lossy().into_owned(),
                    main.to_string_lossy().into_owned(),
                    text::lookup_key(&relative)
                ],
            )?;
            if let Some((id,)) = found {
                return Ok(read.entry_by_id(id)?.map(|entry| RecordedFile { entry, path: candidate.clone() }));
            }
        }
        let outside = read.one::<(Uuid,)>(
            "select id from files where tenant_id = ?1 and path_key = ?2 order by id desc limit 1",
            params![text::lookup_key(&candidate.to_string_lossy())],
        )?;
        if let Some((id,)) = outside {
            return Ok(read.entry_by_id(id)?.map(|entry| RecordedFile { entry, path: candidate.clone() }));
        }
    }
    if absolute.symlink_metadata().is_ok() {
        // The path exists, so the caller does not mean a file of the same name elsewhere.
        return Ok(None);
    }
    // The caller may be in another directory or on another machine and type the recorded path.
    let named = read.entry_by_path(typed)?.filter(|entry| entry.kind == kind::Kind::File);
    Ok(match named {
        Some(entry) => {
            let path = disk_path(read, entry.id)?.unwrap_or(absolute);
            Some(RecordedFile { entry, path })
        }
        None => None,
    })
}

/// The main work tree of the repository, if `root` is a linked git work tree.
fn main_work_tree(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    git.metadata().ok().filter(|file| file.is_file() && file.len() <= work_tree::GIT_FILE_MAX)?;
    work_tree::main_work_tree(root, &fs::read_to_string(git).ok()?)
}

/// The run that last created the file. If no run created the file, the run that last changed it.
pub fn creating_run(read: &mut Reader<'_>, file: Uuid) -> Result<Option<Id<kind::Run>>> {
    let mut newest = |which: &str| {
        read.one::<(Id<kind::Run>,)>(
            &format!(
                "select run_id from file_changes where tenant_id = ?1 and file_id = ?2{which} order by created_at desc limit 1"
            ),
            params![file],
        )
    };
    let made = match newest(" and change = 'create'")? {
        None => newest("")?,
        made => made,
    };
    Ok(made.map(|(run,)| run))
}

/// The newest recorded commit that contains the file, and the run that committed.
pub fn newest_commit(read: &mut Reader<'_>, file: Uuid) -> Result<Option<(Entry, Id<kind::Run>)>> {
    let found = read.one::<(Uuid, Id<kind::Run>)>(
        "select c.id, u.run_id from commit_files f join commits c on c.id = f.commit_id
         join run_resources u on u.tenant_id = ?1 and u.resource_id = c.id
         where f.tenant_id = ?1 and f.file_id = ?2 order by c.created_at desc, u.first_at limit 1",
        params![file],
    )?;
    let Some((commit, run)) = found else { return Ok(None) };
    Ok(read.entry_by_id(commit)?.map(|entry| (entry, run)))
}

/// The expected path of a recorded file on disk. `None` outside workspaces with a directory.
pub fn disk_path(read: &mut Reader<'_>, file: Uuid) -> Result<Option<PathBuf>> {
    let found = read.one::<(Option<String>, String)>(
        "select w.directory, f.path from files f join workspaces w on w.id = f.workspace_id where f.tenant_id = ?1 and f.id = ?2",
        params![file],
    )?;
    Ok(found.and_then(|(directory, path)| Some(Path::new(&directory?).join(path))))
}

/// Whether the file on disk differs from its content after the last recorded change. `None` if that content was not
/// recorded.
pub fn has_unrecorded_change(read: &mut Reader<'_>, file: Uuid, path: &Path) -> Result<Option<bool>> {
    let last = read.one::<(Option<String>,)>(
        "select digest from file_changes where tenant_id = ?1 and file_id = ?2 order by created_at desc limit 1",
        params![file],
    )?;
    let Some(recorded) = last.and_then(|(digest,)| digest) else {
        return Ok(None);
    };
    Ok(match fs::read(path) {
        Ok(content) => Some(hex(&Sha256::digest(&content)) != recorded),
        Err(_) => Some(true),
    })
}

/// Whether the only evidence for a run's change is that the file differed afterwards.
pub fn is_only_observed(read: &mut Reader<'_>, file: Uuid, run: Id<kind::Run>) -> Result<bool> {
    let evidence = read.query::<(ChangeEvidence,)>(
        "select evidence from file_changes where tenant_id = ?1 and file_id = ?2 and run_id = ?3",
        params![file, run],
    )?;
    Ok(!evidence.is_empty() && evidence.iter().all(|(evidence,)| *evidence == ChangeEvidence::Observed))
}

/// Reads a line from disk and finds the run that wrote it.
pub fn trace_line(read: &mut Reader<'_>, found: &RecordedFile, number: usize) -> Result<TracedLine> {
    let content = fs::read(&found.path)
        .map_err(|error| Rule::not_found(format!("{} cannot be read: {error}", found.path.display())))?;
    let content = String::from_utf8_lossy(&content);
    let count = content.lines().count();
    let Some(text) = number.checked_sub(1).and_then(|index| content.lines().nth(index)) else {
        return Err(Rule::usage(format!("{} has {count} lines, not {number}", found.path.display())).into());
    };
    let changes: Vec<(Id<kind::Run>, LineHashes)> = read
        .query::<(Id<kind::Run>, Option<Vec<u8>>)>(
            "select run_id, lines from file_changes where tenant_id = ?1 and file_id = ?2 order by created_at desc, id desc limit ?3",
            params![found.entry.id, CHANGES_MAX],
        )?
        .into_iter()
        .filter_map(|(run, lines)| Some((run, LineHashes::from_bytes(&lines?)?)))
        .collect();
    Ok(TracedLine { text: text.to_owned(), writer: line_trace::trace_line(&content, number, &changes) })
}

/// The commit with this hash or hash prefix. A prefix needs at least 7 digits.
pub fn find_commit(read: &mut Reader<'_>, typed: &str) -> Result<Option<Entry>> {
    let hash = typed.to_ascii_lowercase();
    if !(7..=64).contains(&hash.len()) || !hash.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let found = read.one::<(Uuid,)>(
        "select id from commits where tenant_id = ?1 and ((hash >= ?2 and hash < ?3) or hash = ?4) order by created_at desc limit 1",
        params![hash, format!("{hash}g"), hash[..7]],
    )?;
    found.map_or(Ok(None), |(id,)| read.entry_by_id(id))
}

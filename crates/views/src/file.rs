//! Files as the record knows them: found by the path people type, compared with what is on disk now.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use trackway_domain::{
    Error as Rule, Id, kind,
    line_trace::{self, Fit, Written},
    plain_path::plain,
    spawn::hex,
    text,
    words::ChangeEvidence,
    work_tree,
};
use trackway_store::{Reader, Result, params, registry::Entry};
use uuid::Uuid;

/// Changes of one file that are looked through for a line.
const CHANGES_MAX: i64 = 1_000;

/// A file that runs changed, and where it is on disk.
#[derive(Debug)]
pub struct Found {
    pub entry: Entry,
    pub path: PathBuf,
}

/// A line as it is now, and the run that wrote it.
#[derive(Debug)]
pub struct Traced {
    pub text: String,
    pub writer: Option<(Id<kind::Run>, Fit)>,
}

/// Whether a path, as typed, is there.
pub fn is_on_disk(path: &str) -> bool {
    Path::new(path).exists()
}

/// The file at a path, absolute or from here: of the workspace that holds it, else the only one of that name.
pub fn at(read: &mut Reader<'_>, typed: &str) -> Result<Option<Found>> {
    let here = env::current_dir().unwrap_or_default();
    let whole = plain(&here.join(typed));
    let mut ways = vec![whole.clone()];
    ways.extend(whole.canonicalize().ok().filter(|real| *real != whole));
    for way in ways {
        for top in way.ancestors().skip(1) {
            let below = way.strip_prefix(top).unwrap_or(&way).to_string_lossy().into_owned();
            // A work tree of its own is the workspace of its repository.
            let main = main_work_tree(top).unwrap_or_else(|| top.to_path_buf());
            let found = read.one::<(Uuid,)>(
                "select f.id from files f where f.tenant_id = ?1 and f.path_key = ?4 and f.workspace_id in
                 (select id from workspaces where tenant_id = ?1 and directory in (?2, ?3) and deleted_at is null
                  union select workspace_id from sessions where tenant_id = ?1 and root = ?2) limit 1",
                params![top.to_string_lossy().into_owned(), main.to_string_lossy().into_owned(), text::key(&below)],
            )?;
            if let Some((id,)) = found {
                return Ok(read.entry(id)?.map(|entry| Found { entry, path: way.clone() }));
            }
        }
        let outside = read.one::<(Uuid,)>(
            "select id from files where tenant_id = ?1 and path_key = ?2 order by id desc limit 1",
            params![text::key(&way.to_string_lossy())],
        )?;
        if let Some((id,)) = outside {
            return Ok(read.entry(id)?.map(|entry| Found { entry, path: way.clone() }));
        }
    }
    if whole.symlink_metadata().is_ok() {
        // What stands there is meant, and not what has the same name elsewhere.
        return Ok(None);
    }
    // From elsewhere: by the name the record has for it.
    let named = read.entry_at(typed)?.filter(|entry| entry.kind == kind::Kind::File);
    Ok(match named {
        Some(entry) => {
            let path = on_disk(read, entry.id)?.unwrap_or(whole);
            Some(Found { entry, path })
        }
        None => None,
    })
}

/// The main work tree of the repository that a work tree of its own belongs to.
fn main_work_tree(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    git.metadata().ok().filter(|file| file.is_file() && file.len() <= work_tree::GIT_FILE_MAX)?;
    work_tree::main(top, &fs::read_to_string(git).ok()?)
}

/// The run that made a file: the one that created it last, else the one that changed it last, since it was there before.
pub fn maker(read: &mut Reader<'_>, file: Uuid) -> Result<Option<Id<kind::Run>>> {
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

/// The newest commit with a file in it that a run made, and that run.
pub fn committed_in(read: &mut Reader<'_>, file: Uuid) -> Result<Option<(Entry, Id<kind::Run>)>> {
    let found = read.one::<(Uuid, Id<kind::Run>)>(
        "select c.id, u.run_id from commit_files f join commits c on c.id = f.commit_id
         join run_resources u on u.tenant_id = ?1 and u.resource_id = c.id
         where f.tenant_id = ?1 and f.file_id = ?2 order by c.created_at desc, u.first_at limit 1",
        params![file],
    )?;
    let Some((commit, run)) = found else { return Ok(None) };
    Ok(read.entry(commit)?.map(|entry| (entry, run)))
}

/// Where a file of the record should be.
pub fn on_disk(read: &mut Reader<'_>, file: Uuid) -> Result<Option<PathBuf>> {
    let found = read.one::<(Option<String>, String)>(
        "select w.directory, f.path from files f join workspaces w on w.id = f.workspace_id where f.tenant_id = ?1 and f.id = ?2",
        params![file],
    )?;
    Ok(found.and_then(|(directory, path)| Some(Path::new(&directory?).join(path))))
}

/// Whether the file differs from what its last recorded change left.
pub fn changed_since(read: &mut Reader<'_>, file: Uuid, path: &Path) -> Result<Option<bool>> {
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

/// Whether all that is known of a run's change is that the file differed afterwards.
pub fn is_observed(read: &mut Reader<'_>, file: Uuid, run: Id<kind::Run>) -> Result<bool> {
    let told = read.query::<(ChangeEvidence,)>(
        "select evidence from file_changes where tenant_id = ?1 and file_id = ?2 and run_id = ?3",
        params![file, run],
    )?;
    Ok(!told.is_empty() && told.iter().all(|(evidence,)| *evidence == ChangeEvidence::Observed))
}

/// The text of a line as it is now, and the run that wrote it.
pub fn writer(read: &mut Reader<'_>, found: &Found, number: usize) -> Result<Traced> {
    let content = fs::read(&found.path)
        .map_err(|error| Rule::not_found(format!("{} cannot be read: {error}", found.path.display())))?;
    let content = String::from_utf8_lossy(&content);
    let count = content.lines().count();
    let Some(text) = number.checked_sub(1).and_then(|index| content.lines().nth(index)) else {
        return Err(Rule::usage(format!("{} has {count} lines, not {number}", found.path.display())).into());
    };
    let changes: Vec<(Id<kind::Run>, Written)> = read
        .query::<(Id<kind::Run>, Option<Vec<u8>>)>(
            "select run_id, lines from file_changes where tenant_id = ?1 and file_id = ?2 order by created_at desc, id desc limit ?3",
            params![found.entry.id, CHANGES_MAX],
        )?
        .into_iter()
        .filter_map(|(run, lines)| Some((run, Written::from_bytes(&lines?)?)))
        .collect();
    Ok(Traced { text: text.to_owned(), writer: line_trace::trace(&content, number, &changes) })
}

/// The commit whose hash begins as typed.
pub fn commit(read: &mut Reader<'_>, typed: &str) -> Result<Option<Entry>> {
    let hash = typed.to_ascii_lowercase();
    if !(7..=64).contains(&hash.len()) || !hash.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let found = read.one::<(Uuid,)>(
        "select id from commits where tenant_id = ?1 and ((hash >= ?2 and hash < ?3) or hash = ?4) order by created_at desc limit 1",
        params![hash, format!("{hash}g"), hash[..7]],
    )?;
    found.map_or(Ok(None), |(id,)| read.entry(id))
}

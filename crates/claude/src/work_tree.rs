//! Where work happens on disk: the top of a work tree, and what git knows of it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

use trackway_domain::{Time, observed::CommitFacts};

use crate::{redact::redacted, tool::commits_in_words};

/// Commits looked at in one go.
const COMMITS_MAX: &str = "--max-count=100";

/// Where a directory is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The top of its work tree; files are named from here.
    pub root: Option<String>,
    /// The top of the repository's main work tree: worktrees of one repository are one workspace.
    pub workspace: Option<String>,
}

static FOUND: LazyLock<Mutex<HashMap<String, Place>>> = LazyLock::new(Mutex::default);

/// Finds the work tree around a directory without asking git; outside one, the directory itself.
pub fn find(cwd: &str) -> Place {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = found.get(cwd) {
        return place.clone();
    }
    let place = look(Path::new(cwd));
    found.insert(cwd.to_owned(), place.clone());
    place
}

fn look(cwd: &Path) -> Place {
    let whole = |path: &Path| Some(path.to_string_lossy().into_owned());
    for directory in cwd.ancestors() {
        let git = directory.join(".git");
        let Ok(kind) = git.symlink_metadata() else { continue };
        let main = if kind.is_file() { main_work_tree(&git) } else { None };
        return Place { root: whole(directory), workspace: whole(main.as_deref().unwrap_or(directory)) };
    }
    Place { root: whole(cwd), workspace: whole(cwd) }
}

/// The main work tree of the repository that a `.git` file points into.
fn main_work_tree(git: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(git).ok()?;
    let folder = git.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    let common = fs::read_to_string(folder.join("commondir")).ok()?;
    let common = folder.join(common.trim()).canonicalize().ok()?;
    (common.file_name()? == ".git").then(|| common.parent().map(Path::to_path_buf))?
}

/// The commit that HEAD is at, read from the files of the repository.
pub fn head(root: &str) -> Option<String> {
    let git = Path::new(root).join(".git");
    let folder = match fs::read_to_string(&git) {
        Ok(text) => git.parent()?.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = fs::read_to_string(folder.join("HEAD")).ok()?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    let common = fs::read_to_string(folder.join("commondir"))
        .map_or_else(|_| folder.clone(), |common| folder.join(common.trim()));
    let loose = fs::read_to_string(common.join(name)).ok().map(|hash| hash.trim().to_owned());
    loose.or_else(|| {
        let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
        packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned))
    })
}

/// What git prints; nothing where there is no git, no repository or no such commit.
fn git(root: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-C", root, "-c", "core.quotePath=false"])
        .args(arguments)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Commits with their files, oldest first: `range` as `git log` takes it.
pub fn commits(root: &str, range: &[&str]) -> Vec<CommitFacts> {
    let format = "--format=%x01%H%x02%an%x02%aI%x02%s%x02";
    let mut arguments = vec!["log", "--reverse", "--name-status", "-M", COMMITS_MAX, format];
    arguments.extend_from_slice(range);
    arguments.push("--");
    git(root, &arguments).map(|log| log.split('\u{1}').filter_map(commit).collect()).unwrap_or_default()
}

fn commit(entry: &str) -> Option<CommitFacts> {
    let mut fields = entry.split('\u{2}');
    let (hash, author, date, subject, files) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let files = files.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        match (parts.next()?.chars().next()?, parts.next()?, parts.next()) {
            ('R', old, Some(new)) => Some((new.to_owned(), Some(old.to_owned()))),
            (_, path, _) => Some((path.to_owned(), None)),
        }
    });
    Some(CommitFacts {
        hash: hash.to_owned(),
        author: Some(author.to_owned()),
        subject: Some(redacted(subject).into_owned()),
        committed_at: date.parse::<Time>().ok(),
        files: files.collect(),
    })
}

/// The commits that `git commit` says it made, whole where the repository still has them.
pub fn commits_said(cwd: Option<&str>, stdout: &str) -> Vec<CommitFacts> {
    let root = cwd.and_then(|cwd| find(cwd).root).filter(|root| Path::new(root).join(".git").exists());
    commits_in_words(stdout)
        .map(|(hash, subject)| {
            let known = root.as_deref().and_then(|root| commits(root, &["-1", hash]).pop());
            known.unwrap_or_else(|| CommitFacts {
                hash: hash.to_owned(),
                author: None,
                subject: Some(redacted(subject).into_owned()),
                committed_at: None,
                files: Vec::new(),
            })
        })
        .collect()
}

/// Files of the work tree that differ from the last commit and changed in this time, and whether they are new.
pub fn changed_between(root: &str, since: Time, until: Time) -> Vec<(String, bool)> {
    let Some(status) = git(root, &["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]) else {
        return Vec::new();
    };
    let changed = |path: &str| {
        let changed = Path::new(root).join(path).metadata().and_then(|file| file.modified()).ok();
        let micros = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        micros.is_some_and(|age| {
            i64::try_from(age.as_micros()).is_ok_and(|micros| (since.micros()..=until.micros()).contains(&micros))
        })
    };
    status
        .split('\0')
        .filter_map(|entry| entry.split_at_checked(3))
        .filter(|(_, path)| changed(path))
        .map(|(mark, path)| (path.to_owned(), mark.starts_with("??") || mark.starts_with('A')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_outside_any_repository_is_its_own_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        assert_eq!(find(&path), Place { root: Some(path.clone()), workspace: Some(path) });
        assert_eq!(find("/no/such/place").root.as_deref(), Some("/no/such/place"));
    }

    #[test]
    fn worktrees_of_a_repository_are_one_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let (main, other) = (top.join("main"), top.join("other"));
        fs::create_dir_all(main.join("src")).unwrap();
        let main_text = main.to_string_lossy().into_owned();
        let run = |arguments: &[&str]| git(&main_text, arguments).expect("git works");
        run(&["init", "-q", "-b", "trunk"]);
        run(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first one"]);
        run(&["worktree", "add", "-q", &other.to_string_lossy()]);
        let inside = find(&other.to_string_lossy());
        assert_eq!(inside.root, Some(other.to_string_lossy().into_owned()));
        assert_eq!(inside.workspace.as_deref(), Some(main_text.as_str()));
        assert_eq!(find(&main.join("src").to_string_lossy()).root.as_deref(), Some(main_text.as_str()));
        let hash = run(&["rev-parse", "HEAD"]).trim().to_owned();
        assert_eq!(head(&main_text), Some(hash.clone()));
        assert_eq!(head(&other.to_string_lossy()), Some(hash.clone()));
        let log = commits(&main_text, &["-1"]);
        assert_eq!((log[0].hash.as_str(), log[0].subject.as_deref()), (hash.as_str(), Some("first one")));
        let said = commits_said(Some(&main_text), &format!("[trunk {}] first one", &hash[..8]));
        assert_eq!(said[0].hash, hash);
        assert_eq!(commits_said(None, "[trunk 1234567] gone")[0].hash, "1234567");
    }
}

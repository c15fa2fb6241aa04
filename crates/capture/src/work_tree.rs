//! Where work happens on disk: the top of a work tree, and what git knows of it.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use trackway_domain::{
    Time,
    observed::{CommitFacts, Fact, Place},
    plain_path::plain,
    words::{CommitEvidence, FileChange},
    work_tree,
};

use crate::redact::redacted;

/// Commits looked at in one go.
const COMMITS_MAX: &str = "--max-count=100";

/// Bytes in a path that a system takes.
const PATH_MAX: usize = 4_096;
/// How long git is waited for.
const GIT_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that git may say.
const GIT_SAYS_MAX: u64 = 16 << 20;

/// Where a fact was seen: a file is of the work tree it stands in, a commit of the one it was made in.
///
/// `agent_trees` is the folder, below the top of a work tree, in which the client creates work trees for its agents.
pub fn place_of(cwd: Option<&str>, agent_trees: Option<&str>, fact: &Fact) -> Option<Place> {
    let here = || cwd.map(|cwd| find(cwd, agent_trees));
    match fact {
        Fact::File(file) => {
            let whole = plain(&Path::new(cwd.unwrap_or_default()).join(&file.path));
            let around =
                whole.parent().map(|folder| look(folder, agent_trees)).filter(|place| place.workspace.is_some());
            around.map(|place| Place { cwd: cwd.map(Into::into), ..place }).or_else(here)
        }
        Fact::Commit(_) => here(),
        _ => None,
    }
}

/// Finds the work tree around a directory without asking git; outside one, the directory itself.
pub fn find(cwd: &str, agent_trees: Option<&str>) -> Place {
    Place { cwd: Some(cwd.to_owned()), ..look(Path::new(cwd), agent_trees) }
}

fn look(cwd: &Path, agent_trees: Option<&str>) -> Place {
    let whole = |path: &Path| Some(path.to_string_lossy().into_owned());
    // Anything may stand in an event: what is no directory is not looked for.
    let is_path = cwd.is_absolute() && cwd.as_os_str().len() <= PATH_MAX;
    for directory in cwd.ancestors().take_while(|_| is_path) {
        let git = directory.join(".git");
        let Ok(kind) = git.symlink_metadata() else { continue };
        let main = if kind.is_file() { main_work_tree(&git) } else { None };
        let removed = agent_trees.and_then(|trees| removed_work_tree(&directory.join(trees), cwd));
        let root = removed.unwrap_or_else(|| directory.to_path_buf());
        return Place { cwd: None, root: whole(&root), workspace: whole(main.as_deref().unwrap_or(directory)) };
    }
    Place { cwd: None, root: whole(cwd), workspace: None }
}

/// The work tree that the client created in this folder for an agent, and removed when the agent was done.
fn removed_work_tree(trees: &Path, cwd: &Path) -> Option<PathBuf> {
    let tree = trees.join(cwd.strip_prefix(trees).ok()?.components().next()?);
    (!tree.exists()).then_some(tree)
}

/// The main work tree of the repository that a `.git` file points into.
fn main_work_tree(git: &Path) -> Option<PathBuf> {
    let main = work_tree::main(git.parent()?, &small_file(git)?)?;
    Some(main.canonicalize().unwrap_or(main))
}

/// Where git keeps what it knows of a work tree.
pub fn git_folder(root: &str) -> Option<PathBuf> {
    let git = Path::new(root).join(".git");
    match small_file(&git) {
        Some(text) => Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim())),
        None => git.is_dir().then_some(git),
    }
}

/// Where git keeps what all work trees of a repository share.
fn common_folder(folder: &Path) -> PathBuf {
    small_file(&folder.join("commondir")).map_or_else(|| folder.to_path_buf(), |common| folder.join(common.trim()))
}

/// When git wrote a commit down. Its own dates are whole seconds; the file of a commit, as long as it has one of its own,
/// tells more.
pub fn written_at(root: &str, hash: &str) -> Option<Time> {
    let (folder, name) = hash.split_at_checked(2)?;
    modified(&common_folder(&git_folder(root)?).join("objects").join(folder).join(name))
}

/// When a file was last written to.
fn modified(path: &Path) -> Option<Time> {
    let at = path.symlink_metadata().and_then(|file| file.modified()).ok()?;
    let age = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(age.as_micros()).ok().map(Time::from_micros)
}

/// The commit that HEAD is at, read from the files of the repository.
pub fn head(root: &str) -> Option<String> {
    let folder = git_folder(root)?;
    let head = small_file(&folder.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return is_hash(head.trim()).then(|| head.trim().to_owned());
    };
    if !name.starts_with("refs/") || name.contains("..") {
        return None;
    }
    let common = common_folder(&folder);
    let loose = small_file(&common.join(name)).map(|hash| hash.trim().to_owned());
    let packed = || {
        let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
        packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned))
    };
    // What stands there is someone else's text until it is known to be a hash.
    loose.or_else(packed).filter(|hash| is_hash(hash))
}

pub fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.chars().all(|digit| digit.is_ascii_hexdigit())
}

/// The text of a small ordinary file: nothing that never ends, and nothing large.
fn small_file(path: &Path) -> Option<String> {
    path.metadata().ok().filter(|file| file.is_file() && file.len() <= work_tree::GIT_FILE_MAX)?;
    fs::read_to_string(path).ok()
}

/// What git prints; nothing where there is no git, no repository or no such commit.
///
/// A repository is not trusted: nothing that its configuration names is run, and it is waited for a few seconds only.
fn git(root: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command
        .args([
            "-C",
            root,
            "-c",
            "core.quotePath=false",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ])
        .args(["-c", "log.showSignature=false", "-c", "core.pager=cat"])
        .args(arguments)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for name in
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF"]
    {
        command.env_remove(name);
    }
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let read = (&mut stdout).take(GIT_SAYS_MAX).read_to_end(&mut text);
        read.ok().map(|_| text)
    });
    let deadline = Instant::now() + GIT_PATIENCE;
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let text = reader.join().ok()??;
    status.success().then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Commits with their files, oldest first: `range` as `git log` takes it.
pub fn commits(root: &str, range: &[&str]) -> Vec<CommitFacts> {
    let format = "--format=%x01%H%x02%an%x02%cI%x02%s%x02";
    let mut arguments = vec!["log", "--reverse", "--name-status", "-M", COMMITS_MAX, format];
    arguments.extend_from_slice(range);
    arguments.push("--");
    git(root, &arguments).map(|log| log.split('\u{1}').filter_map(commit).collect()).unwrap_or_default()
}

fn commit(entry: &str) -> Option<CommitFacts> {
    let mut fields = entry.split('\u{2}');
    let (hash, author, date, subject, files) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let kept = |path: &str| redacted(path).into_owned();
    let files = files.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        match (parts.next()?.chars().next()?, parts.next()?, parts.next()) {
            ('R', old, Some(new)) => Some((kept(new), Some(kept(old)))),
            (_, path, _) => Some((kept(path), None)),
        }
    });
    Some(CommitFacts {
        hash: hash.to_owned(),
        evidence: CommitEvidence::Found,
        author: Some(redacted(author).into_owned()),
        subject: Some(redacted(subject).into_owned()),
        committed_at: date.parse::<Time>().ok(),
        files: files.collect(),
    })
}

/// Files of the work tree that differ from the last commit and changed in this time.
pub fn changed_between(root: &str, since: Time, until: Time) -> Vec<(String, FileChange)> {
    let Some(status) = git(root, &["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]) else {
        return Vec::new();
    };
    let changed = |path: &Path| modified(path).is_some_and(|at| (since..=until).contains(&at));
    let entry = |entry: &str| {
        let (mark, path) = entry.split_at_checked(3)?;
        let whole = Path::new(root).join(path);
        let change = match mark.trim() {
            "D" => FileChange::Delete,
            "??" | "A" => FileChange::Create,
            _ => FileChange::Update,
        };
        // Of a file that is gone, the folder tells when.
        let happened = if change == FileChange::Delete { changed(whole.parent()?) } else { changed(&whole) };
        happened.then(|| (path.to_owned(), change))
    };
    status.split('\0').filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_outside_any_repository_is_its_own_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        assert_eq!(find(&path, None), Place { cwd: Some(path.clone()), root: Some(path), workspace: None });
        assert_eq!(find("/no/such/place", None).root.as_deref(), Some("/no/such/place"));
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
        let inside = find(&other.to_string_lossy(), None);
        assert_eq!(inside.root, Some(other.to_string_lossy().into_owned()));
        assert_eq!(inside.workspace.as_deref(), Some(main_text.as_str()));
        assert_eq!(find(&main.join("src").to_string_lossy(), None).root.as_deref(), Some(main_text.as_str()));
        let hash = run(&["rev-parse", "HEAD"]).trim().to_owned();
        assert_eq!(head(&main_text), Some(hash.clone()));
        assert_eq!(head(&other.to_string_lossy()), Some(hash.clone()));
        let log = commits(&main_text, &["-1"]);
        assert_eq!((log[0].hash.as_str(), log[0].subject.as_deref()), (hash.as_str(), Some("first one")));
    }

    #[test]
    fn secrets_in_the_names_of_files_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_string_lossy().into_owned();
        let run = |arguments: &[&str]| {
            git(&root, &[&["-c", "user.name=a", "-c", "user.email=a@b"], arguments].concat()).expect("git works")
        };
        let secret = format!("ghp_{}", "a1".repeat(18));
        run(&["init", "-q", "-b", "trunk"]);
        fs::write(folder.path().join(format!("{secret}.txt")), "text").unwrap();
        run(&["add", "."]);
        run(&["commit", "-q", "-m", "made"]);
        run(&["mv", &format!("{secret}.txt"), "plain.txt"]);
        run(&["commit", "-q", "-m", "moved"]);
        let files: Vec<_> = commits(&root, &["-2"]).into_iter().map(|commit| commit.files).collect();
        let hidden = "[redacted].txt".to_owned();
        assert_eq!(files, [vec![(hidden.clone(), None)], vec![("plain.txt".to_owned(), Some(hidden))]]);
    }
}

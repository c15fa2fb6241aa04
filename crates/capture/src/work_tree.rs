//! Work trees on disk: their roots, and queries to git about them.

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
    enums::{CommitEvidence, FileChange},
    lexical_path::normalize,
    observed::{CommitFacts, Fact, Location},
    work_tree,
};

use crate::redact::redacted;

/// Limits the commits of one query.
const COMMITS_MAX: &str = "--max-count=100";

/// Maximum number of bytes of a path that operating systems accept.
const PATH_MAX: usize = 4_096;
/// The timeout for git.
const GIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes of git's output that are read.
const GIT_OUTPUT_MAX: u64 = 16 << 20;

/// The location of a fact. For a file, it is the work tree that contains the file; for a commit, the work tree of
/// `cwd`.
///
/// `agent_trees` is the folder in which the client creates work trees for its agents, relative to the root of a work
/// tree.
pub fn locate_fact(cwd: Option<&str>, agent_trees: Option<&str>, fact: &Fact) -> Option<Location> {
    let here = || cwd.map(|cwd| locate(cwd, agent_trees));
    match fact {
        Fact::File(file) => {
            let absolute = normalize(&Path::new(cwd.unwrap_or_default()).join(&file.path));
            let containing = absolute
                .parent()
                .map(|folder| locate_without_cwd(folder, agent_trees))
                .filter(|location| location.workspace.is_some());
            containing.map(|location| Location { cwd: cwd.map(Into::into), ..location }).or_else(here)
        }
        Fact::Commit(_) => here(),
        _ => None,
    }
}

/// Finds the work tree that contains a directory, without running git. Outside a work tree, the root is the directory
/// itself.
pub fn locate(cwd: &str, agent_trees: Option<&str>) -> Location {
    Location { cwd: Some(cwd.to_owned()), ..locate_without_cwd(Path::new(cwd), agent_trees) }
}

fn locate_without_cwd(cwd: &Path, agent_trees: Option<&str>) -> Location {
    let text = |path: &Path| Some(path.to_string_lossy().into_owned());
    // An event may contain any text here. Search only from texts that can be directories.
    let is_path = cwd.is_absolute() && cwd.as_os_str().len() <= PATH_MAX;
    for directory in cwd.ancestors().take_while(|_| is_path) {
        let git = directory.join(".git");
        let Ok(kind) = git.symlink_metadata() else { continue };
        let main = if kind.is_file() { main_work_tree(&git) } else { None };
        let removed = agent_trees.and_then(|trees| removed_work_tree(&directory.join(trees), cwd));
        let root = removed.unwrap_or_else(|| directory.to_path_buf());
        return Location { cwd: None, root: text(&root), workspace: text(main.as_deref().unwrap_or(directory)) };
    }
    Location { cwd: None, root: text(cwd), workspace: None }
}

/// The root of a removed work tree in the folder `trees`, where the client creates work trees for its agents.
fn removed_work_tree(trees: &Path, cwd: &Path) -> Option<PathBuf> {
    let tree = trees.join(cwd.strip_prefix(trees).ok()?.components().next()?);
    (!tree.exists()).then_some(tree)
}

/// The main work tree of the repository that a `.git` file refers to.
fn main_work_tree(git: &Path) -> Option<PathBuf> {
    let main = work_tree::main_work_tree(git.parent()?, &small_file(git)?)?;
    Some(main.canonicalize().unwrap_or(main))
}

/// The git directory of a work tree.
pub fn git_dir(root: &str) -> Option<PathBuf> {
    let git = Path::new(root).join(".git");
    match small_file(&git) {
        Some(text) => Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim())),
        None => git.is_dir().then_some(git),
    }
}

/// The git directory that all work trees of a repository share.
fn common_dir(folder: &Path) -> PathBuf {
    small_file(&folder.join("commondir")).map_or_else(|| folder.to_path_buf(), |common| folder.join(common.trim()))
}

/// The time at which git wrote a commit, from the object file. It is more precise than the dates in the commit, which
/// are whole seconds. None if the commit has no file of its own, because git packed it.
pub fn written_at(root: &str, hash: &str) -> Option<Time> {
    let (folder, name) = hash.split_at_checked(2)?;
    modified_at(&common_dir(&git_dir(root)?).join("objects").join(folder).join(name))
}

/// The time at which a file was last written. Does not follow links.
fn modified_at(path: &Path) -> Option<Time> {
    let at = path.symlink_metadata().and_then(|file| file.modified()).ok()?;
    let age = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(age.as_micros()).ok().map(Time::from_micros)
}

/// The commit at HEAD, read from the files of the repository.
pub fn head(root: &str) -> Option<String> {
    let folder = git_dir(root)?;
    let head = small_file(&folder.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return is_hash(head.trim()).then(|| head.trim().to_owned());
    };
    if !name.starts_with("refs/") || name.contains("..") {
        return None;
    }
    let common = common_dir(&folder);
    let loose = small_file(&common.join(name)).map(|hash| hash.trim().to_owned());
    let packed = || {
        let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
        packed.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_owned))
    };
    // The files may contain any text, so check that it is a hash.
    loose.or_else(packed).filter(|hash| is_hash(hash))
}

pub fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.chars().all(|digit| digit.is_ascii_hexdigit())
}

/// The text of a small regular file. Pipes and devices could block forever, and large files are not git's.
fn small_file(path: &Path) -> Option<String> {
    path.metadata().ok().filter(|file| file.is_file() && file.len() <= work_tree::GIT_FILE_MAX)?;
    fs::read_to_string(path).ok()
}

/// Runs git and returns its output. None if there is no git, no repository or no such commit.
///
/// The repository is not trusted: git runs no program that its configuration names, and has a timeout.
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
        let read = (&mut stdout).take(GIT_OUTPUT_MAX).read_to_end(&mut text);
        read.ok().map(|_| text)
    });
    let deadline = Instant::now() + GIT_TIMEOUT;
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

/// The commits in a range for `git log`, with their files, oldest first.
pub fn commits(root: &str, range: &[&str]) -> Vec<CommitFacts> {
    let format = "--format=%x01%H%x02%an%x02%cI%x02%s%x02";
    let mut arguments = vec!["log", "--reverse", "--name-status", "-M", COMMITS_MAX, format];
    arguments.extend_from_slice(range);
    arguments.push("--");
    git(root, &arguments).map(|log| log.split('\u{1}').filter_map(parse_commit).collect()).unwrap_or_default()
}

fn parse_commit(entry: &str) -> Option<CommitFacts> {
    let mut fields = entry.split('\u{2}');
    let (hash, author, date, subject, files) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let safe = |path: &str| redacted(path).into_owned();
    let files = files.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        match (parts.next()?.chars().next()?, parts.next()?, parts.next()) {
            ('R', old, Some(new)) => Some((safe(new), Some(safe(old)))),
            (_, path, _) => Some((safe(path), None)),
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

/// Files of the work tree that differ from the last commit and changed in this period.
pub fn changed_between(root: &str, since: Time, until: Time) -> Vec<(String, FileChange)> {
    let Some(status) = git(root, &["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]) else {
        return Vec::new();
    };
    let is_changed = |path: &Path| modified_at(path).is_some_and(|at| (since..=until).contains(&at));
    let entry = |entry: &str| {
        let (status, path) = entry.split_at_checked(3)?;
        let absolute = Path::new(root).join(path);
        let change = match status.trim() {
            "D" => FileChange::Delete,
            "??" | "A" => FileChange::Create,
            _ => FileChange::Update,
        };
        // For a deleted file, the time of its folder shows when it was deleted.
        let is_in_period =
            if change == FileChange::Delete { is_changed(absolute.parent()?) } else { is_changed(&absolute) };
        is_in_period.then(|| (path.to_owned(), change))
    };
    status.split('\0').filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_outside_a_repository_is_its_own_root() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        assert_eq!(locate(&path, None), Location { cwd: Some(path.clone()), root: Some(path), workspace: None });
        assert_eq!(locate("/no/such/place", None).root.as_deref(), Some("/no/such/place"));
    }

    #[test]
    fn work_trees_of_a_repository_are_one_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let (main, other) = (top.join("main"), top.join("other"));
        fs::create_dir_all(main.join("src")).unwrap();
        let main_text = main.to_string_lossy().into_owned();
        let run = |arguments: &[&str]| git(&main_text, arguments).expect("git works");
        run(&["init", "-q", "-b", "trunk"]);
        run(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first one"]);
        run(&["worktree", "add", "-q", &other.to_string_lossy()]);
        let inside = locate(&other.to_string_lossy(), None);
        assert_eq!(inside.root, Some(other.to_string_lossy().into_owned()));
        assert_eq!(inside.workspace.as_deref(), Some(main_text.as_str()));
        assert_eq!(locate(&main.join("src").to_string_lossy(), None).root.as_deref(), Some(main_text.as_str()));
        let hash = run(&["rev-parse", "HEAD"]).trim().to_owned();
        assert_eq!(head(&main_text), Some(hash.clone()));
        assert_eq!(head(&other.to_string_lossy()), Some(hash.clone()));
        let log = commits(&main_text, &["-1"]);
        assert_eq!((log[0].hash.as_str(), log[0].subject.as_deref()), (hash.as_str(), Some("first one")));
    }

    #[test]
    fn secrets_in_file_names_are_redacted() {
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

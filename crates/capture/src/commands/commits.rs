//! The commits that a command in a transcript made: by what it printed, and by the log that git keeps of HEAD.
//!
//! A hook looks at HEAD after every command; who reads a transcript comes later. Git's own log still tells each move of
//! HEAD in that work tree, and when.

use std::fs;

use trackway_domain::{Time, observed::CommitFacts, words::CommitEvidence};

use super::{is_keyword, simple_commands};
use crate::{
    redact::redacted,
    work_tree::{commits, find, git_folder, is_hash, written_at},
};

/// Bytes of a log that is read.
const LOG_MAX: u64 = 16 << 20;
/// Moves that one command is asked about.
const MOVES_MAX: usize = 100;
const SECOND: i64 = 1_000_000;

/// A command that ended.
#[derive(Debug)]
pub struct Ran<'a> {
    pub cwd: Option<&'a str>,
    pub command: &'a str,
    pub printed: &'a str,
    pub since: Time,
    pub until: Time,
}

impl Ran<'_> {
    /// Whether a second of git's lies in the time it took. A line without a time does not say how long that was.
    fn holds(&self, second: i64) -> bool {
        let (first, last) = (self.since.micros() / SECOND, self.until.micros() / SECOND);
        first > 0 && (first..=last).contains(&second)
    }

    fn made(&self, commit: &CommitFacts) -> bool {
        commit.committed_at.is_some_and(|at| self.holds(at.micros() / SECOND))
    }

    /// The commits that git says it made, whole where the repository still has them. What looks like that in the output
    /// of anything else has to be a commit of that time, where there is a repository to ask.
    fn commits_printed(&self, root: Option<&str>) -> Vec<CommitFacts> {
        let is_git = self.command.contains("git");
        let commit = |(hash, subject): (&str, &str)| {
            let known = root.and_then(|root| commits(root, &["-1", hash]).pop());
            let is_believed = is_git || root.is_none() || known.as_ref().is_some_and(|commit| self.made(commit));
            let commit = known.unwrap_or_else(|| CommitFacts {
                hash: hash.to_owned(),
                evidence: CommitEvidence::Printed,
                author: None,
                subject: Some(redacted(subject).into_owned()),
                committed_at: None,
                files: Vec::new(),
            });
            is_believed.then_some(CommitFacts { evidence: CommitEvidence::Printed, ..commit })
        };
        commits_in_words(self.printed).filter_map(commit).collect()
    }
}

/// Whether a command names what makes a commit. A script that does is called anything.
fn names_commit(command: &str) -> bool {
    let commits = |word: &str| matches!(word, "commit" | "merge" | "cherry-pick" | "revert" | "am" | "rebase");
    simple_commands(command).iter().any(|words| {
        let mut words = words.iter().flatten().skip_while(|word| is_keyword(word) || word.contains('='));
        words.next().is_some_and(|program| program == "git") && words.any(|word| commits(word))
    })
}

/// A move of HEAD to a commit.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    to: String,
    second: i64,
}

/// The moves of HEAD in the work tree that was asked about last.
#[derive(Debug, Default)]
pub struct HeadLog {
    /// The folder in which the client creates work trees for its agents.
    agent_trees: Option<&'static str>,
    /// Where that was asked from: most commands of a session are run in one place, and looking for its work tree each time
    /// would cost more than reading them.
    cwd: Option<String>,
    root: Option<String>,
    moves: Vec<Move>,
}

impl HeadLog {
    pub fn new(agent_trees: Option<&'static str>) -> Self {
        Self { agent_trees, ..Self::default() }
    }

    /// The commits that a command made.
    pub fn commits_of(&mut self, ran: &Ran<'_>) -> Vec<CommitFacts> {
        if self.cwd.as_deref() != ran.cwd {
            *self = Self::of(ran.cwd, self.agent_trees);
        }
        let root = self.root.as_deref();
        let mut made = ran.commits_printed(root);
        let appeared = root.map(|root| self.appeared(root, ran)).unwrap_or_default();
        if appeared.is_empty() {
            return made;
        }
        // A command that names one and prints it has no other to make.
        let is_named = made.is_empty() && names_commit(ran.command);
        let evidence = if is_named { CommitEvidence::Named } else { CommitEvidence::Appeared };
        for commit in appeared {
            if !made.iter().any(|known| commit.hash.starts_with(&known.hash)) {
                made.push(CommitFacts { evidence, ..commit });
            }
        }
        made
    }

    fn of(cwd: Option<&str>, agent_trees: Option<&'static str>) -> Self {
        let root = cwd.and_then(|cwd| find(cwd, agent_trees).root).filter(|root| git_folder(root).is_some());
        let moves = root.as_deref().and_then(moves).unwrap_or_default();
        Self { agent_trees, cwd: cwd.map(str::to_owned), root, moves }
    }

    /// The commits that HEAD moved to while the command ran. What was pulled in was made before.
    fn appeared(&self, root: &str, ran: &Ran<'_>) -> Vec<CommitFacts> {
        let age = format!("--max-age={}", ran.since.micros() / SECOND);
        let mut range = vec![age.as_str()];
        range.extend(self.moves.iter().filter(|moved| ran.holds(moved.second)).map(|moved| moved.to.as_str()));
        if range.len() == 1 {
            return Vec::new();
        }
        range.truncate(MOVES_MAX);
        let is_own = |commit: &CommitFacts| {
            let written = written_at(root, &commit.hash);
            // A repository that was copied has younger files.
            let is_copied = |written| commit.committed_at.is_some_and(|at| written > at.plus_seconds(2));
            let is_in_time = |written| written >= ran.since && (written <= ran.until || is_copied(written));
            ran.made(commit) && written.is_none_or(is_in_time)
        };
        commits(root, &range).into_iter().filter(is_own).collect()
    }
}

fn moves(root: &str) -> Option<Vec<Move>> {
    let log = git_folder(root)?.join("logs/HEAD");
    log.metadata().ok().filter(|file| file.is_file() && file.len() <= LOG_MAX)?;
    let text = fs::read(log).ok()?;
    Some(String::from_utf8_lossy(&text).lines().filter_map(moved).collect())
}

/// Reads `OLD NEW NAME <ADDRESS> SECONDS ZONE`, and a tab before what happened.
fn moved(line: &str) -> Option<Move> {
    let (about, _) = line.split_once('\t').unwrap_or((line, ""));
    let mut hashes = about.split(' ');
    let (from, to) = (hashes.next()?, hashes.next()?);
    let second = about.rsplit(' ').nth(1)?.parse().ok()?;
    (is_hash(to) && from != to).then(|| Move { to: to.to_owned(), second })
}

/// What stands between a commit's hash and its subject.
const BEFORE_SUBJECT: &str = "] ";

/// Whether a text, in quotes or not, may hold what `git commit` says.
pub fn may_tell_commits(text: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), BEFORE_SUBJECT.as_bytes()).is_some()
}

/// The commit that `git commit` says it made: the beginning of its hash, and its subject.
fn commits_in_words(stdout: &str) -> impl Iterator<Item = (&str, &str)> {
    // Most of what commands print is long, and has no bracket.
    memchr::memchr_iter(b'[', stdout.as_bytes()).filter_map(|start| {
        let (above, line) = stdout.split_at(start);
        let line = line[1..].lines().next().filter(|_| above.is_empty() || above.ends_with('\n'))?;
        let (place, subject) = line.split_once(BEFORE_SUBJECT)?;
        let hash = place.rsplit(' ').next()?;
        let is_hash = (7..=40).contains(&hash.len()) && hash.chars().all(|digit| digit.is_ascii_hexdigit());
        (is_hash && place.contains(' ')).then_some((hash, subject))
    })
}

#[cfg(test)]
mod tests {
    use super::{Move, commits_in_words, moved, names_commit};

    #[test]
    fn a_command_names_a_commit_or_may_make_one_all_the_same() {
        for command in [
            "git commit -qm x",
            "cd sub && git -C .. -c user.name=a commit --quiet -m \"$(cat <<'EOF'\nx\nEOF\n)\"",
            "GIT_EDITOR=true git rebase main",
            "if make; then git merge --no-ff x; fi",
        ] {
            assert!(names_commit(command), "{command}");
        }
        for command in ["./release.sh", "git log", "echo git commit", "commit", "grep commit .git/HEAD", ""] {
            assert!(!names_commit(command), "{command}");
        }
    }

    #[test]
    fn a_line_of_the_log_is_a_move_or_nothing() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        for (line, wanted) in [
            (format!("{one} {two} A B <a@b> 1772182800 +0100\tcommit: x 5 y"), Some(&two)),
            (format!("{one} {two} A <a@b> 1772182800 +0100"), Some(&two)),
            (format!("{one} {one} A <a@b> 1772182800 +0100\tcheckout: moving"), None),
            (format!("{one} --output=x A <a@b> 1772182800 +0100\tcommit: y"), None),
            (format!("{one} {two} A <a@b> soon +0100\tcommit: y"), None),
            (String::new(), None),
        ] {
            let wanted = wanted.map(|to| Move { to: to.clone(), second: 1_772_182_800 });
            assert_eq!(moved(&line), wanted, "{line}");
        }
    }

    #[test]
    fn commits_are_read_from_the_output_of_git() {
        let stdout = "[main (root-commit) 1a2b3c4] first\n 1 file changed\n[dev 5d6e7f8a] second one\n[x] no";
        let commits: Vec<_> = commits_in_words(stdout).collect();
        assert_eq!(commits, [("1a2b3c4", "first"), ("5d6e7f8a", "second one")]);
    }
}

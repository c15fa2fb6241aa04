//! Finds the commits that a command in a transcript made, from the command's output and from git's reflog of HEAD.
//!
//! A hook can check HEAD after every command, but a transcript is read later. Git's reflog still has each move of HEAD
//! in the work tree, with its time.

use std::fs;

use trackway_domain::{Time, enums::CommitEvidence, observed::CommitFacts};

use super::{is_keyword, simple_commands};
use crate::{
    redact::redacted,
    work_tree::{commits, git_dir, is_hash, locate, written_at},
};

/// Maximum number of bytes of a reflog that is read.
const LOG_MAX: u64 = 16 << 20;
/// Maximum number of moves of HEAD that are considered for one command.
const MOVES_MAX: usize = 100;
const SECOND: i64 = 1_000_000;

/// A command that ended, with its output and its period.
#[derive(Debug)]
pub struct CompletedCommand<'a> {
    pub cwd: Option<&'a str>,
    pub command: &'a str,
    pub output: &'a str,
    pub since: Time,
    pub until: Time,
}

impl CompletedCommand<'_> {
    /// Whether a second is in the period of the command. False if the transcript has no time for the command.
    fn includes(&self, second: i64) -> bool {
        let (first, last) = (self.since.micros() / SECOND, self.until.micros() / SECOND);
        first > 0 && (first..=last).contains(&second)
    }

    fn includes_commit(&self, commit: &CommitFacts) -> bool {
        commit.committed_at.is_some_and(|at| self.includes(at.micros() / SECOND))
    }

    /// The commits in the output of `git commit`, with their details if the repository still has them. A command that
    /// does not mention git may print an older log. Its output counts only if the repository has the commit and the
    /// commit is from the period of the command, or if there is no repository.
    fn printed_commits(&self, root: Option<&str>) -> Vec<CommitFacts> {
        let is_git = self.command.contains("git");
        let commit = |(hash, subject): (&str, &str)| {
            let known = root.and_then(|root| commits(root, &["-1", hash]).pop());
            let is_believed =
                is_git || root.is_none() || known.as_ref().is_some_and(|commit| self.includes_commit(commit));
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
        parse_commit_output(self.output).filter_map(commit).collect()
    }
}

/// Whether a command names a git subcommand that makes commits. Does not recognise scripts that commit, because they
/// can have any name.
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

/// The moves of HEAD in one work tree, cached for consecutive commands.
#[derive(Debug, Default)]
pub struct HeadLog {
    /// The folder in which the client creates work trees for its agents.
    agent_trees: Option<&'static str>,
    /// The directory of the previous command. Most commands of a session run in one directory, and locating its work
    /// tree for each command would take longer than reading the transcript.
    cwd: Option<String>,
    root: Option<String>,
    moves: Vec<Move>,
}

impl HeadLog {
    pub fn new(agent_trees: Option<&'static str>) -> Self {
        Self { agent_trees, ..Self::default() }
    }

    /// The commits that a command made.
    pub fn commits_of(&mut self, command: &CompletedCommand<'_>) -> Vec<CommitFacts> {
        if self.cwd.as_deref() != command.cwd {
            *self = Self::load(command.cwd, self.agent_trees);
        }
        let root = self.root.as_deref();
        let mut commits = command.printed_commits(root);
        let appeared = root.map(|root| self.appeared(root, command)).unwrap_or_default();
        if appeared.is_empty() {
            return commits;
        }
        // If git printed a commit, the subcommand in the command line made the printed commit. Then the command line is
        // no evidence for the commits that only appeared.
        let is_named = commits.is_empty() && names_commit(command.command);
        let evidence = if is_named { CommitEvidence::Named } else { CommitEvidence::Appeared };
        for commit in appeared {
            if !commits.iter().any(|known| commit.hash.starts_with(&known.hash)) {
                commits.push(CommitFacts { evidence, ..commit });
            }
        }
        commits
    }

    fn load(cwd: Option<&str>, agent_trees: Option<&'static str>) -> Self {
        let root = cwd.and_then(|cwd| locate(cwd, agent_trees).root).filter(|root| git_dir(root).is_some());
        let moves = root.as_deref().and_then(read_moves).unwrap_or_default();
        Self { agent_trees, cwd: cwd.map(str::to_owned), root, moves }
    }

    /// The commits that HEAD moved to while the command ran. Omits commits that are older than the command, because the
    /// command only pulled or checked them out.
    fn appeared(&self, root: &str, command: &CompletedCommand<'_>) -> Vec<CommitFacts> {
        let age = format!("--max-age={}", command.since.micros() / SECOND);
        let mut range = vec![age.as_str()];
        range.extend(self.moves.iter().filter(|moved| command.includes(moved.second)).map(|moved| moved.to.as_str()));
        if range.len() == 1 {
            return Vec::new();
        }
        range.truncate(MOVES_MAX);
        let is_own = |commit: &CommitFacts| {
            let written = written_at(root, &commit.hash);
            // In a copied repository, the object files are newer than the commits.
            let is_copied = |written| commit.committed_at.is_some_and(|at| written > at.plus_seconds(2));
            let is_in_time = |written| written >= command.since && (written <= command.until || is_copied(written));
            command.includes_commit(commit) && written.is_none_or(is_in_time)
        };
        commits(root, &range).into_iter().filter(is_own).collect()
    }
}

fn read_moves(root: &str) -> Option<Vec<Move>> {
    let log = git_dir(root)?.join("logs/HEAD");
    log.metadata().ok().filter(|file| file.is_file() && file.len() <= LOG_MAX)?;
    let text = fs::read(log).ok()?;
    Some(String::from_utf8_lossy(&text).lines().filter_map(parse_move).collect())
}

/// Parses a line of the reflog: `OLD NEW NAME <ADDRESS> SECONDS ZONE`, followed by a tab and a message.
fn parse_move(line: &str) -> Option<Move> {
    let (fields, _) = line.split_once('\t').unwrap_or((line, ""));
    let mut hashes = fields.split(' ');
    let (from, to) = (hashes.next()?, hashes.next()?);
    let second = fields.rsplit(' ').nth(1)?.parse().ok()?;
    (is_hash(to) && from != to).then(|| Move { to: to.to_owned(), second })
}

/// The separator between the hash and the subject of a commit in the output of `git commit`.
const BEFORE_SUBJECT: &str = "] ";

/// Whether a text may contain output of `git commit`. Also works on text in JSON strings.
pub fn may_contain_commits(text: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), BEFORE_SUBJECT.as_bytes()).is_some()
}

/// Parses the commits in the output of `git commit`: the beginning of each hash, and the subject.
fn parse_commit_output(stdout: &str) -> impl Iterator<Item = (&str, &str)> {
    // Searching for the bracket first is fast: most output is long and has none.
    memchr::memchr_iter(b'[', stdout.as_bytes()).filter_map(|start| {
        let (above, line) = stdout.split_at(start);
        let line = line[1..].lines().next().filter(|_| above.is_empty() || above.ends_with('\n'))?;
        let (branch_and_hash, subject) = line.split_once(BEFORE_SUBJECT)?;
        let hash = branch_and_hash.rsplit(' ').next()?;
        let is_hash = (7..=40).contains(&hash.len()) && hash.chars().all(|digit| digit.is_ascii_hexdigit());
        (is_hash && branch_and_hash.contains(' ')).then_some((hash, subject))
    })
}

#[cfg(test)]
mod tests {
    use super::{Move, names_commit, parse_commit_output, parse_move};

    #[test]
    fn recognises_commands_that_name_a_committing_subcommand() {
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
    fn reflog_line_is_parsed_as_a_move_or_ignored() {
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
            assert_eq!(parse_move(&line), wanted, "{line}");
        }
    }

    #[test]
    fn parses_commits_in_the_output_of_git() {
        let stdout = "[main (root-commit) 1a2b3c4] first\n 1 file changed\n[dev 5d6e7f8a] second one\n[x] no";
        let commits: Vec<_> = parse_commit_output(stdout).collect();
        assert_eq!(commits, [("1a2b3c4", "first"), ("5d6e7f8a", "second one")]);
    }
}

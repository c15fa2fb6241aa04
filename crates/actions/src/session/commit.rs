//! Commits, linked to the run that made them and to the runs whose changes they hold.

use std::cmp::Ordering;

use trackway_domain::{
    Id, Time,
    kind::{self, ActionType, ResourceType},
    observed::{CommitFacts, Seen},
    text,
    words::CommitEvidence,
};
use trackway_store::{
    params,
    tables::{Commit, File},
};

use super::{Observing, file::recorded_path};
use crate::{action::Resource, core::record_touches, error::Result, touched::Recorded};

/// Digits of a hash that people see.
const SHORT: usize = 8;

impl Observing<'_, '_> {
    pub(super) fn commit(&mut self, seen: &Seen, facts: &CommitFacts) -> Result<()> {
        let hash = facts.hash.to_ascii_lowercase();
        if !(7..=64).contains(&hash.len()) || !hash.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(());
        }
        let run = self.run_of(seen)?;
        let ground = self.ground(seen)?;
        let (workspace, root) = (ground.workspace, ground.root.as_deref());
        // One may know the whole hash, the other only its beginning.
        let known = self.write.row::<Commit>(
            "where tenant_id = ?1 and workspace_id = ?2 and hash >= ?3 and hash < ?4 order by hash limit 1",
            params![workspace, hash[..7], format!("{}g", &hash[..7])],
        )?;
        let known = known.filter(|known| known.hash.starts_with(&hash) || hash.starts_with(&known.hash));
        let line = |text: &String| text::cut(&text::clean_line(text), text::LINE_MAX - 1);
        let new = known.is_none();
        let mut commit = known.clone().unwrap_or_else(|| Commit {
            id: Id::new(seen.at),
            tenant_id: self.context.tenant,
            workspace_id: workspace,
            hash: hash.clone(),
            author: None,
            subject: None,
            committed_at: None,
            created_at: seen.at,
            evidence: None,
        });
        // What was written down before there was evidence yields to what is printed, as it did then.
        let before = commit.evidence.unwrap_or(CommitEvidence::Named);
        if new || facts.evidence > before {
            commit.evidence = Some(facts.evidence);
        }
        if hash.len() > commit.hash.len() {
            commit.hash = hash;
        }
        commit.author = facts.author.as_ref().map(line).or(commit.author);
        commit.subject = facts.subject.as_ref().map(line).or(commit.subject);
        commit.committed_at = facts.committed_at.or(commit.committed_at);
        let path = format!(
            "{} {}",
            &commit.hash[..SHORT.min(commit.hash.len())],
            commit.subject.as_deref().unwrap_or_default()
        );
        let path = path.trim_end().to_owned();
        match known {
            None => {
                self.write.insert(&commit)?;
                self.write.register(commit.id, None, &Resource::outside(commit.id, path.clone()).path, None)?;
                self.count("commit");
            }
            Some(known) if known != commit => {
                self.write.update(&commit)?;
                self.write.rename(commit.id, &path)?;
            }
            Some(_) => {}
        }
        let maker = match facts.evidence.cmp(&before) {
            _ if new || facts.evidence == CommitEvidence::Printed => Some(run),
            Ordering::Greater => Some(run),
            Ordering::Equal => self.maker_of_two(seen, run, commit.id)?,
            Ordering::Less => None,
        };
        if let Some(maker) = maker
            && (new || self.is_of_another(maker, commit.id)?)
        {
            self.touch_commit(maker, commit.id, ActionType::Create, &path, seen.at)?;
        }
        for (name, old) in &facts.files {
            let name = recorded_path(root, root, name);
            let old = old.as_ref().map(|old| recorded_path(root, root, old));
            self.commit_file(run, &commit, &path, &name, old.as_deref(), seen.at)?;
        }
        Ok(())
    }

    /// Who made a commit that another run of this session was seen to make as well as this one: nothing says which of them
    /// it was, but both worked for the main agent.
    fn maker_of_two(
        &mut self,
        seen: &Seen,
        run: Id<kind::Run>,
        commit: Id<kind::Commit>,
    ) -> Result<Option<Id<kind::Run>>> {
        let other = self.write.one::<(Id<kind::Run>,)>(
            "select t.run_id from run_resources t join runs r on r.tenant_id = ?1 and r.id = t.run_id
             where t.tenant_id = ?1 and t.resource_type = 'commit' and t.resource_id = ?2 and t.action_type = 'create' and t.run_id <> ?3 and r.session_id = ?4 limit 1",
            params![commit, run, self.session.id],
        )?;
        match other {
            Some(_) => Ok(self.newest_main_run(seen.prompt.id.as_deref(), seen.at)?.map(|(main, _)| main)),
            None => Ok(None),
        }
    }

    /// Takes a commit back from another run. Several agents in one work tree look at the same repository, and the first
    /// to look finds it; better evidence says whose it is.
    fn is_of_another(&mut self, run: Id<kind::Run>, commit: Id<kind::Commit>) -> Result<bool> {
        let taken = self.write.execute(
            "delete from run_resources where tenant_id = ?1 and resource_type = 'commit' and resource_id = ?2 and action_type = 'create' and run_id <> ?3",
            params![commit, run],
        )?;
        Ok(taken > 0)
    }

    fn touch_commit(
        &mut self,
        run: Id<kind::Run>,
        commit: Id<kind::Commit>,
        action_type: ActionType,
        path: &str,
        at: Time,
    ) -> Result<()> {
        let touch = Recorded {
            resource_type: ResourceType::Commit,
            resource_id: commit.uuid(),
            studio: None,
            action_type,
            path: path.to_owned(),
        };
        record_touches(self.write, run, vec![touch], at)
    }

    /// A file that a commit holds; a renamed one stays the file it was.
    fn commit_file(
        &mut self,
        run: Id<kind::Run>,
        commit: &Commit,
        shown: &str,
        name: &str,
        old: Option<&str>,
        at: Time,
    ) -> Result<()> {
        let file = match old {
            Some(old) => self.renamed(commit, old, name, at)?,
            None => self.file_at(commit.workspace_id, name, at)?,
        };
        let first = self.write.execute(
            "insert into commit_files (tenant_id, commit_id, file_id) values (?1, ?2, ?3) on conflict (commit_id, file_id) do nothing",
            params![commit.id, file.id],
        )? > 0;
        if !first {
            return Ok(());
        }
        // The run whose change of this file the commit holds.
        let until = commit.committed_at.map_or(at, |committed| committed.plus_seconds(1).max(at));
        let changed_by = self.write.one::<(Id<kind::Run>,)>(
            "select run_id from file_changes where tenant_id = ?1 and file_id = ?2 and created_at <= ?3 order by created_at desc limit 1",
            params![file.id, until],
        )?;
        if let Some((other,)) = changed_by.filter(|(other,)| *other != run) {
            self.touch_commit(other, commit.id, ActionType::Update, shown, at)?;
        }
        Ok(())
    }

    fn renamed(&mut self, commit: &Commit, old: &str, path: &str, at: Time) -> Result<File> {
        let find = |this: &mut Self, path: &str| {
            this.write.row::<File>(
                "where tenant_id = ?1 and workspace_id = ?2 and path_key = ?3",
                params![commit.workspace_id, text::key(path)],
            )
        };
        match (find(self, old)?, find(self, path)?) {
            (Some(mut file), None) => {
                path.clone_into(&mut file.path);
                file.path_key = text::key(path);
                file.updated_at = at;
                self.write.update(&file)?;
                self.write.rename(file.id, path)?;
                self.files.clear();
                Ok(file)
            }
            _ => self.file_at(commit.workspace_id, path, at),
        }
    }
}

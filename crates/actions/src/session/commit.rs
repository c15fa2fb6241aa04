//! Records commits. Links each commit to the run that made it, and to the runs whose file changes it contains.

use std::cmp::Ordering;

use trackway_domain::{
    Id, Time,
    enums::CommitEvidence,
    kind::{self, ActionType, ResourceType},
    observed::{CommitFacts, ObservedFact},
    text,
};
use trackway_store::{
    params,
    tables::{Commit, File},
};

use super::{SessionRecorder, file::recorded_path};
use crate::{action::Resource, core::record_touches, error::Result, touched::TouchRecord};

/// Number of hash digits in a display path.
const DISPLAYED_HASH_DIGITS: usize = 8;

impl SessionRecorder<'_, '_> {
    pub(super) fn record_commit(&mut self, observed: &ObservedFact, facts: &CommitFacts) -> Result<()> {
        let hash = facts.hash.to_ascii_lowercase();
        if !(7..=64).contains(&hash.len()) || !hash.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(());
        }
        let run = self.run_of(observed)?;
        let location = self.locate(observed)?;
        let (workspace, root) = (location.workspace, location.root.as_deref());
        // The recorded or the observed hash may be abbreviated, so compare the beginnings.
        let known = self.write.row::<Commit>(
            "where tenant_id = ?1 and workspace_id = ?2 and hash >= ?3 and hash < ?4 order by hash limit 1",
            params![workspace, hash[..7], format!("{}g", &hash[..7])],
        )?;
        let known = known.filter(|known| known.hash.starts_with(&hash) || hash.starts_with(&known.hash));
        let line = |text: &String| text::cut(&text::clean_line(text), text::LINE_MAX - 1);
        let new = known.is_none();
        let mut commit = known.clone().unwrap_or_else(|| Commit {
            id: Id::new(observed.at),
            tenant_id: self.context.tenant,
            workspace_id: workspace,
            hash: hash.clone(),
            author: None,
            subject: None,
            committed_at: None,
            created_at: observed.at,
            evidence: None,
        });
        // Older rows store no evidence. They rank as `Named`, so that only the stronger evidence `Printed` replaces them.
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
            &commit.hash[..DISPLAYED_HASH_DIGITS.min(commit.hash.len())],
            commit.subject.as_deref().unwrap_or_default()
        );
        let path = path.trim_end().to_owned();
        match known {
            None => {
                self.write.insert(&commit)?;
                self.write.register(commit.id, None, &Resource::new(commit.id, path.clone()).path, None)?;
                self.count("commit");
            }
            Some(known) if known != commit => {
                self.write.update(&commit)?;
                self.write.update_display_path(commit.id, &path)?;
            }
            Some(_) => {}
        }
        let creating_run = match facts.evidence.cmp(&before) {
            _ if new || facts.evidence == CommitEvidence::Printed => Some(run),
            Ordering::Greater => Some(run),
            Ordering::Equal => self.resolve_disputed_commit(observed, run, commit.id)?,
            Ordering::Less => None,
        };
        if let Some(creating_run) = creating_run
            && (new || self.withdraw_commit_from_others(creating_run, commit.id)?)
        {
            self.touch_commit(creating_run, commit.id, ActionType::Create, &path, observed.at)?;
        }
        for (name, old) in &facts.files {
            let name = recorded_path(root, root, name);
            let old = old.as_ref().map(|old| recorded_path(root, root, old));
            self.commit_file(run, &commit, &path, &name, old.as_deref(), observed.at)?;
        }
        Ok(())
    }

    /// Decides who made a commit that two runs of this session report with equal evidence. Both worked for the main
    /// agent, so the commit belongs to the main agent's run. Returns `None` if no other run of this session reports it.
    fn resolve_disputed_commit(
        &mut self,
        observed: &ObservedFact,
        run: Id<kind::Run>,
        commit: Id<kind::Commit>,
    ) -> Result<Option<Id<kind::Run>>> {
        let other = self.write.one::<(Id<kind::Run>,)>(
            "select t.run_id from run_resources t join runs r on r.tenant_id = ?1 and r.id = t.run_id
             where t.tenant_id = ?1 and t.resource_type = 'commit' and t.resource_id = ?2 and t.action_type = 'create' and t.run_id <> ?3 and r.session_id = ?4 limit 1",
            params![commit, run, self.session.id],
        )?;
        match other {
            Some(_) => Ok(self.newest_main_run(observed.prompt.id.as_deref(), observed.at)?.map(|(main, _)| main)),
            None => Ok(None),
        }
    }

    /// Removes a commit from all other runs. Returns true if another run had it. Agents that share a work tree watch
    /// the same repository, so the first agent to look reports the commits of all agents. Better evidence corrects
    /// this.
    fn withdraw_commit_from_others(&mut self, run: Id<kind::Run>, commit: Id<kind::Commit>) -> Result<bool> {
        let removed = self.write.execute(
            "delete from run_resources where tenant_id = ?1 and resource_type = 'commit' and resource_id = ?2 and action_type = 'create' and run_id <> ?3",
            params![commit, run],
        )?;
        Ok(removed > 0)
    }

    fn touch_commit(
        &mut self,
        run: Id<kind::Run>,
        commit: Id<kind::Commit>,
        action_type: ActionType,
        path: &str,
        at: Time,
    ) -> Result<()> {
        let touch = TouchRecord {
            resource_type: ResourceType::Commit,
            resource_id: commit.uuid(),
            studio: None,
            action_type,
            path: path.to_owned(),
        };
        record_touches(self.write, run, vec![touch], at)
    }

    /// Links a commit to a file that it contains. A renamed file keeps its identity.
    fn commit_file(
        &mut self,
        run: Id<kind::Run>,
        commit: &Commit,
        display_path: &str,
        name: &str,
        old: Option<&str>,
        at: Time,
    ) -> Result<()> {
        let file = match old {
            Some(old) => self.rename_file(commit, old, name, at)?,
            None => self.find_or_create_file(commit.workspace_id, name, at)?,
        };
        let is_new_link = self.write.execute(
            "insert into commit_files (tenant_id, commit_id, file_id) values (?1, ?2, ?3) on conflict (commit_id, file_id) do nothing",
            params![commit.id, file.id],
        )? > 0;
        if !is_new_link {
            return Ok(());
        }
        // The commit contains the file's latest change before the commit. So the run that made this change touches the
        // commit too.
        let until = commit.committed_at.map_or(at, |committed| committed.plus_seconds(1).max(at));
        let changed_by = self.write.one::<(Id<kind::Run>,)>(
            "select run_id from file_changes where tenant_id = ?1 and file_id = ?2 and created_at <= ?3 order by created_at desc limit 1",
            params![file.id, until],
        )?;
        if let Some((other,)) = changed_by.filter(|(other,)| *other != run) {
            self.touch_commit(other, commit.id, ActionType::Update, display_path, at)?;
        }
        Ok(())
    }

    fn rename_file(&mut self, commit: &Commit, old: &str, path: &str, at: Time) -> Result<File> {
        let find = |this: &mut Self, path: &str| {
            this.write.row::<File>(
                "where tenant_id = ?1 and workspace_id = ?2 and path_key = ?3",
                params![commit.workspace_id, text::lookup_key(path)],
            )
        };
        match (find(self, old)?, find(self, path)?) {
            (Some(mut file), None) => {
                path.clone_into(&mut file.path);
                file.path_key = text::lookup_key(path);
                file.updated_at = at;
                self.write.update(&file)?;
                self.write.update_display_path(file.id, path)?;
                self.files.clear();
                Ok(file)
            }
            _ => self.find_or_create_file(commit.workspace_id, path, at),
        }
    }
}

//! Paths that commands took away, and the files that were there.

use std::path::Path;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Time, kind,
    observed::Source,
    text,
    words::{ChangeEvidence, FileChange},
};
use trackway_store::{
    params,
    sql::Param,
    tables::{File, FileChanged},
};
use uuid::Uuid;

use super::Observing;
use crate::error::Result;

/// Paths of a session that are remembered, the last ones.
const REMOVALS_MAX: usize = 200;

/// A path that a command took away. What was at it may be told of later: each agent has a transcript of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Removal {
    pub at: Time,
    pub run: Uuid,
    pub call: String,
    pub tool: Option<String>,
    pub workspace: Uuid,
    /// As the workspace names it.
    pub path: String,
    /// From the top of the machine.
    pub whole: String,
}

impl Removal {
    /// Those that a session's row holds.
    pub fn read(kept: &str) -> Vec<Self> {
        serde_json::from_str(kept).unwrap_or_default()
    }
}

impl Observing<'_, '_> {
    /// A command took a path away, and is remembered where the other transcripts of the session may come after this one.
    pub(super) fn removed(&mut self, removal: Removal) -> Result<()> {
        self.take_away(&removal)?;
        if self.source != Source::Transcript || self.removals.contains(&removal) {
            return Ok(());
        }
        self.removals.push(removal);
        let first = self.removals.len().saturating_sub(REMOVALS_MAX);
        self.session.removals = serde_json::to_string(&self.removals[first..]).ok();
        self.session_changed = true;
        Ok(())
    }

    /// A file was told of: commands that are known to have taken it away since did so.
    pub(super) fn removed_later(&mut self, file: &Path, at: Time) -> Result<()> {
        let since = |removal: &&Removal| removal.at > at && file.starts_with(&removal.whole);
        for removal in self.removals.iter().filter(since).cloned().collect::<Vec<_>>() {
            self.take_away(&removal)?;
        }
        Ok(())
    }

    /// The files at a path and below it that were there are deleted, as far as the record knows, and those of all
    /// workspaces that were there.
    fn take_away(&mut self, removal: &Removal) -> Result<()> {
        let Removal { at, run, call, tool, workspace, path, whole } = removal;
        let mut there = self.files_left(
            "workspace_id = ?2 and (path_key = ?5 or (path_key >= ?6 and path_key < ?7))",
            params![workspace, at, FileChange::Delete, text::key(path), format!("{path}/"), format!("{path}0")],
        )?;
        let gone = self.write.query::<(Uuid,)>(
            "select id from workspaces where tenant_id = ?1 and substr(directory || '/', 1, length(?2)) = ?2",
            params![format!("{whole}/")],
        )?;
        for (workspace,) in gone {
            there.extend(self.files_left("workspace_id = ?2", params![workspace, at, FileChange::Delete])?);
        }
        let run = Id::from(*run);
        for file in there {
            let change = FileChanged {
                id: Id::<kind::File>::new(*at).uuid(),
                tenant_id: self.context.tenant,
                file_id: file.id,
                run_id: run,
                session_id: Some(self.session.id),
                // One call takes several files away: each has a change of its own.
                tool_use_id: Some(format!("{call} {}", file.id.uuid().simple())),
                tool: tool.clone(),
                change: FileChange::Delete,
                evidence: ChangeEvidence::Observed,
                digest: None,
                lines: None,
                created_at: *at,
            };
            if self.write.insert_new(&change)? {
                self.count("file_change");
                self.touch_file(run, file.id, FileChange::Delete, &file.path, *at)?;
            }
        }
        Ok(())
    }

    /// The files of a workspace that were there at a time: `?3`. `?4` is the change after which one is not.
    fn files_left(&mut self, which: &str, params: &[Param<'_>]) -> Result<Vec<File>> {
        Ok(self.write.rows::<File>(
            &format!(
                "where tenant_id = ?1 and {which}
                 and coalesce((select c.change from file_changes c where c.tenant_id = ?1 and c.file_id = files.id and c.created_at <= ?3
                               order by c.created_at desc limit 1), ?4) <> ?4
                 order by path_key limit 1000"
            ),
            params,
        )?)
    }
}

//! Records the deletion of files by shell commands.

use std::path::Path;

use serde::{Deserialize, Serialize};
use trackway_domain::{
    Id, Time,
    enums::{ChangeEvidence, FileChange},
    kind,
    observed::Source,
    text,
};
use trackway_store::{
    params,
    sql::Param,
    tables::{File, FileChangeRow},
};
use uuid::Uuid;

use super::SessionRecorder;
use crate::error::Result;

/// Maximum number of removed paths that a session's row stores. The newest ones stay.
const REMOVALS_MAX: usize = 200;

/// A path that a shell command removed. Each agent has its own transcript, so a transcript that is read later may
/// report an earlier change of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Removal {
    pub at: Time,
    pub run: Uuid,
    pub call: String,
    pub tool: Option<String>,
    pub workspace: Uuid,
    /// Relative to the root of the workspace.
    pub path: String,
    /// Absolute.
    pub whole: String,
}

impl Removal {
    /// Parses the removals that a session's row stores.
    pub fn parse_all(json: &str) -> Vec<Self> {
        serde_json::from_str(json).unwrap_or_default()
    }
}

impl SessionRecorder<'_, '_> {
    /// Records the deletion of all known files at a path. Stores a removal from a transcript in the session's row,
    /// because other transcripts of the session may be read later.
    pub(super) fn record_removal(&mut self, removal: Removal) -> Result<()> {
        self.delete_removed_files(&removal)?;
        if self.source != Source::Transcript || self.removals.contains(&removal) {
            return Ok(());
        }
        self.removals.push(removal);
        let first = self.removals.len().saturating_sub(REMOVALS_MAX);
        self.session.removals = serde_json::to_string(&self.removals[first..]).ok();
        self.session_changed = true;
        Ok(())
    }

    /// Applies the stored removals to a file that changed before them.
    pub(super) fn apply_later_removals(&mut self, file: &Path, at: Time) -> Result<()> {
        let since = |removal: &&Removal| removal.at > at && file.starts_with(&removal.whole);
        for removal in self.removals.iter().filter(since).cloned().collect::<Vec<_>>() {
            self.delete_removed_files(&removal)?;
        }
        Ok(())
    }

    /// Records a deletion for every known file that existed at or below the path, including the files of all workspaces
    /// at or below it.
    fn delete_removed_files(&mut self, removal: &Removal) -> Result<()> {
        let Removal { at, run, call, tool, workspace, path, whole } = removal;
        let mut files = self.files_existing_at(
            "workspace_id = ?2 and (path_key = ?5 or (path_key >= ?6 and path_key < ?7))",
            params![workspace, at, FileChange::Delete, text::lookup_key(path), format!("{path}/"), format!("{path}0")],
        )?;
        let removed_workspaces = self.write.query::<(Uuid,)>(
            "select id from workspaces where tenant_id = ?1 and substr(directory || '/', 1, length(?2)) = ?2",
            params![format!("{whole}/")],
        )?;
        for (workspace,) in removed_workspaces {
            files.extend(self.files_existing_at("workspace_id = ?2", params![workspace, at, FileChange::Delete])?);
        }
        let run = Id::from(*run);
        for file in files {
            let change = FileChangeRow {
                id: Id::<kind::File>::new(*at).uuid(),
                tenant_id: self.context.tenant,
                file_id: file.id,
                run_id: run,
                session_id: Some(self.session.id),
                // One call may delete several files, and each file gets a change with a unique id.
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

    /// The files of a workspace that existed at the time `?3`. `?4` is the change type `delete`.
    fn files_existing_at(&mut self, which: &str, params: &[Param<'_>]) -> Result<Vec<File>> {
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

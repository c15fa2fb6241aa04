//! Records the file changes of a session's runs.

use std::path::{Path, PathBuf};

use trackway_domain::{
    Id, Time,
    enums::FileChange,
    kind::{self, ActionType, ResourceType},
    lexical_path::normalize,
    observed::{FileFacts, ObservedFact, Source},
    text,
};
use trackway_store::{
    params,
    tables::{File, FileChangeRow},
};

use super::{SessionRecorder, removal::Removal};
use crate::{core::record_touches, error::Result, touched::TouchRecord};

/// Maximum characters of a path in the registry.
const REGISTRY_PATH_MAX: usize = 500;
/// Maximum characters of a recorded path.
const PATH_MAX: usize = 4_096;

/// The path to record: relative to the root if it lies below the root, without `.`, `..` and control characters.
pub(super) fn recorded_path(root: Option<&str>, cwd: Option<&str>, path: &str) -> String {
    let cleaned = text::cut(&text::clean_line(path), PATH_MAX - 1);
    let absolute = match cwd.or(root) {
        Some(base) => Path::new(base).join(&cleaned),
        None => PathBuf::from(&cleaned),
    };
    let normalized = normalize(&absolute);
    let relative = root.or(cwd).and_then(|root| normalized.strip_prefix(root).ok().map(Path::to_path_buf));
    let recorded = relative.filter(|relative| !relative.as_os_str().is_empty()).unwrap_or(normalized);
    text::cut(&recorded.to_string_lossy(), PATH_MAX - 1)
}

impl SessionRecorder<'_, '_> {
    pub(super) fn record_file_change(&mut self, observed: &ObservedFact, facts: &FileFacts) -> Result<()> {
        let run = self.run_of(observed)?;
        let location = self.locate(observed)?;
        let path = recorded_path(location.root.as_deref(), location.cwd.as_deref(), &facts.path);
        if let (FileChange::Delete, Some(call)) = (facts.change, &facts.tool_use_id) {
            let removal = Removal {
                at: observed.at,
                run: run.uuid(),
                call: call.clone(),
                tool: facts.tool.clone(),
                workspace: location.workspace.uuid(),
                path,
                whole: facts.path.clone(),
            };
            return self.record_removal(removal);
        }
        let lines = facts.line_hashes.as_ref().map(trackway_domain::line_trace::LineHashes::to_bytes);
        let file = match self.find_file(location.workspace, &path)? {
            Some(file) => file,
            None => {
                // The call may have been recorded with another path, in a work tree that has been deleted since.
                if let Some(known) = self.recorded_change(facts)? {
                    return self.complete_change(known, run, facts, lines);
                }
                self.new_file(location.workspace, &path, observed.at)?
            }
        };
        let change = FileChangeRow { lines, ..self.new_change(observed, facts, file.id, run) };
        let known = match &facts.tool_use_id {
            Some(_) if self.write.insert_new(&change)? => None,
            Some(_) => self.recorded_change(facts)?,
            // A change found in the work tree has no call id. Equal content means the same change.
            None => {
                let known = self.write.row::<FileChangeRow>(
                    "where tenant_id = ?1 and file_id = ?2 and run_id = ?3 and digest = ?4",
                    params![file.id, run, facts.digest],
                )?;
                if known.is_none() {
                    self.write.insert(&change)?;
                }
                known
            }
        };
        if let Some(known) = known {
            return self.complete_change(known, run, facts, change.lines);
        }
        self.count("file_change");
        self.touch_file(run, file.id, facts.change, &path, observed.at)?;
        let absolute = Path::new(location.root.as_deref().unwrap_or_default()).join(&path);
        self.apply_later_removals(&absolute, observed.at)
    }

    /// A row for this change, without the written lines.
    fn new_change(
        &self,
        observed: &ObservedFact,
        facts: &FileFacts,
        file: Id<kind::File>,
        run: Id<kind::Run>,
    ) -> FileChangeRow {
        FileChangeRow {
            id: Id::<kind::File>::new(observed.at).uuid(),
            tenant_id: self.context.tenant,
            file_id: file,
            run_id: run,
            session_id: Some(self.session.id),
            tool_use_id: facts.tool_use_id.clone(),
            tool: facts.tool.clone(),
            change: facts.change,
            evidence: facts.evidence,
            digest: facts.digest.clone(),
            lines: None,
            created_at: observed.at,
        }
    }

    /// The change that is already recorded for this call.
    fn recorded_change(&mut self, facts: &FileFacts) -> Result<Option<FileChangeRow>> {
        let Some(tool_use_id) = &facts.tool_use_id else { return Ok(None) };
        Ok(self.write.row::<FileChangeRow>(
            "where tenant_id = ?1 and session_id = ?2 and tool_use_id = ?3",
            params![self.session.id, tool_use_id],
        )?)
    }

    /// Adds details from a second source to a recorded change. A transcript also corrects the run that made the change.
    fn complete_change(
        &mut self,
        known: FileChangeRow,
        run: Id<kind::Run>,
        facts: &FileFacts,
        lines: Option<Vec<u8>>,
    ) -> Result<()> {
        let mut change = known.clone();
        change.digest = known.digest.clone().or_else(|| facts.digest.clone());
        change.lines = match (&known.lines, lines) {
            (Some(known), Some(more)) if is_whole(known) && !is_whole(&more) => Some(more),
            (Some(known), _) => Some(known.clone()),
            (None, more) => more,
        };
        if self.source == Source::Transcript && known.run_id != run {
            change.run_id = run;
            self.withdraw_touch(&known)?;
            let file = self.write.row::<File>("where tenant_id = ?1 and id = ?2", params![known.file_id])?;
            let path = file.map(|file| file.path).unwrap_or_default();
            self.touch_file(run, known.file_id, known.change, &path, known.created_at)?;
        }
        if change != known {
            self.write.update_changed(&known, &change)?;
        }
        Ok(())
    }

    /// Removes the touch of a change from its run, because another run made the change. The first run can be wrong
    /// because hooks of old client versions do not name the agent.
    fn withdraw_touch(&mut self, change: &FileChangeRow) -> Result<()> {
        let action = action(change.change);
        self.write.post(
            "update run_resources set times = times - 1 where tenant_id = ?1 and run_id = ?2 and resource_type = 'file' and resource_id = ?3 and action_type = ?4",
            params![change.run_id, change.file_id, action],
        )?;
        self.write.post(
            "delete from run_resources where tenant_id = ?1 and run_id = ?2 and resource_type = 'file' and resource_id = ?3 and times <= 0",
            params![change.run_id, change.file_id],
        )?;
        Ok(())
    }

    pub(super) fn touch_file(
        &mut self,
        run: Id<kind::Run>,
        file: Id<kind::File>,
        change: FileChange,
        path: &str,
        at: Time,
    ) -> Result<()> {
        let touch = TouchRecord {
            resource_type: ResourceType::File,
            resource_id: file.uuid(),
            studio: None,
            action_type: action(change),
            path: path.to_owned(),
        };
        record_touches(self.write, run, vec![touch], at)
    }

    /// Finds or creates the file at a path of a workspace.
    pub(super) fn find_or_create_file(&mut self, workspace: Id<kind::Workspace>, path: &str, at: Time) -> Result<File> {
        match self.find_file(workspace, path)? {
            Some(file) => Ok(file),
            None => self.new_file(workspace, path, at),
        }
    }

    fn new_file(&mut self, workspace: Id<kind::Workspace>, path: &str, at: Time) -> Result<File> {
        let file = File {
            id: Id::new(at),
            tenant_id: self.context.tenant,
            workspace_id: workspace,
            path: path.to_owned(),
            path_key: text::lookup_key(path),
            created_at: at,
            updated_at: at,
        };
        self.write.insert(&file)?;
        // The registry names no creator: the file may have existed before the session.
        self.write.register(file.id, None, &text::cut(path, REGISTRY_PATH_MAX), None)?;
        self.files.insert((workspace, path.to_owned()), file.clone());
        Ok(file)
    }

    fn find_file(&mut self, workspace: Id<kind::Workspace>, path: &str) -> Result<Option<File>> {
        let key = (workspace, path.to_owned());
        if let Some(file) = self.files.get(&key) {
            return Ok(Some(file.clone()));
        }
        let known = self.write.row::<File>(
            "where tenant_id = ?1 and workspace_id = ?2 and path_key = ?3",
            params![workspace, text::lookup_key(path)],
        )?;
        self.files.extend(known.clone().map(|file| (key, file)));
        Ok(known)
    }
}

fn is_whole(lines: &[u8]) -> bool {
    trackway_domain::line_trace::LineHashes::from_bytes(lines).is_none_or(|written| written.is_whole_file)
}

fn action(change: FileChange) -> ActionType {
    match change {
        FileChange::Create => ActionType::Create,
        FileChange::Update => ActionType::Update,
        FileChange::Delete => ActionType::Delete,
    }
}

#[cfg(test)]
mod tests {
    use super::recorded_path;

    #[test]
    fn recorded_paths_are_normalised_and_relative_to_the_root() {
        for (path, recorded) in [
            ("/p/src/a.rs", "src/a.rs"),
            ("src/../b.rs", "sub/b.rs"),
            ("../../etc/passwd", "/etc/passwd"),
            ("../../../../etc/passwd", "/etc/passwd"),
            ("/elsewhere/x", "/elsewhere/x"),
            ("a\nb\u{7}c", "sub/a bc"),
        ] {
            assert_eq!(recorded_path(Some("/p"), Some("/p/sub"), path), recorded);
        }
        assert_eq!(recorded_path(None, None, "x/./y"), "x/y");
        assert!(recorded_path(Some("/p"), None, &"a/".repeat(5_000)).chars().count() <= 4_096);
    }
}

//! Files that runs of a session changed.

use std::path::{Path, PathBuf};

use trackway_domain::{
    Id, Time,
    kind::{self, ActionType, ResourceType},
    observed::{FileFacts, Seen, Source},
    plain_path::plain,
    text,
    words::FileChange,
};
use trackway_store::{
    params,
    tables::{File, FileChanged},
};

use super::{Observing, removal::Removal};
use crate::{core::record_touches, error::Result, touched::Recorded};

/// Characters of a path that the registry shows.
const SHOWN_MAX: usize = 500;
/// Characters in a path.
const PATH_MAX: usize = 4_096;

/// A path as the record names it: from the root where it is below it, without `.` and `..`. Whatever else is in it is data.
pub(super) fn recorded_path(root: Option<&str>, cwd: Option<&str>, path: &str) -> String {
    let cleaned = text::cut(&text::clean_line(path), PATH_MAX - 1);
    let whole = match cwd.or(root) {
        Some(base) => Path::new(base).join(&cleaned),
        None => PathBuf::from(&cleaned),
    };
    let plain = plain(&whole);
    let below = root.or(cwd).and_then(|root| plain.strip_prefix(root).ok().map(Path::to_path_buf));
    let shown = below.filter(|below| !below.as_os_str().is_empty()).unwrap_or(plain);
    text::cut(&shown.to_string_lossy(), PATH_MAX - 1)
}

impl Observing<'_, '_> {
    pub(super) fn file(&mut self, seen: &Seen, facts: &FileFacts) -> Result<()> {
        let run = self.run_of(seen)?;
        let ground = self.ground(seen)?;
        let path = recorded_path(ground.root.as_deref(), ground.cwd.as_deref(), &facts.path);
        if let (FileChange::Delete, Some(call)) = (facts.change, &facts.tool_use_id) {
            let removal = Removal {
                at: seen.at,
                run: run.uuid(),
                call: call.clone(),
                tool: facts.tool.clone(),
                workspace: ground.workspace.uuid(),
                path,
                whole: facts.path.clone(),
            };
            return self.removed(removal);
        }
        let lines = facts.written.as_ref().map(trackway_domain::line_trace::Written::to_bytes);
        let file = match self.known_file(ground.workspace, &path)? {
            Some(file) => file,
            None => {
                // A work tree that is gone by now gave the file another name.
                if let Some(told) = self.told(facts)? {
                    return self.know_better(told, run, facts, lines);
                }
                self.new_file(ground.workspace, &path, seen.at)?
            }
        };
        let change = FileChanged { lines, ..self.change(seen, facts, file.id, run) };
        let known = match &facts.tool_use_id {
            Some(_) if self.write.insert_new(&change)? => None,
            Some(_) => self.told(facts)?,
            // Seen in the work tree: the same content is the same observation.
            None => {
                let known = self.write.row::<FileChanged>(
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
            return self.know_better(known, run, facts, change.lines);
        }
        self.count("file_change");
        self.touch_file(run, file.id, facts.change, &path, seen.at)?;
        let whole = Path::new(ground.root.as_deref().unwrap_or_default()).join(&path);
        self.removed_later(&whole, seen.at)
    }

    /// What was seen of a file, but for the lines that were written.
    fn change(&self, seen: &Seen, facts: &FileFacts, file: Id<kind::File>, run: Id<kind::Run>) -> FileChanged {
        FileChanged {
            id: Id::<kind::File>::new(seen.at).uuid(),
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
            created_at: seen.at,
        }
    }

    /// The change that a call made, where it was told already.
    fn told(&mut self, facts: &FileFacts) -> Result<Option<FileChanged>> {
        let Some(tool_use_id) = &facts.tool_use_id else { return Ok(None) };
        Ok(self.write.row::<FileChanged>(
            "where tenant_id = ?1 and session_id = ?2 and tool_use_id = ?3",
            params![self.session.id, tool_use_id],
        )?)
    }

    /// What a second source adds: what the first did not know, and whose transcript holds the call.
    fn know_better(
        &mut self,
        known: FileChanged,
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
            self.take_touch_back(&known)?;
            let file = self.write.row::<File>("where tenant_id = ?1 and id = ?2", params![known.file_id])?;
            let path = file.map(|file| file.path).unwrap_or_default();
            self.touch_file(run, known.file_id, known.change, &path, known.created_at)?;
        }
        if change != known {
            self.write.update_changed(&known, &change)?;
        }
        Ok(())
    }

    /// A hook of an old client does not say which agent it speaks of; its touch goes to whose it was.
    fn take_touch_back(&mut self, change: &FileChanged) -> Result<()> {
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
        let touch = Recorded {
            resource_type: ResourceType::File,
            resource_id: file.uuid(),
            studio: None,
            action_type: action(change),
            path: path.to_owned(),
        };
        record_touches(self.write, run, vec![touch], at)
    }

    /// The file of a path in a workspace, entered when it was never seen.
    pub(super) fn file_at(&mut self, workspace: Id<kind::Workspace>, path: &str, at: Time) -> Result<File> {
        match self.known_file(workspace, path)? {
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
            path_key: text::key(path),
            created_at: at,
            updated_at: at,
        };
        self.write.insert(&file)?;
        // Nobody is said to have made it: it may have been there before.
        self.write.register(file.id, None, &text::cut(path, SHOWN_MAX), None)?;
        self.files.insert((workspace, path.to_owned()), file.clone());
        Ok(file)
    }

    fn known_file(&mut self, workspace: Id<kind::Workspace>, path: &str) -> Result<Option<File>> {
        let key = (workspace, path.to_owned());
        if let Some(file) = self.files.get(&key) {
            return Ok(Some(file.clone()));
        }
        let known = self.write.row::<File>(
            "where tenant_id = ?1 and workspace_id = ?2 and path_key = ?3",
            params![workspace, text::key(path)],
        )?;
        self.files.extend(known.clone().map(|file| (key, file)));
        Ok(known)
    }
}

fn is_whole(lines: &[u8]) -> bool {
    trackway_domain::line_trace::Written::from_bytes(lines).is_none_or(|written| written.whole)
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
    fn a_path_is_named_from_the_root_and_is_data_otherwise() {
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

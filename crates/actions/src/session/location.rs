//! Creates a session's row, its workspace and the roles of its agents. Finds the workspace in which a fact was
//! observed.

use std::path::Path;

use trackway_domain::{
    Id, Time,
    enums::RoleOrigin,
    kind,
    observed::{ObservedFact, SessionFacts},
    text, work_tree,
};
use trackway_store::{
    Writer, params,
    tables::{Role, Session, Workspace},
};
use uuid::Uuid;

use super::SessionRecorder;
use crate::{action::Resource, context::Context, definition::save, error::Result};

/// Maximum characters of a role or a directory name in a handle.
const NAME_PART_MAX: usize = 80;
/// Maximum characters of a workspace's directory.
const DIRECTORY_MAX: usize = 4_000;

/// Where a fact was observed.
#[derive(Debug)]
pub(super) struct FactLocation {
    pub workspace: Id<kind::Workspace>,
    /// Paths of files are recorded relative to this directory.
    pub root: Option<String>,
    pub cwd: Option<String>,
}

/// Creates a session. If the client's id is an unused UUID, it becomes the session's id too.
pub(super) fn new_session(
    context: &Context,
    write: &mut Writer<'_>,
    client: &str,
    name: &str,
    at: Time,
) -> Result<Session> {
    let free = match Uuid::try_parse(name) {
        Ok(uuid)
            if write.query_unscoped::<(Uuid,)>("select id from registry where id = ?1", params![uuid])?.is_empty() =>
        {
            Some(uuid)
        }
        _ => None,
    };
    let session = Session {
        id: free.map_or_else(|| write.new_id(), Id::from),
        tenant_id: context.tenant,
        client: client.to_owned(),
        session_id: name.to_owned(),
        cwd: None,
        root: None,
        workspace_id: None,
        transcript_path: None,
        version: None,
        git_branch: None,
        head: None,
        source: None,
        continues_id: None,
        started_at: at,
        ended_at: None,
        hooked_at: None,
        shell_at: None,
        removals: None,
    };
    write.insert(&session)?;
    write.register(session.id, None, &session.session_id, Some(context.actor.id()))?;
    Ok(session)
}

/// Turns any text into a name that people can type.
pub(super) fn sanitize_name(given: &str) -> String {
    let cleaned = text::clean_line(given);
    let allowed = |character: char| {
        if character.is_alphanumeric() || "._-+".contains(character) { character } else { '-' }
    };
    let name: String = cleaned.chars().take(NAME_PART_MAX).map(allowed).collect();
    if name.chars().all(|character| character == '-') { "unnamed".to_owned() } else { name }
}

impl SessionRecorder<'_, '_> {
    /// Records facts about the session. Facts that are not given leave the recorded ones unchanged.
    pub(super) fn record_session(&mut self, observed: &ObservedFact, facts: &SessionFacts) -> Result<()> {
        let at = observed.at;
        let before = self.session.clone();
        let session = &mut self.session;
        let set_once = |known: &mut Option<String>, new: &Option<String>| {
            if known.is_none() {
                known.clone_from(new);
            }
        };
        set_once(&mut session.cwd, &facts.cwd);
        set_once(&mut session.root, &facts.root);
        if let (Some(root), Some(head)) = (&facts.root, &facts.head) {
            session.head = Some(work_tree::record_head(session.head.as_deref(), root, head));
        }
        set_once(&mut session.transcript_path, &facts.transcript_path);
        set_once(&mut session.source, &facts.source);
        for (known, new) in [(&mut session.version, &facts.version), (&mut session.git_branch, &facts.git_branch)] {
            // Transcripts of subagents are read after the session's own, but may be older. Facts from them only fill
            // gaps.
            if new.is_some() && (known.is_none() || observed.agent.is_none()) {
                known.clone_from(new);
            }
        }
        session.started_at = session.started_at.min(at);
        // A start reopens an ended session. Other late events do not.
        if facts.source.is_some() && session.ended_at.is_some_and(|ended| ended < at) {
            session.ended_at = None;
        }
        if session.workspace_id.is_none() {
            self.assign_workspace(facts)?;
        }
        self.session_changed |= self.session != before;
        Ok(())
    }

    /// Finds or creates the session's workspace.
    fn assign_workspace(&mut self, facts: &SessionFacts) -> Result<()> {
        let workspace = match (facts.workspace.as_deref(), facts.root.as_deref().or(facts.cwd.as_deref())) {
            // A repository is a workspace of its own, even inside the directory of another workspace, because its files
            // are recorded relative to its top directory.
            (Some(repository), _) => self.workspace(repository)?,
            (None, Some(directory)) => match self.enclosing_workspace(directory)? {
                Some((id, directory)) => {
                    self.session.root = Some(directory);
                    id
                }
                None => self.workspace(directory)?,
            },
            (None, None) => return Ok(()),
        };
        self.session.workspace_id = Some(workspace);
        Ok(())
    }

    /// The nearest workspace that contains a directory outside any repository, and that workspace's directory.
    fn enclosing_workspace(&mut self, directory: &str) -> Result<Option<(Id<kind::Workspace>, String)>> {
        for ancestor in Path::new(directory).ancestors() {
            let ancestor = ancestor.to_string_lossy().into_owned();
            if let Some(id) = self.workspace_at(&ancestor)? {
                return Ok(Some((id, ancestor)));
            }
        }
        Ok(None)
    }

    fn workspace_at(&mut self, directory: &str) -> Result<Option<Id<kind::Workspace>>> {
        let found = self.write.one::<(Id<kind::Workspace>,)>(
            "select id from workspaces where tenant_id = ?1 and directory = ?2 and deleted_at is null order by id limit 1",
            params![directory],
        )?;
        Ok(found.map(|(id,)| id))
    }

    /// Finds or creates the workspace of a directory. A new workspace is named after the directory.
    fn workspace(&mut self, directory: &str) -> Result<Id<kind::Workspace>> {
        let directory = text::cut(&text::clean_line(directory), DIRECTORY_MAX);
        if let Some(id) = self.workspaces.get(&directory) {
            return Ok(*id);
        }
        let id = match self.workspace_at(&directory)? {
            Some(id) => id,
            None => self.new_workspace(&directory)?,
        };
        self.workspaces.insert(directory, id);
        Ok(id)
    }

    fn new_workspace(&mut self, directory: &str) -> Result<Id<kind::Workspace>> {
        self.write.lock_catalog()?;
        if let Some(id) = self.workspace_at(directory)? {
            return Ok(id);
        }
        let directory_name = Path::new(directory).file_name().map(|name| name.to_string_lossy().into_owned());
        let base = sanitize_name(directory_name.as_deref().unwrap_or("root"));
        let taken: Vec<String> = self
            .write
            .query::<(String,)>(
                "select name from workspaces where tenant_id = ?1 and name >= ?2 and name < ?3 and deleted_at is null",
                params![base, format!("{base}~")],
            )?
            .into_iter()
            .map(|(name,)| name)
            .collect();
        let numbered = |number: usize| if number == 1 { base.clone() } else { format!("{base}-{number}") };
        let name = (1..=taken.len() + 1).map(numbered).find(|name| !taken.contains(name)).unwrap_or(base.clone());
        let workspace = Workspace {
            id: self.write.new_id(),
            tenant_id: self.context.tenant,
            name,
            directory: Some(directory.to_owned()),
            repository: None,
            description: None,
            project: None,
            tags: Vec::new(),
            created_at: self.write.now,
            updated_at: self.write.now,
            deleted_at: None,
        };
        let (workspace, _) = save(self.context, self.write, None, workspace)?;
        self.count("workspace");
        Ok(workspace.id)
    }

    /// The id of the session's workspace. A session whose directory is unknown gets a workspace of its own.
    pub(super) fn workspace_id(&mut self) -> Result<Id<kind::Workspace>> {
        if let Some(id) = self.session.workspace_id {
            return Ok(id);
        }
        let directory = self.session.cwd.clone().unwrap_or_else(|| format!("sessions/{}", self.session.session_id));
        let id = self.workspace(&directory)?;
        self.session.workspace_id = Some(id);
        self.session_changed = true;
        Ok(id)
    }

    /// Determines where a fact was observed. A fact from outside any repository belongs to the session's workspace.
    pub(super) fn locate(&mut self, observed: &ObservedFact) -> Result<FactLocation> {
        let location = observed.location.clone().unwrap_or_default();
        let cwd = location.cwd.or_else(|| self.session.cwd.clone());
        Ok(match location.workspace {
            Some(repository) => FactLocation { workspace: self.workspace(&repository)?, root: location.root, cwd },
            None => FactLocation { workspace: self.workspace_id()?, root: self.session.root.clone(), cwd },
        })
    }

    /// Finds or creates a role.
    pub(super) fn role(&mut self, name: &str) -> Result<Id<kind::Role>> {
        let name = sanitize_name(name);
        if let Some(id) = self.roles.get(&name) {
            return Ok(*id);
        }
        let known = self.write.one::<(Id<kind::Role>,)>(
            "select id from roles where tenant_id = ?1 and name = ?2 and deleted_at is null",
            params![name],
        )?;
        let id = match known {
            Some((id,)) => id,
            None => {
                let role = Role {
                    id: self.write.new_id(),
                    tenant_id: self.context.tenant,
                    name: name.clone(),
                    title: None,
                    description: None,
                    notes: None,
                    tags: Vec::new(),
                    origin: RoleOrigin::Seen,
                    created_at: self.write.now,
                    updated_at: self.write.now,
                    deleted_at: None,
                };
                save(self.context, self.write, None, role)?.0.id
            }
        };
        self.roles.insert(name, id);
        Ok(id)
    }

    /// Registers a resource that belongs to no studio.
    pub(super) fn register<K: kind::Marker>(&mut self, resource: &Resource<K>) -> Result<()> {
        let by = self.created_by();
        Ok(self.write.register(resource.id, None, &resource.path, Some(by))?)
    }
}

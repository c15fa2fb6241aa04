//! Where a session happens: its row, its workspace and the roles of its agents.

use std::path::Path;

use trackway_domain::{
    Id, Time, kind,
    observed::{Seen, SessionFacts},
    text,
    words::RoleOrigin,
    work_tree,
};
use trackway_store::{
    Writer, params,
    tables::{Role, Session, Workspace},
};
use uuid::Uuid;

use super::Observing;
use crate::{action::Resource, context::Context, definition::save, error::Result};

/// Characters of a role or a directory in a handle.
const NAME_PART_MAX: usize = 80;
/// Characters of a workspace's directory.
const DIRECTORY_MAX: usize = 4_000;

/// Where something happened.
#[derive(Debug)]
pub(super) struct Ground {
    pub workspace: Id<kind::Workspace>,
    /// What its files are named from.
    pub root: Option<String>,
    pub cwd: Option<String>,
}

/// A session that was never seen. Its id is the client's, where that is a UUID nobody has.
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

/// A name that people can type, out of any text.
pub(super) fn name_part(given: &str) -> String {
    let cleaned = text::clean_line(given);
    let allowed = |character: char| {
        if character.is_alphanumeric() || "._-+".contains(character) { character } else { '-' }
    };
    let name: String = cleaned.chars().take(NAME_PART_MAX).map(allowed).collect();
    if name.chars().all(|character| character == '-') { "unnamed".to_owned() } else { name }
}

impl Observing<'_, '_> {
    /// Adds what is known of the session. What was known stays where nothing new is said.
    pub(super) fn session_facts(&mut self, seen: &Seen, facts: &SessionFacts) -> Result<()> {
        let at = seen.at;
        let before = self.session.clone();
        let session = &mut self.session;
        let first = |known: &mut Option<String>, said: &Option<String>| {
            if known.is_none() {
                known.clone_from(said);
            }
        };
        first(&mut session.cwd, &facts.cwd);
        first(&mut session.root, &facts.root);
        if let (Some(root), Some(head)) = (&facts.root, &facts.head) {
            session.head = Some(work_tree::with_head(session.head.as_deref(), root, head));
        }
        first(&mut session.transcript_path, &facts.transcript_path);
        first(&mut session.source, &facts.source);
        for (known, said) in [(&mut session.version, &facts.version), (&mut session.git_branch, &facts.git_branch)] {
            // Files of agents are read after the session's own, however old they are.
            if said.is_some() && (known.is_none() || seen.agent.is_none()) {
                known.clone_from(said);
            }
        }
        session.started_at = session.started_at.min(at);
        // Late events of an ended session do not open it again; a start does.
        if facts.source.is_some() && session.ended_at.is_some_and(|ended| ended < at) {
            session.ended_at = None;
        }
        if session.workspace_id.is_none() {
            self.settle(facts)?;
        }
        self.session_changed |= self.session != before;
        Ok(())
    }

    /// Finds the workspace that the session is in, or makes one.
    fn settle(&mut self, facts: &SessionFacts) -> Result<()> {
        let settled = match (facts.workspace.as_deref(), facts.root.as_deref().or(facts.cwd.as_deref())) {
            // A repository is a workspace of its own, whatever it lies in: its files are named from its top.
            (Some(repository), _) => self.workspace(repository)?,
            (None, Some(directory)) => match self.holder(directory)? {
                Some((id, holder)) => {
                    self.session.root = Some(holder);
                    id
                }
                None => self.workspace(directory)?,
            },
            (None, None) => return Ok(()),
        };
        self.session.workspace_id = Some(settled);
        Ok(())
    }

    /// The workspace that holds a directory outside any repository, and where that is.
    fn holder(&mut self, directory: &str) -> Result<Option<(Id<kind::Workspace>, String)>> {
        for above in Path::new(directory).ancestors() {
            let above = above.to_string_lossy().into_owned();
            if let Some(id) = self.workspace_at(&above)? {
                return Ok(Some((id, above)));
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

    /// The workspace of a directory, named after it when it is new.
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
        let last = Path::new(directory).file_name().map(|name| name.to_string_lossy().into_owned());
        let base = name_part(last.as_deref().unwrap_or("root"));
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

    /// The workspace's id. A session that never said where it is has one of its own.
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

    /// Where a fact was seen: the workspace, and the directory that files are named from. Whoever works outside any
    /// repository works where the session does.
    pub(super) fn ground(&mut self, seen: &Seen) -> Result<Ground> {
        let place = seen.place.clone().unwrap_or_default();
        let cwd = place.cwd.or_else(|| self.session.cwd.clone());
        Ok(match place.workspace {
            Some(repository) => Ground { workspace: self.workspace(&repository)?, root: place.root, cwd },
            None => Ground { workspace: self.workspace_id()?, root: self.session.root.clone(), cwd },
        })
    }

    /// The role of a name, entered when it was never seen.
    pub(super) fn role(&mut self, name: &str) -> Result<Id<kind::Role>> {
        let name = name_part(name);
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

    /// A thing outside studios, entered into the registry.
    pub(super) fn register<K: kind::Marker>(&mut self, resource: &Resource<K>) -> Result<()> {
        let by = self.created_by();
        Ok(self.write.register(resource.id, None, &resource.path, Some(by))?)
    }
}

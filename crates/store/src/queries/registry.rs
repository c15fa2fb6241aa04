//! The registry of everything that has an id. Resolves names, paths and id suffixes that people type.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use trackway_domain::{
    Error as DomainError, Id, Ref,
    close_matches::close_matches,
    command, ids,
    kind::{self, Kind, Marker},
    sentence,
    sentence::Command,
};
use uuid::Uuid;

use crate::{
    error::Result,
    params, row,
    sql::ToParam,
    store::{Reader, TenantId, Writer},
    table::Table,
    tables::Tenant,
};

row! {
    /// A registry entry.
    pub struct Entry {
        id: Uuid,
        kind: Kind,
        studio_id: Option<Id<kind::Studio>>,
        display_path: String,
        created_by: Option<Uuid>,
        created_at: trackway_domain::Time,
        deleted_at: Option<trackway_domain::Time>,
    }
}

const SELECT: &str = "select id, kind, studio_id, display_path, created_by, created_at, deleted_at from registry";

/// Selects the entries whose short keys are in a range.
static BY_SHORT_KEY: LazyLock<String> =
    LazyLock::new(|| format!("{SELECT} where tenant_id = ?1 and short_key >= ?2 and short_key <= ?3 order by id"));

/// Kinds that have names, with the table and column of the name.
const NAMED_KINDS: &[(Kind, &str, &str)] = &[
    (Kind::Studio, "studios", "name"),
    (Kind::Person, "people", "handle"),
    (Kind::Agent, "agents", "handle"),
    (Kind::Role, "roles", "name"),
    (Kind::Workflow, "workflows", "name"),
    (Kind::Workspace, "workspaces", "name"),
    (Kind::Label, "labels", "key"),
    (Kind::Task, "tasks", "variant"),
    (Kind::Board, "boards", "name"),
];

/// Maximum number of existing names that are compared with an unknown name, to suggest similar names.
const NAMES_SEARCHED_MAX: i64 = 2_000;
const CANDIDATES_MAX: usize = 10;

/// Names never contain NUL, and PostgreSQL rejects a query with one.
fn is_valid_name(text: &str) -> bool {
    !text.contains('\0')
}

impl Reader<'_> {
    /// Returns the id that a reference names. A name takes precedence over an id suffix. `last` is the newest run.
    pub fn resolve<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        let key = (K::KIND, reference.as_str().to_owned());
        if let Some(known) = self.resolved.as_ref().and_then(|resolved| resolved.get(&key)) {
            return Ok((*known).into());
        }
        let id = self.look_up(reference)?;
        if let Some(resolved) = &mut self.resolved {
            // A caller that resolved a name often resolves the id next, so cache both.
            resolved.insert((K::KIND, id.to_string()), id.uuid());
            resolved.insert(key, id.uuid());
        }
        Ok(id)
    }

    fn look_up<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        let text = reference.as_str();
        let named = NAMED_KINDS.iter().find(|(kind, ..)| *kind == K::KIND);
        if let Some((_, table, column)) = named {
            let by_name =
                format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
            if let Some(suffix) = ids::parse_suffix(text) {
                let (low, high) = ids::short_key_range(&suffix);
                self.prefetch(&BY_SHORT_KEY, params![low, high])?;
            }
            let found = self.one::<(Uuid,)>(&by_name, params![text])?;
            if let Some((id,)) = found {
                return Ok(id.into());
            }
        }
        if K::KIND == Kind::Session
            && let Some(id) = self.find_session(text)?
        {
            return Ok(id.into());
        }
        if K::KIND == Kind::Stickie
            && let Some(id) = self.find_stickie(text)?
        {
            return Ok(id.into());
        }
        if K::KIND == Kind::Run && text == "last" {
            let newest =
                self.one::<(Uuid,)>("select id from runs where tenant_id = ?1 order by id desc limit 1", &[])?;
            return newest.map(|(id,)| id.into()).ok_or_else(|| DomainError::not_found("there is no run yet").into());
        }
        if let Some(entry) = self.entry_by_id_suffix(text, Some(K::KIND))? {
            if entry.deleted_at.is_some() {
                return Err(DomainError::not_found(format!("{} {:?} was deleted", K::KIND, entry.display_path)).into());
            }
            return Ok(entry.id.into());
        }
        Err(self.not_found_error(K::KIND, text)?.into())
    }

    /// Finds a session by the id that its client assigned. Clients assign ids independently, so several sessions may
    /// have the same one.
    fn find_session(&mut self, text: &str) -> Result<Option<Uuid>> {
        let found = self.query::<(Uuid, String)>(
            "select id, client from sessions where tenant_id = ?1 and session_id = ?2 order by client",
            params![text],
        )?;
        if let [] | [_] = found.as_slice() {
            return Ok(found.first().map(|(id, _)| *id));
        }
        let ids: Vec<Uuid> = found.iter().map(|(id, _)| *id).collect();
        let short_ids = self.short_ids(&ids)?;
        let candidates: Vec<_> = found.iter().map(|(id, client)| format!("{} ({client})", short_ids[id])).collect();
        Err(DomainError::usage(format!("{text:?} is ambiguous: {} clients have a session with this id", found.len()))
            .hint(format!("use the session's short id: {}", candidates.join(", ")))
            .into())
    }

    /// Finds a stickie by a name that only one board uses, or by `board/name`.
    fn find_stickie(&mut self, text: &str) -> Result<Option<Uuid>> {
        let select = "select s.id from boards b join stickies s on s.tenant_id = b.tenant_id and s.board_id = b.id and s.deleted_at is null
                      where b.tenant_id = ?1 and b.deleted_at is null and";
        let mut found = self.query::<(Uuid,)>(&format!("{select} s.name = ?2 limit 2"), params![text])?;
        if let (true, Some((board, name))) = (found.is_empty(), text.split_once('/')) {
            found = self.query(&format!("{select} b.name = ?2 and s.name = ?3"), params![board, name])?;
        }
        match found.as_slice() {
            [] => Ok(None),
            [(id,)] => Ok(Some(*id)),
            _ => Err(DomainError::usage(format!("several boards have a stickie named {text:?}"))
                .hint("use BOARD/NAME or the id")
                .into()),
        }
    }

    pub fn resolve_optional<K: Marker>(&mut self, reference: Option<&Ref<K>>) -> Result<Option<Id<K>>> {
        reference.map(|reference| self.resolve(reference)).transpose()
    }

    /// Resolves a name, `kind:name` or an id suffix among several kinds.
    pub fn resolve_among(&mut self, text: &str, kinds: &[Kind]) -> Result<(Kind, Uuid)> {
        let qualified = text.split_once(':').and_then(|(kind, name)| Some((kind.parse::<Kind>().ok()?, name)));
        let (wanted, name) = match qualified {
            Some((kind, name)) if kinds.contains(&kind) => (vec![kind], name),
            _ => (kinds.to_vec(), text),
        };
        let mut found = Vec::new();
        for (kind, table, column) in
            NAMED_KINDS.iter().filter(|(kind, ..)| wanted.contains(kind) && is_valid_name(name))
        {
            let sql = format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
            found.extend(self.one::<(Uuid,)>(&sql, params![name])?.map(|(id,)| (*kind, id)));
        }
        match found.as_slice() {
            [one] => return Ok(*one),
            [] => {}
            several => {
                let names: Vec<_> = several.iter().map(|(kind, _)| format!("{kind}:{name}")).collect();
                return Err(DomainError::usage(format!("the name {name:?} is ambiguous"))
                    .hint(format!("use {}", names.join(" or ")))
                    .into());
            }
        }
        match self.entry_by_id_suffix(name, None)? {
            Some(entry) if wanted.contains(&entry.kind) && entry.deleted_at.is_none() => Ok((entry.kind, entry.id)),
            _ => {
                let words: Vec<_> = wanted.iter().map(ToString::to_string).collect();
                Err(DomainError::not_found(format!("there is no {} {name:?}", words.join(" or "))).into())
            }
        }
    }

    /// Returns the entry whose id ends with `text`. If several ids do, returns a usage error that lists them.
    pub fn entry_by_id_suffix(&mut self, text: &str, kind: Option<Kind>) -> Result<Option<Entry>> {
        let Some(suffix) = ids::parse_suffix(text) else {
            return Ok(None);
        };
        let (low, high) = ids::short_key_range(&suffix);
        let found = self.query::<Entry>(&BY_SHORT_KEY, params![low, high])?;
        let mut matching: Vec<Entry> = found
            .into_iter()
            .filter(|entry| kind.is_none_or(|kind| kind == entry.kind))
            .filter(|entry| entry.id.simple().to_string().ends_with(&suffix))
            .collect();
        if matching.len() > 1 {
            let distinct = |digits: &usize| {
                let endings: HashSet<_> = matching.iter().map(|entry| ids::suffix(entry.id, *digits)).collect();
                endings.len() == matching.len()
            };
            let digits = (suffix.len()..=32).find(distinct).unwrap_or(32);
            let candidates: Vec<_> = matching
                .iter()
                .take(CANDIDATES_MAX)
                .map(|entry| format!("{} ({} {})", ids::suffix(entry.id, digits), entry.kind, entry.display_path))
                .collect();
            return Err(DomainError::usage(format!("{text:?} is ambiguous: {} ids end with it", matching.len()))
                .hint(format!("use a longer suffix: {}", candidates.join(", ")))
                .into());
        }
        Ok(matching.pop())
    }

    /// Finds the entry that `text` names by a task variant, an id suffix or a path, in this order. `last` is the newest
    /// run.
    pub fn find_entry(&mut self, text: &str) -> Result<Option<Entry>> {
        if !is_valid_name(text) {
            return Ok(None);
        }
        // Ignore whitespace around a variant or an id, but not in a path, which may begin or end with a space.
        let name = text.trim();
        if name == "last" {
            let run = self.resolve(&Ref::<kind::Run>::new(name))?;
            return self.entry_by_id(run.uuid());
        }
        let task = self.one::<(Uuid,)>(
            "select id from tasks where tenant_id = ?1 and variant = ?2 and deleted_at is null",
            params![name],
        )?;
        if let Some((task,)) = task {
            return self.entry_by_id(task);
        }
        match self.entry_by_id_suffix(name, None)? {
            Some(entry) => Ok(Some(entry)),
            None => self.entry_by_path(text),
        }
    }

    /// Returns the id that a reference names, even if the resource is deleted: its history remains readable.
    pub fn resolve_including_deleted<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        match self.resolve(reference) {
            Err(error) => match self.entry_by_id_suffix(reference.as_str(), Some(K::KIND))? {
                Some(entry) => Ok(entry.id.into()),
                None => Err(error),
            },
            found => found,
        }
    }

    pub fn entry_by_id(&mut self, id: Uuid) -> Result<Option<Entry>> {
        self.one(&format!("{SELECT} where tenant_id = ?1 and id = ?2"), params![id])
    }

    /// Returns the file or commit with this path.
    pub fn entry_by_path(&mut self, path: &str) -> Result<Option<Entry>> {
        self.one(
            &format!("{SELECT} where tenant_id = ?1 and display_path = ?2 and kind in ('file', 'commit') order by id desc limit 1"),
            params![path],
        )
    }

    /// Returns a "not found" error for a name, with similar names as suggestions.
    pub fn not_found_error(&mut self, kind: Kind, text: &str) -> Result<DomainError> {
        let error = DomainError::not_found(format!("there is no {} {text:?}", kind.as_str().replace('_', " ")));
        let Some((_, table, column)) = NAMED_KINDS.iter().find(|(named, ..)| *named == kind) else {
            return Ok(match ids::short_suffix_hint(text) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        };
        let names = self.query::<(String,)>(
            &format!(
                "select {column} from {table} where tenant_id = ?1 and deleted_at is null and {column} is not null order by id desc limit ?2"
            ),
            params![NAMES_SEARCHED_MAX],
        )?;
        let close = close_matches(text, names.iter().map(|(name,)| name.as_str()));
        if !close.is_empty() {
            return Ok(error.hint(format!("did you mean {}?", close.join(" or "))));
        }
        if let Some(command) = create_command(kind, text).filter(|_| names.is_empty()) {
            return Ok(error.hint(sentence!["create one with: ", command]));
        }
        Ok(match list_command(kind) {
            Some(command) => error.hint(command),
            None => error,
        })
    }

    /// Returns the short form of each id: eight digits, or more if another id has the same suffix.
    pub fn short_ids(&mut self, ids: &[Uuid]) -> Result<HashMap<Uuid, String>> {
        let mut forms = HashMap::new();
        for chunk in ids.chunks(200) {
            let keys: Vec<i64> = chunk.iter().map(|id| ids::short_key(*id)).collect();
            let placeholders: Vec<_> = (0..keys.len()).map(|index| format!("?{}", index + 2)).collect();
            let params: Vec<_> = keys.iter().map(ToParam::to_param).collect();
            let neighbours = self.query::<(Uuid,)>(
                &format!("select id from registry where tenant_id = ?1 and short_key in ({})", placeholders.join(", ")),
                &params,
            )?;
            for id in chunk {
                let unique = |digits: &usize| {
                    !neighbours
                        .iter()
                        .any(|(other,)| other != id && ids::suffix(*other, *digits) == ids::suffix(*id, *digits))
                };
                let digits = (ids::SHORT_DIGITS..=32).find(unique).unwrap_or(32);
                forms.insert(*id, ids::suffix(*id, digits));
            }
        }
        Ok(forms)
    }
}

impl Writer<'_> {
    /// Adds a resource to the registry.
    pub fn register<K: Marker>(
        &mut self,
        id: Id<K>,
        studio: Option<Id<kind::Studio>>,
        display_path: &str,
        created_by: Option<Uuid>,
    ) -> Result<()> {
        let now = self.now;
        self.post(
            "insert into registry (tenant_id, id, kind, studio_id, display_path, short_key, created_by, created_at) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![id, K::KIND, studio, display_path, ids::short_key(id.uuid()), created_by, now],
        )
    }

    /// Changes the display path of a resource.
    pub fn update_display_path<K>(&mut self, id: Id<K>, display_path: &str) -> Result<()> {
        self.post("update registry set display_path = ?3 where tenant_id = ?1 and id = ?2", params![id, display_path])
    }

    /// Marks a resource as deleted. Its history remains.
    pub fn mark_deleted<K>(&mut self, id: Id<K>) -> Result<()> {
        let now = self.now;
        self.post("update registry set deleted_at = ?3 where tenant_id = ?1 and id = ?2", params![id, now])
    }
}

/// Returns all tenants, sorted by name.
pub fn tenants(store: &crate::Store) -> Result<Vec<Tenant>> {
    store.query_unscoped(&format!("{} order by name", Tenant::select()), &[])
}

/// Returns the tenant with this name. The query is not scoped to a tenant, because none is known yet.
pub fn tenant_named(store: &crate::Store, name: &str) -> Result<TenantId> {
    let found = store.query_unscoped::<(Uuid,)>("select id from tenants where name = ?1", params![name])?;
    match found[..] {
        [(id,)] => Ok(id.into()),
        _ => Err(unknown_tenant(name)),
    }
}

/// Returns the tenant with this name, and its person with this handle. Used where the operating system identifies the
/// person.
pub fn tenant_and_person(
    store: &crate::Store,
    name: &str,
    handle: &str,
) -> Result<(TenantId, Option<Id<kind::Person>>)> {
    let found = store.query_unscoped::<(TenantId, Option<Id<kind::Person>>)>(
        "select t.id, (select p.id from people p where p.tenant_id = t.id and p.handle = ?2 and p.deleted_at is null)
         from tenants t where t.name = ?1",
        params![name, handle],
    )?;
    found.into_iter().next().ok_or_else(|| unknown_tenant(name))
}

/// The command that creates a resource of a kind that needs only a name.
fn create_command(kind: Kind, name: &str) -> Option<Command> {
    match kind {
        Kind::Agent => Some(command!("agent set", handle = name)),
        Kind::Role => Some(command!("role set", name = name)),
        Kind::Workflow => Some(command!("workflow set", name = name)),
        _ => None,
    }
}

/// The command that lists the resources of a kind.
fn list_command(kind: Kind) -> Option<Command> {
    match kind {
        Kind::Agent => Some(command!("agent list")),
        Kind::Board => Some(command!("board list")),
        Kind::Label => Some(command!("label list")),
        Kind::Person => Some(command!("person list")),
        Kind::Role => Some(command!("role list")),
        Kind::Studio => Some(command!("studio list")),
        Kind::Task => Some(command!("task list")),
        Kind::Workflow => Some(command!("workflow list")),
        Kind::Workspace => Some(command!("workspace list")),
        _ => None,
    }
}

fn unknown_tenant(name: &str) -> crate::Error {
    DomainError::not_found(format!("there is no tenant {name:?}"))
        .hint(sentence!["list tenants with: ", command!("tenant list"), "; create the first with: ", command!("init")])
        .into()
}

//! The registry: every thing that has an id, found again by any part of it that people type.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use trackway_domain::{
    Error as Rule, Id, Ref,
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
    /// What the registry knows of a thing.
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

/// Those whose short keys are from one to another.
static ENDING: LazyLock<String> =
    LazyLock::new(|| format!("{SELECT} where tenant_id = ?1 and short_key >= ?2 and short_key <= ?3 order by id"));

/// Kinds that have names, and where the names are kept.
const NAMED: &[(Kind, &str, &str)] = &[
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

/// Names looked through for close matches.
const NAMES_SEARCHED: i64 = 2_000;
/// Candidates listed for an ambiguous id.
const CANDIDATES_MAX: usize = 10;

/// Whether a text can be a name: none is kept with a NUL, and PostgreSQL fails at one.
fn can_name(text: &str) -> bool {
    !text.contains('\0')
}

impl Reader<'_> {
    /// The id that a reference names: a name first, then the end of an id; `last` is the newest run.
    pub fn resolve<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        let key = (K::KIND, reference.as_str().to_owned());
        if let Some(known) = self.resolved.as_ref().and_then(|resolved| resolved.get(&key)) {
            return Ok((*known).into());
        }
        let id = self.look_up(reference)?;
        if let Some(resolved) = &mut self.resolved {
            // What was found by its name is asked about by its id next.
            resolved.insert((K::KIND, id.to_string()), id.uuid());
            resolved.insert(key, id.uuid());
        }
        Ok(id)
    }

    fn look_up<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        let text = reference.as_str();
        let named = NAMED.iter().find(|(kind, ..)| *kind == K::KIND);
        if let Some((_, table, column)) = named {
            let by_name =
                format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
            if let Some(suffix) = ids::parse_suffix(text) {
                let (low, high) = ids::short_key_range(&suffix);
                self.expect(&ENDING, params![low, high])?;
            }
            let found = self.one::<(Uuid,)>(&by_name, params![text])?;
            if let Some((id,)) = found {
                return Ok(id.into());
            }
        }
        if K::KIND == Kind::Session {
            let found =
                self.one::<(Uuid,)>("select id from sessions where tenant_id = ?1 and session_id = ?2", params![text])?;
            if let Some((id,)) = found {
                return Ok(id.into());
            }
        }
        if K::KIND == Kind::Stickie
            && let Some(id) = self.stickie_named(text)?
        {
            return Ok(id.into());
        }
        if K::KIND == Kind::Run && text == "last" {
            let newest =
                self.one::<(Uuid,)>("select id from runs where tenant_id = ?1 order by id desc limit 1", &[])?;
            return newest.map(|(id,)| id.into()).ok_or_else(|| Rule::not_found("there is no run yet").into());
        }
        if let Some(entry) = self.entry_ending(text, Some(K::KIND))? {
            if entry.deleted_at.is_some() {
                return Err(Rule::not_found(format!("{} {:?} was deleted", K::KIND, entry.display_path)).into());
            }
            return Ok(entry.id.into());
        }
        Err(self.unknown(K::KIND, text)?.into())
    }

    /// The stickie of a name, which only one board has, or of `board/name`.
    fn stickie_named(&mut self, text: &str) -> Result<Option<Uuid>> {
        let select = "select s.id from boards b join stickies s on s.tenant_id = b.tenant_id and s.board_id = b.id and s.deleted_at is null
                      where b.tenant_id = ?1 and b.deleted_at is null and";
        let mut found = self.query::<(Uuid,)>(&format!("{select} s.name = ?2 limit 2"), params![text])?;
        if let (true, Some((board, name))) = (found.is_empty(), text.split_once('/')) {
            found = self.query(&format!("{select} b.name = ?2 and s.name = ?3"), params![board, name])?;
        }
        match found.as_slice() {
            [] => Ok(None),
            [(id,)] => Ok(Some(*id)),
            _ => Err(Rule::usage(format!("stickies of more than one board are called {text:?}"))
                .hint("say which: BOARD/NAME, or the id")
                .into()),
        }
    }

    /// The same for a reference that may be absent.
    pub fn resolve_optional<K: Marker>(&mut self, reference: Option<&Ref<K>>) -> Result<Option<Id<K>>> {
        reference.map(|reference| self.resolve(reference)).transpose()
    }

    /// What a text names among several kinds: a name that one of them has, `kind:name`, else the end of an id.
    pub fn resolve_among(&mut self, text: &str, kinds: &[Kind]) -> Result<(Kind, Uuid)> {
        let said = text.split_once(':').and_then(|(kind, name)| Some((kind.parse::<Kind>().ok()?, name)));
        let (wanted, name) = match said {
            Some((kind, name)) if kinds.contains(&kind) => (vec![kind], name),
            _ => (kinds.to_vec(), text),
        };
        let mut found = Vec::new();
        for (kind, table, column) in NAMED.iter().filter(|(kind, ..)| wanted.contains(kind) && can_name(name)) {
            let sql = format!("select id from {table} where tenant_id = ?1 and {column} = ?2 and deleted_at is null");
            found.extend(self.one::<(Uuid,)>(&sql, params![name])?.map(|(id,)| (*kind, id)));
        }
        match found.as_slice() {
            [one] => return Ok(*one),
            [] => {}
            several => {
                let words: Vec<_> = several.iter().map(|(kind, _)| format!("{kind}:{name}")).collect();
                return Err(Rule::usage(format!("{name:?} is the name of more than one"))
                    .hint(format!("say which: {}", words.join(" or ")))
                    .into());
            }
        }
        match self.entry_ending(name, None)? {
            Some(entry) if wanted.contains(&entry.kind) && entry.deleted_at.is_none() => Ok((entry.kind, entry.id)),
            _ => {
                let words: Vec<_> = wanted.iter().map(ToString::to_string).collect();
                Err(Rule::not_found(format!("there is no {} {name:?}", words.join(" or "))).into())
            }
        }
    }

    /// The thing whose id ends as given; several are a usage error that lists them.
    pub fn entry_ending(&mut self, text: &str, kind: Option<Kind>) -> Result<Option<Entry>> {
        let Some(suffix) = ids::parse_suffix(text) else {
            return Ok(None);
        };
        let (low, high) = ids::short_key_range(&suffix);
        let found = self.query::<Entry>(&ENDING, params![low, high])?;
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
            return Err(Rule::usage(format!("{text:?} is the end of {} ids", matching.len()))
                .hint(format!("type more of it: {}", candidates.join(", ")))
                .into());
        }
        Ok(matching.pop())
    }

    /// Whatever a text names: a variant first, then the end of an id, then a path; `last` is the newest run.
    pub fn anything(&mut self, text: &str) -> Result<Option<Entry>> {
        if !can_name(text) {
            return Ok(None);
        }
        // Blanks around a variant or an id are trimmed; a path may begin or end with one.
        let name = text.trim();
        if name == "last" {
            let run = self.resolve(&Ref::<kind::Run>::new(name))?;
            return self.entry(run.uuid());
        }
        let task = self.one::<(Uuid,)>(
            "select id from tasks where tenant_id = ?1 and variant = ?2 and deleted_at is null",
            params![name],
        )?;
        if let Some((task,)) = task {
            return self.entry(task);
        }
        match self.entry_ending(name, None)? {
            Some(entry) => Ok(Some(entry)),
            None => self.entry_at(text),
        }
    }

    /// The id that a reference names, deleted or not: history stays readable.
    pub fn resolve_even_deleted<K: Marker>(&mut self, reference: &Ref<K>) -> Result<Id<K>> {
        match self.resolve(reference) {
            Err(error) => match self.entry_ending(reference.as_str(), Some(K::KIND))? {
                Some(entry) => Ok(entry.id.into()),
                None => Err(error),
            },
            found => found,
        }
    }

    /// The registry's entry of an id.
    pub fn entry(&mut self, id: Uuid) -> Result<Option<Entry>> {
        self.one(&format!("{SELECT} where tenant_id = ?1 and id = ?2"), params![id])
    }

    /// The file or commit at a path.
    pub fn entry_at(&mut self, path: &str) -> Result<Option<Entry>> {
        self.one(
            &format!("{SELECT} where tenant_id = ?1 and display_path = ?2 and kind in ('file', 'commit') order by id desc limit 1"),
            params![path],
        )
    }

    /// The not-found error for a name, with what comes close.
    pub fn unknown(&mut self, kind: Kind, text: &str) -> Result<Rule> {
        let error = Rule::not_found(format!("there is no {} {text:?}", kind.word().replace('_', " ")));
        let Some((_, table, column)) = NAMED.iter().find(|(named, ..)| *named == kind) else {
            return Ok(match ids::too_short(text) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        };
        let names = self.query::<(String,)>(
            &format!(
                "select {column} from {table} where tenant_id = ?1 and deleted_at is null and {column} is not null order by id desc limit ?2"
            ),
            params![NAMES_SEARCHED],
        )?;
        let close = close_matches(text, names.iter().map(|(name,)| name.as_str()));
        if !close.is_empty() {
            return Ok(error.hint(format!("did you mean {}?", close.join(" or "))));
        }
        if let Some(making) = making(kind, text).filter(|_| names.is_empty()) {
            return Ok(error.hint(sentence!["there is none yet: ", making]));
        }
        Ok(match listing(kind) {
            Some(listing) => error.hint(listing),
            None => error,
        })
    }

    /// How each id is shown: eight digits, more where another id ends the same.
    pub fn short_forms(&mut self, wanted: &[Uuid]) -> Result<HashMap<Uuid, String>> {
        let mut forms = HashMap::new();
        for chunk in wanted.chunks(200) {
            let keys: Vec<i64> = chunk.iter().map(|id| ids::short_key(*id)).collect();
            let places: Vec<_> = (0..keys.len()).map(|index| format!("?{}", index + 2)).collect();
            let params: Vec<_> = keys.iter().map(ToParam::to_param).collect();
            let neighbours = self.query::<(Uuid,)>(
                &format!("select id from registry where tenant_id = ?1 and short_key in ({})", places.join(", ")),
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
    /// Enters a new thing.
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

    /// Says that a thing is now shown elsewhere.
    pub fn rename<K>(&mut self, id: Id<K>, display_path: &str) -> Result<()> {
        self.post("update registry set display_path = ?3 where tenant_id = ?1 and id = ?2", params![id, display_path])
    }

    /// Marks a thing deleted. Its history stays.
    pub fn unregister<K>(&mut self, id: Id<K>) -> Result<()> {
        let now = self.now;
        self.post("update registry set deleted_at = ?3 where tenant_id = ?1 and id = ?2", params![id, now])
    }
}

/// All tenants, by name.
pub fn tenants(store: &crate::Store) -> Result<Vec<Tenant>> {
    store.ask_unscoped(&format!("{} order by name", Tenant::select()), &[])
}

/// The tenant of a name; asked before there is a tenant to scope by.
pub fn tenant_named(store: &crate::Store, name: &str) -> Result<TenantId> {
    let found = store.ask_unscoped::<(Uuid,)>("select id from tenants where name = ?1", params![name])?;
    match found[..] {
        [(id,)] => Ok(id.into()),
        _ => Err(no_tenant(name)),
    }
}

/// The tenant of a name, and the person of a handle there: who comes in by the operating system's word.
pub fn tenant_and_person(
    store: &crate::Store,
    name: &str,
    handle: &str,
) -> Result<(TenantId, Option<Id<kind::Person>>)> {
    let found = store.ask_unscoped::<(TenantId, Option<Id<kind::Person>>)>(
        "select t.id, (select p.id from people p where p.tenant_id = t.id and p.handle = ?2 and p.deleted_at is null)
         from tenants t where t.name = ?1",
        params![name, handle],
    )?;
    found.into_iter().next().ok_or_else(|| no_tenant(name))
}

/// The command that makes a thing, where it needs nothing but a name.
fn making(kind: Kind, name: &str) -> Option<Command> {
    match kind {
        Kind::Agent => Some(command!("agent set", handle = name)),
        Kind::Role => Some(command!("role set", name = name)),
        Kind::Workflow => Some(command!("workflow set", name = name)),
        _ => None,
    }
}

/// The command that lists things of a kind in `NAMED`.
fn listing(kind: Kind) -> Option<Command> {
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

fn no_tenant(name: &str) -> crate::Error {
    Rule::not_found(format!("there is no tenant {name:?}"))
        .hint(sentence![command!("tenant list"), " shows them; ", command!("init"), " makes the first"])
        .into()
}

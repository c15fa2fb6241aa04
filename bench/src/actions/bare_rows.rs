//! The rows that an action leaves behind, without the action.

use trackway_actions::Context;
use trackway_domain::{Id, Time, ids, kind};
use trackway_store::{
    Clock,
    sql::{Param, ToParam},
};
use uuid::Uuid;

use crate::{
    Outcome,
    bench_env::{BenchEnv, REGISTER},
};

pub const STUDIO: &str = "main";
pub const TITLE: &str = "What was found out on the way";
/// A note of a few lines.
pub const BODY: &str = "The build fails when the cache is cold: the index is read before it is written. Waiting for the \
    writer fixes it. Measured on both engines; the second run is not affected. Left for later: the same pattern in the \
    importer, which nobody has seen fail yet.";

/// An option of a decision, to be voted on.
#[derive(Debug, Clone)]
pub struct Ballot {
    pub decision: Id<kind::Decision>,
    pub option: Id<kind::DecisionOption>,
    pub title: String,
}

/// Where rows go, and in whose name.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    tenant: Uuid,
    studio: Uuid,
    actor: Uuid,
    run: Uuid,
}

impl Place {
    pub fn of(env: &BenchEnv, context: &Context) -> Outcome<Self> {
        Ok(Self {
            tenant: context.tenant.uuid(),
            studio: env.named("studios", "name", STUDIO)?,
            actor: context.actor.id(),
            run: context.run.ok_or("a writer needs a run")?.uuid(),
        })
    }
}

/// The statements, each prepared once.
#[derive(Debug, Clone, Copy)]
pub enum Insert {
    Note,
    NoteRevision,
    Vote,
    Registry,
    Touch,
    Event,
}

/// Their texts, in the order of [`Insert`].
pub const INSERTS: [&str; 6] = [
    "insert into notes (id, tenant_id, studio_id, title, body, revision, pinned, created_at, updated_at) values (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?7)",
    "insert into note_revisions (note_id, tenant_id, number, title, body, actor_kind, actor_id, run_id, created_at) values (?1, ?2, 1, ?3, ?4, 'agent', ?5, ?6, ?7)",
    "insert into votes (id, tenant_id, option_id, actor_kind, actor_id, accepted, preferred, created_at, updated_at) values (?1, ?2, ?3, 'agent', ?4, ?5, ?6, ?7, ?7)",
    REGISTER,
    "insert into run_resources (tenant_id, id, run_id, resource_type, resource_id, resource_studio_id, action_type, display_path, first_at, last_at, times)
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, 1)
     on conflict (run_id, resource_type, resource_id, action_type)
     do update set last_at = excluded.last_at, display_path = excluded.display_path, times = run_resources.times + 1",
    "insert into events (tenant_id, created_at, actor_kind, actor_id, run_id, request_id, action, subject_kind, subject_id, subject_path)
     values (?1, ?2, 'agent', ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
];

/// One row to insert.
pub type Row<'a> = (Insert, Vec<Param<'a>>);

macro_rules! bound {
    ($($value:expr),* $(,)?) => { vec![$(owned(&$value)),*] };
}

fn owned<T: ToParam + ?Sized>(value: &T) -> Param<'static> {
    value.to_param().into_owned()
}

/// The rows of one note.
pub fn of_note(place: Place) -> Vec<Row<'static>> {
    let now = Clock::system().now();
    let id = Id::<kind::Note>::new(now).uuid();
    let path = format!("{STUDIO}/notes/{TITLE}");
    let mut rows = vec![
        (Insert::Note, bound![id, place.tenant, place.studio, *TITLE, *BODY, false, now]),
        (Insert::NoteRevision, bound![id, place.tenant, *TITLE, *BODY, place.actor, place.run, now]),
    ];
    rows.extend(of_touch(place, now, id, "note", "create", "create_note", &path));
    rows
}

/// The rows of one first vote.
pub fn of_vote(place: Place, ballot: &Ballot) -> Vec<Row<'static>> {
    let now = Clock::system().now();
    let id = Id::<kind::Vote>::new(now).uuid();
    let path = format!("{STUDIO}/decisions/Which way?/{}", ballot.title);
    let mut rows = vec![(Insert::Vote, bound![id, place.tenant, ballot.option, place.actor, true, false, now])];
    rows.extend(of_touch(place, now, id, "vote", "vote", "vote", &path));
    rows
}

fn of_touch(
    place: Place,
    now: Time,
    id: Uuid,
    kind: &str,
    action_type: &str,
    action: &str,
    path: &str,
) -> [Row<'static>; 3] {
    let touch = Id::<kind::Run>::new(now).uuid();
    [
        (Insert::Registry, bound![place.tenant, id, *kind, place.studio, *path, ids::short_key(id), place.actor, now]),
        (Insert::Touch, bound![place.tenant, touch, place.run, *kind, id, place.studio, *action_type, *path, now]),
        (Insert::Event, bound![place.tenant, now, place.actor, place.run, Uuid::now_v7(), *action, *kind, id, *path]),
    ]
}

//! A growing record: runs that write notes and change those of earlier runs.

use serde_json::json;
use trackway_domain::{
    Id, Time, ids, kind,
    kind::{ActionType, ResourceType},
    words::{RunMode, RunStatus},
};
use trackway_store::{
    Table, TenantId, Url, params,
    tables::{Note, Run, Touch},
};
use uuid::Uuid;

use crate::{
    Outcome,
    bench_env::{AGENT, BenchEnv, Bulk, REGISTER},
    identity::{Numbered, id, micros, mixed, place},
};

/// Notes that each run writes.
const WRITTEN: u64 = 5;
/// How many runs later the first three, and the first two, of them are changed.
const CHANGED_SOON: u64 = 1;
const CHANGED_LATE: u64 = 37;
/// Runs of which each starts the next.
const CHAIN: u64 = 4;
/// Every so many runs, one changes the note that many change.
const POPULAR_EVERY: u64 = 100;
const TASKS: usize = 200;

/// What was recorded so far.
#[derive(Debug)]
pub struct History {
    runs: u64,
    touches: u64,
    popular: Uuid,
    tenant: TenantId,
    studio: Id<kind::Studio>,
    agent: Id<kind::Agent>,
    role: Id<kind::Role>,
    person: Id<kind::Person>,
    tasks: Vec<Id<kind::Task>>,
}

impl History {
    pub fn begin(env: &BenchEnv) -> Outcome<Self> {
        let mut tasks = Vec::with_capacity(TASKS);
        for number in 0..TASKS {
            let variant = format!("build/step-{number}");
            env.act("set_task", json!({ "workflow": "unit", "variant": variant }))?;
            tasks.push(env.named("tasks", "variant", &variant)?.into());
        }
        let popular = env.act("create_note", json!({ "studio": "main", "title": "Glossary" }))?;
        Ok(Self {
            runs: 0,
            touches: 0,
            popular: popular["id"].as_str().ok_or("a note without an id")?.parse()?,
            tenant: env.tenant(),
            studio: env.named("studios", "name", "main")?.into(),
            agent: env.named("agents", "handle", AGENT)?.into(),
            role: env.named("roles", "name", "builder")?.into(),
            person: env.person.actor.id().into(),
            tasks,
        })
    }

    pub fn runs(&self) -> u64 {
        self.runs
    }

    pub fn notes(&self) -> u64 {
        self.runs * WRITTEN
    }

    pub fn touches(&self) -> u64 {
        self.touches
    }

    pub fn popular(&self) -> Uuid {
        self.popular
    }

    /// Adds runs until there are this many touches.
    pub fn grow(&mut self, env: &BenchEnv, touches: u64) -> Outcome<()> {
        let mut bulk = Bulk::begin(&env.database)?;
        while self.touches < touches {
            self.add_run(&mut bulk)?;
        }
        bulk.end()
    }

    fn add_run(&mut self, bulk: &mut Bulk) -> Outcome<()> {
        let number = self.runs;
        self.runs += 1;
        let run = self.run(number);
        bulk.insert(Run::insert_sql(), &run.params())?;
        self.register(bulk, run.id.uuid(), "run", None, &format!("runs/{}", run.id.short()), run.started_at)?;
        for note in number * WRITTEN..self.runs * WRITTEN {
            self.add_note(bulk, note)?;
            self.touch(bulk, number, id(Numbered::Note, note), note, ActionType::Create)?;
        }
        for (later, changed) in [(CHANGED_SOON, 3), (CHANGED_LATE, 2)] {
            let Some(earlier) = number.checked_sub(later) else { continue };
            for note in earlier * WRITTEN..earlier * WRITTEN + changed {
                self.touch(bulk, number, id(Numbered::Note, note), note, ActionType::Update)?;
            }
        }
        if number.is_multiple_of(POPULAR_EVERY) {
            self.touch(bulk, number, self.popular, 0, ActionType::Update)?;
        }
        Ok(())
    }

    fn run(&self, number: u64) -> Run {
        let started_at = Time::from_micros(micros(number));
        let parent = (!number.is_multiple_of(CHAIN)).then(|| id(Numbered::Run, number - 1));
        Run {
            id: id(Numbered::Run, number).into(),
            tenant_id: self.tenant,
            agent_id: self.agent,
            role_id: Some(self.role),
            task_id: self.tasks.get(place(mixed(number), TASKS)).copied(),
            task_revision: Some(1),
            parent_run_id: parent.map(Id::from),
            initiated_by: Some(self.person),
            cause_kind: parent.map(|_| "run".to_owned()),
            cause_id: parent,
            chain_depth: i64::try_from(number % CHAIN).unwrap_or_default(),
            workspace_id: None,
            mode: RunMode::Agent,
            status: RunStatus::Completed,
            outcome: Some("done".to_owned()),
            final_message: Some("Built, and wrote down what was found.".to_owned()),
            error: None,
            max_steps: 30,
            started_at,
            ended_at: Some(started_at.plus_seconds(90)),
            session_id: None,
            subagent_id: None,
            prompt_id: None,
            prompt_line: None,
            prompt_hash: None,
            hooked: false,
            asked_at: None,
            queue_item_id: None,
            fence: None,
            token_hash: None,
            cancel_wanted_at: None,
            attached: false,
            drives_task: false,
            keep_open: false,
            answered_at: None,
        }
    }

    fn add_note(&self, bulk: &mut Bulk, number: u64) -> Outcome<()> {
        let now = Time::from_micros(micros(number));
        let note = Note {
            id: id(Numbered::Note, number).into(),
            tenant_id: self.tenant,
            studio_id: self.studio,
            title: format!("Finding {number}"),
            body: "The index is read before it is written when the cache is cold; waiting for the writer fixes it, on \
                   both engines. Left for later: the importer."
                .to_owned(),
            revision: 1,
            pinned: false,
            about_id: None,
            created_at: now,
            updated_at: now,
            archived_at: None,
            deleted_at: None,
        };
        bulk.insert(Note::insert_sql(), &note.params())?;
        self.register(bulk, note.id.uuid(), "note", Some(self.studio), &path(number), now)
    }

    fn touch(&mut self, bulk: &mut Bulk, run: u64, note: Uuid, number: u64, action_type: ActionType) -> Outcome<()> {
        let now = Time::from_micros(micros(run) + i64::try_from(self.touches % 10).unwrap_or_default());
        let touch = Touch {
            id: id(Numbered::Touch, self.touches),
            tenant_id: self.tenant,
            run_id: id(Numbered::Run, run).into(),
            resource_type: ResourceType::Note,
            resource_id: note,
            resource_studio_id: Some(self.studio),
            action_type,
            display_path: path(number),
            first_at: now,
            last_at: now,
            times: 1,
        };
        self.touches += 1;
        bulk.insert(Touch::insert_sql(), &touch.params())
    }

    fn register(
        &self,
        bulk: &mut Bulk,
        id: Uuid,
        kind: &str,
        studio: Option<Id<kind::Studio>>,
        path: &str,
        now: Time,
    ) -> Outcome<()> {
        let short_key = ids::short_key(id);
        bulk.insert(REGISTER, params![self.tenant, id, *kind, studio, *path, short_key, self.agent, now])
    }
}

fn path(note: u64) -> String {
    format!("main/notes/Finding {note}")
}

/// How large the database is.
pub fn bytes(env: &BenchEnv) -> Outcome<u64> {
    if let Url::Sqlite(file) = env.database.url() {
        return Ok(std::fs::metadata(file)?.len());
    }
    let size = "select pg_database_size(current_database())";
    let rows = env.core.store().read(env.tenant())?.query_unscoped::<(i64,)>(size, &[])?;
    Ok(rows.first().map_or(0, |(bytes,)| u64::try_from(*bytes).unwrap_or_default()))
}

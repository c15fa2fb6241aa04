//! Fills the database with runs that write notes and update notes of earlier runs.

use serde_json::json;
use trackway_domain::{
    Id, Time,
    enums::{RunMode, RunStatus},
    ids, kind,
    kind::{ActionType, ResourceType},
};
use trackway_store::{
    Table, TenantId, Url, params,
    tables::{Note, Run, Touch},
};
use uuid::Uuid;

use crate::{
    BenchResult,
    bench_env::{AGENT, BenchEnv, BulkInsert, INSERT_REGISTRY_ENTRY},
    bulk_ids::{IdKind, bulk_id, created_micros, index_in, splitmix64},
};

const NOTES_PER_RUN: u64 = 5;
/// Each run updates the first three notes of the run that came this many runs earlier.
const FIRST_UPDATE_AFTER: u64 = 1;
/// Each run also updates the first two notes of the run that came this many runs earlier.
const SECOND_UPDATE_AFTER: u64 = 37;
/// Length of the chains of runs in which each run starts the next.
const CHAIN: u64 = 4;
/// One of this many runs updates the popular note.
const POPULAR_EVERY: u64 = 100;
const TASKS: usize = 200;

/// The rows inserted so far.
#[derive(Debug)]
pub struct History {
    runs: u64,
    touches: u64,
    popular_note: Uuid,
    tenant: TenantId,
    studio: Id<kind::Studio>,
    agent: Id<kind::Agent>,
    role: Id<kind::Role>,
    person: Id<kind::Person>,
    tasks: Vec<Id<kind::Task>>,
}

impl History {
    pub fn begin(env: &BenchEnv) -> BenchResult<Self> {
        let mut tasks = Vec::with_capacity(TASKS);
        for number in 0..TASKS {
            let variant = format!("build/step-{number}");
            env.execute_json("set_task", json!({ "workflow": "unit", "variant": variant }))?;
            tasks.push(env.id_of("tasks", "variant", &variant)?.into());
        }
        let popular_note = env.execute_json("create_note", json!({ "studio": "main", "title": "Glossary" }))?;
        Ok(Self {
            runs: 0,
            touches: 0,
            popular_note: popular_note["id"].as_str().ok_or("a note without an id")?.parse()?,
            tenant: env.tenant(),
            studio: env.id_of("studios", "name", "main")?.into(),
            agent: env.id_of("agents", "handle", AGENT)?.into(),
            role: env.id_of("roles", "name", "builder")?.into(),
            person: env.person.actor.id().into(),
            tasks,
        })
    }

    pub fn runs(&self) -> u64 {
        self.runs
    }

    pub fn notes(&self) -> u64 {
        self.runs * NOTES_PER_RUN
    }

    pub fn touches(&self) -> u64 {
        self.touches
    }

    pub fn popular_note(&self) -> Uuid {
        self.popular_note
    }

    /// Inserts runs until there are this many touches.
    pub fn grow(&mut self, env: &BenchEnv, touches: u64) -> BenchResult<()> {
        let mut bulk = BulkInsert::begin(&env.database)?;
        while self.touches < touches {
            self.add_run(&mut bulk)?;
        }
        bulk.end()
    }

    fn add_run(&mut self, bulk: &mut BulkInsert) -> BenchResult<()> {
        let number = self.runs;
        self.runs += 1;
        let run = self.run(number);
        bulk.insert(Run::insert_sql(), &run.params())?;
        self.register(bulk, run.id.uuid(), "run", None, &format!("runs/{}", run.id.short()), run.started_at)?;
        for note in number * NOTES_PER_RUN..self.runs * NOTES_PER_RUN {
            self.add_note(bulk, note)?;
            self.touch(bulk, number, bulk_id(IdKind::Note, note), note, ActionType::Create)?;
        }
        for (distance, note_count) in [(FIRST_UPDATE_AFTER, 3), (SECOND_UPDATE_AFTER, 2)] {
            let Some(earlier) = number.checked_sub(distance) else { continue };
            for note in earlier * NOTES_PER_RUN..earlier * NOTES_PER_RUN + note_count {
                self.touch(bulk, number, bulk_id(IdKind::Note, note), note, ActionType::Update)?;
            }
        }
        if number.is_multiple_of(POPULAR_EVERY) {
            self.touch(bulk, number, self.popular_note, 0, ActionType::Update)?;
        }
        Ok(())
    }

    fn run(&self, number: u64) -> Run {
        let started_at = Time::from_micros(created_micros(number));
        let parent = (!number.is_multiple_of(CHAIN)).then(|| bulk_id(IdKind::Run, number - 1));
        Run {
            id: bulk_id(IdKind::Run, number).into(),
            tenant_id: self.tenant,
            agent_id: self.agent,
            role_id: Some(self.role),
            task_id: self.tasks.get(index_in(splitmix64(number), TASKS)).copied(),
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
            final_message: Some("Built, and recorded the findings.".to_owned()),
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

    fn add_note(&self, bulk: &mut BulkInsert, number: u64) -> BenchResult<()> {
        let now = Time::from_micros(created_micros(number));
        let note = Note {
            id: bulk_id(IdKind::Note, number).into(),
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
        self.register(bulk, note.id.uuid(), "note", Some(self.studio), &note_path(number), now)
    }

    fn touch(
        &mut self,
        bulk: &mut BulkInsert,
        run: u64,
        note: Uuid,
        number: u64,
        action_type: ActionType,
    ) -> BenchResult<()> {
        let now = Time::from_micros(created_micros(run) + i64::try_from(self.touches % 10).unwrap_or_default());
        let touch = Touch {
            id: bulk_id(IdKind::Touch, self.touches),
            tenant_id: self.tenant,
            run_id: bulk_id(IdKind::Run, run).into(),
            resource_type: ResourceType::Note,
            resource_id: note,
            resource_studio_id: Some(self.studio),
            action_type,
            display_path: note_path(number),
            first_at: now,
            last_at: now,
            times: 1,
        };
        self.touches += 1;
        bulk.insert(Touch::insert_sql(), &touch.params())
    }

    fn register(
        &self,
        bulk: &mut BulkInsert,
        id: Uuid,
        kind: &str,
        studio: Option<Id<kind::Studio>>,
        path: &str,
        now: Time,
    ) -> BenchResult<()> {
        let short_key = ids::short_key(id);
        bulk.insert(INSERT_REGISTRY_ENTRY, params![self.tenant, id, *kind, studio, *path, short_key, self.agent, now])
    }
}

fn note_path(note: u64) -> String {
    format!("main/notes/Finding {note}")
}

/// The size of the database.
pub fn database_bytes(env: &BenchEnv) -> BenchResult<u64> {
    if let Url::Sqlite(file) = env.database.url() {
        return Ok(std::fs::metadata(file)?.len());
    }
    let size = "select pg_database_size(current_database())";
    let rows = env.core.store().read(env.tenant())?.query_unscoped::<(i64,)>(size, &[])?;
    Ok(rows.first().map_or(0, |(bytes,)| u64::try_from(*bytes).unwrap_or_default()))
}

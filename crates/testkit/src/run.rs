//! A run in a test environment.

use serde_json::{Value, json};
use trackway_actions::{Action, Context, Credential, Result, context::Secret, run::StartedRun};
use trackway_domain::{
    Id,
    enums::RunStatus,
    kind::{self, ActionType, ResourceType},
};
use trackway_store::params;

use crate::test_env::{TestEnv, id};

/// A run of an agent, with its token. Its methods act as the agent in this run.
#[derive(Debug)]
pub struct TestRun<'env> {
    pub env: &'env TestEnv,
    pub id: Id<kind::Run>,
    pub token: Credential,
    pub context: Context,
}

impl<'env> TestRun<'env> {
    pub(crate) fn new(env: &'env TestEnv, started: StartedRun) -> Self {
        let token = Credential::Token(Secret(started.token));
        let context = env.core.authenticate(&token).unwrap();
        Self { env, id: started.run_id, token, context }
    }

    pub fn execute<A: Action>(&self, action: A) -> Result<A::Output> {
        self.env.core.execute(&self.context, &action)
    }

    /// Executes the action of this name with JSON input.
    pub fn execute_json(&self, action: &str, input: Value) -> Result<Value> {
        self.env.execute_json_as(&self.context, action, input)
    }

    pub fn create_note(&self, studio: &str, title: &str, body: &str) -> Id<kind::Note> {
        id(&self.execute_json("create_note", json!({ "studio": studio, "title": title, "body": body })).unwrap())
    }

    pub fn create_decision(&self, studio: &str, question: &str, options: &[&str]) -> Id<kind::Decision> {
        id(&self
            .execute_json("create_decision", json!({ "studio": studio, "question": question, "options": options }))
            .unwrap())
    }

    pub fn vote(&self, decision: Id<kind::Decision>, option: &str, accept: bool, prefer: bool) -> Id<kind::Vote> {
        id(&self
            .execute_json("vote", json!({ "decision": decision, "option": option, "accept": accept, "prefer": prefer }))
            .unwrap())
    }

    pub fn end(&self, status: RunStatus) {
        self.execute_json("end_run", json!({ "run": self.id, "status": status })).unwrap();
    }

    /// The touches of the run, in order: `create note main/notes/plan in main x1`.
    pub fn made(&self) -> Vec<String> {
        let touches = self.env.read(|reader| {
            Ok(reader.query::<(ActionType, ResourceType, String, Option<String>, i64)>(
                "select t.action_type, t.resource_type, t.display_path, s.name, t.times
                 from run_resources t left join studios s on s.id = t.resource_studio_id
                 where t.tenant_id = ?1 and t.run_id = ?2 order by t.first_at, t.resource_type, t.display_path",
                params![self.id],
            )?)
        });
        let line = |(action, resource, path, studio, times): (_, _, _, Option<String>, _)| {
            format!("{action} {resource} {path} in {} x{times}", studio.as_deref().unwrap_or("no studio"))
        };
        touches.into_iter().map(line).collect()
    }
}

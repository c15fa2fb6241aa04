//! Wakes the agent of a run: builds the wake document and stores it with the run.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{
    Id, Ref,
    enums::StepType,
    kind,
    wake_context::{Cut, Section, digest},
};
use trackway_store::{
    Writer, params,
    tables::{RunWake, StoredWakeContext},
    wake::WakeRequest,
};

use super::{RunningRun, step};
use crate::{
    action::{Action, ActionOutcome},
    context::Context,
    error::Result,
    touched::NoTouches,
};

/// Build the wake document for the agent of a run, and store it with the run
///
/// `run show --wake` prints the stored document later.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct WakeRun {
    /// Run to build the document for
    pub run: Ref<kind::Run>,
}

/// The wake document that an agent receives.
#[derive(Debug, Serialize)]
pub struct WakeResult {
    pub run_id: Id<kind::Run>,
    pub digest: String,
    pub sections: Vec<Section>,
    pub cut: Vec<Cut>,
    /// The whole document, as Markdown.
    pub text: String,
}

impl Action for WakeRun {
    const NAME: &'static str = "wake_run";
    const COMMAND: (&'static str, &'static str) = ("run", "wake");
    type Touched = NoTouches;
    type Output = WakeResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        let (agent, task) = (run.0.agent_id, run.0.task_id);
        let now = write.now;
        let context_for_wake = write.wake_context(WakeRequest { agent: Some(agent), task, run: Some(run.id()) }, now);
        let (text, problems) = (context_for_wake.markdown(), context_for_wake.problems());
        let digest = digest(&text);
        write.insert_new(&StoredWakeContext {
            digest: digest.clone(),
            tenant_id: context.tenant,
            content: text.clone(),
            sections: json!(context_for_wake.sections),
            cuts: json!(context_for_wake.cuts),
            created_at: now,
        })?;
        let wakes =
            write.count("select count(*) from run_wakes where tenant_id = ?1 and run_id = ?2", params![run.id()])?;
        write.insert(&RunWake {
            run_id: run.id(),
            tenant_id: context.tenant,
            position: wakes + 1,
            agent_id: agent,
            task_id: task,
            digest: digest.clone(),
            created_at: now,
        })?;
        let characters = text.chars().count();
        let problem_lines = problems.iter().fold(String::new(), |all, problem| format!("{all}\n{problem}"));
        let step_detail = format!("{characters} characters, sha256 {digest}{problem_lines}");
        step::append(write, run.id(), StepType::Wake, Some(step_detail), now)?;
        let detail = json!({
            "digest": digest, "characters": characters, "unavailable": problems.len(), "problems": problems, "cut": context_for_wake.cuts,
        });
        let result = WakeResult {
            run_id: run.id(),
            digest,
            sections: context_for_wake.sections,
            cut: context_for_wake.cuts,
            text,
        };
        Ok(ActionOutcome::changed(result, &run.resource(), NoTouches).with_detail(detail))
    }
}

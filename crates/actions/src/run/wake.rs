//! Waking: putting together what the agent of a run needs to know, and keeping what it was told.

use serde::{Deserialize, Serialize};
use serde_json::json;
use trackway_domain::{
    Id, Ref, kind,
    wake_context::{Cut, Section, digest},
    words::StepType,
};
use trackway_store::{
    Writer, params,
    tables::{RunWake, ToldContext},
    wake::Waking,
};

use super::{RunningRun, step};
use crate::{
    action::{Action, Done},
    context::Context,
    error::Result,
    touched::Nothing,
};

/// Put together what the agent of a run needs to know, and keep it with the run
///
/// `run show --wake` shows later exactly what it was told.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct WakeRun {
    /// The run
    pub run: Ref<kind::Run>,
}

/// What an agent was told.
#[derive(Debug, Serialize)]
pub struct Woken {
    pub run_id: Id<kind::Run>,
    pub digest: String,
    pub sections: Vec<Section>,
    pub cut: Vec<Cut>,
    /// All of it, as Markdown.
    pub text: String,
}

impl Action for WakeRun {
    const NAME: &'static str = "wake_run";
    const COMMAND: (&'static str, &'static str) = ("run", "wake");
    type Touched = Nothing;
    type Output = Woken;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let run = RunningRun::find(context, write, &self.run)?;
        context.require_own_run(run.id())?;
        let (agent, task) = (run.0.agent_id, run.0.task_id);
        let now = write.now;
        let told = write.wake_context(Waking { agent: Some(agent), task, run: Some(run.id()) }, now);
        let (text, problems) = (told.markdown(), told.problems());
        let digest = digest(&text);
        write.insert_new(&ToldContext {
            digest: digest.clone(),
            tenant_id: context.tenant,
            content: text.clone(),
            sections: json!(told.sections),
            cuts: json!(told.cuts),
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
        let missing = problems.iter().fold(String::new(), |all, problem| format!("{all}\n{problem}"));
        let said = format!("{characters} characters, sha256 {digest}{missing}");
        step::append(write, run.id(), StepType::Wake, Some(said), now)?;
        let detail = json!({
            "digest": digest, "characters": characters, "unavailable": problems.len(), "problems": problems, "cut": told.cuts,
        });
        let woken = Woken { run_id: run.id(), digest, sections: told.sections, cut: told.cuts, text };
        Ok(Done::changed(woken, &run.resource(), Nothing).with_detail(detail))
    }
}

//! Saves an agent's answer to the end-of-run prompt: its scratchpad and its report.

use trackway_domain::{
    Time, closing,
    enums::StepType,
    scratchpad::{ScratchpadReply, parse_reply},
    text,
};
use trackway_store::{Writer, tables::Run};

use crate::{
    context::{Actor, Context},
    error::Result,
    report::{ReportOrigin, ReportResult, write_report},
    scratchpad::write_revision,
};

/// Maximum characters of the new scratchpad in the step that records the update.
const STEP_TEXT_MAX: usize = 100;

/// The result of saving an answer: the steps to record, and the report, if the answer contains one.
#[derive(Debug)]
pub(crate) struct SavedReply {
    pub steps: Vec<(StepType, String)>,
    pub report: Option<ReportResult>,
}

impl SavedReply {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self { steps: vec![(StepType::ScratchpadUpdateFailed, why.into())], report: None }
    }
}

/// The scratchpad revision that the agent saw before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScratchpadBasis {
    /// The revision is unknown. The answer replaces the scratchpad.
    Unknown,
    /// This revision. If the scratchpad has changed since, saving fails, so that the agent can be asked again.
    Revision(i64),
    /// An older revision, and there is no time to ask the agent again. The scratchpad stays unchanged.
    Outdated,
}

/// Saves the answer to an end-of-run prompt, with the agent as the author.
pub(crate) fn save_end_of_run_reply(
    context: &Context,
    write: &mut Writer<'_>,
    run: &Run,
    answer: &str,
    basis: ScratchpadBasis,
    at: Time,
) -> Result<SavedReply> {
    let Some(object) = closing::find_object(answer) else {
        return Ok(SavedReply::failed("the answer contains no valid JSON object"));
    };
    let step = match parse_reply(object.get("scratchpad")) {
        ScratchpadReply::Keep => None,
        ScratchpadReply::Invalid(reason) => Some((StepType::ScratchpadUpdateFailed, reason)),
        ScratchpadReply::Replace(_) if basis == ScratchpadBasis::Outdated => {
            let why = "scratchpad not updated: another run of the agent has changed it since";
            Some((StepType::ScratchpadUpdateFailed, why.to_owned()))
        }
        ScratchpadReply::Replace(content) => {
            let step_text = text::cut(&content, STEP_TEXT_MAX);
            let agent_context = Context { actor: Actor::Agent(run.agent_id), run: Some(run.id), ..context.clone() };
            let revision = match basis {
                ScratchpadBasis::Revision(revision) => Some(revision),
                ScratchpadBasis::Unknown | ScratchpadBasis::Outdated => None,
            };
            write_revision(&agent_context, write, run.agent_id, content, revision)?;
            Some((StepType::ScratchpadUpdate, step_text))
        }
    };
    let origin = ReportOrigin { agent: run.agent_id, task: run.task_id, run: Some(run.id), at };
    let mut steps: Vec<_> = step.into_iter().collect();
    let report = closing::parse_report(&object).unwrap_or_else(|why| {
        steps.push((StepType::Error, format!("the report was not saved: {why}")));
        None
    });
    let report = report.map(|report| write_report(write, origin, report)).transpose()?;
    Ok(SavedReply { steps, report })
}

//! What an agent says when its run ends, written down: its scratchpad and its report.

use trackway_domain::{
    Time, closing,
    scratchpad::{EndOfRun, at_end_of_run},
    text,
    words::StepType,
};
use trackway_store::{Writer, tables::Run};

use crate::{
    context::{Actor, Context},
    error::Result,
    report::{Reported, Reporting, write_report},
    scratchpad::write_revision,
};

/// Characters of a saved scratchpad that its step shows.
const SHOWN: usize = 100;

/// What came of an answer: steps that say so, and the report, if there is one.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub steps: Vec<(StepType, String)>,
    pub report: Option<Reported>,
}

impl Remembered {
    pub(crate) fn nothing(why: impl Into<String>) -> Self {
        Self { steps: vec![(StepType::ScratchpadUpdateFailed, why.into())], report: None }
    }
}

/// Which scratchpad the agent saw when it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saw {
    /// Nobody knows: what it says stands.
    Unknown,
    /// This revision; when there is another by now, it is asked again.
    Revision(i64),
    /// An older one, and it will not be asked again: what is there stays.
    Older,
}

/// Writes the answer to an end-of-run prompt down, as the agent's own words in its run.
pub(crate) fn remember(
    context: &Context,
    write: &mut Writer<'_>,
    run: &Run,
    answer: &str,
    saw: Saw,
    at: Time,
) -> Result<Remembered> {
    let Some(object) = closing::object(answer) else {
        return Ok(Remembered::nothing("the answer holds no JSON object that can be read"));
    };
    let step = match at_end_of_run(object.get("scratchpad")) {
        EndOfRun::Keep => None,
        EndOfRun::Refused(reason) => Some((StepType::ScratchpadUpdateFailed, reason)),
        EndOfRun::Replace(_) if saw == Saw::Older => {
            let why = "another run of the agent wrote it meanwhile: that stays";
            Some((StepType::ScratchpadUpdateFailed, why.to_owned()))
        }
        EndOfRun::Replace(content) => {
            let shown = text::cut(&content, SHOWN);
            let own = Context { actor: Actor::Agent(run.agent_id), run: Some(run.id), ..context.clone() };
            let revision = match saw {
                Saw::Revision(revision) => Some(revision),
                Saw::Unknown | Saw::Older => None,
            };
            write_revision(&own, write, run.agent_id, content, revision)?;
            Some((StepType::ScratchpadUpdate, shown))
        }
    };
    let by = Reporting { agent: run.agent_id, task: run.task_id, run: Some(run.id), at };
    let mut steps: Vec<_> = step.into_iter().collect();
    let said = closing::report(&object).unwrap_or_else(|why| {
        steps.push((StepType::Error, format!("no report was kept: {why}")));
        None
    });
    let report = said.map(|said| write_report(write, by, said)).transpose()?;
    Ok(Remembered { steps, report })
}

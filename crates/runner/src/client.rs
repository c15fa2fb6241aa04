//! Executes items of client-driven agents: starts the installed client in the directory of the workspace.
//!
//! The client runs like a script, so that timeouts, cancellation and clean-up work the same way.

use trackway_actions::run::RecordUsage;
use trackway_capture::{
    client::{Client, Clients},
    launch::{ClientReport, LaunchScript, Launcher},
};
use trackway_domain::{Id, kind, text};
use trackway_views::assignment::Assignment;

use crate::executor::ExecutionEnd;

/// A client that a worker can start.
#[derive(Debug, Clone)]
pub struct LaunchableClient {
    pub client: &'static dyn Client,
    /// The reason why the client cannot be started here, or `None` if it can.
    pub unavailable_reason: Option<String>,
}

pub fn launchable_clients(clients: Clients) -> Vec<LaunchableClient> {
    let launchable = |client: &&'static dyn Client| {
        let launcher = client.launcher()?;
        Some(LaunchableClient { client: *client, unavailable_reason: launcher.unavailable_reason() })
    };
    clients.0.iter().filter_map(launchable).collect()
}

/// Finds a client by name, or the reason why it cannot be started.
pub(crate) fn find<'a>(
    clients: &'a [LaunchableClient],
    name: &str,
) -> Result<(&'static dyn Client, &'static dyn Launcher), &'a str> {
    let known = clients.iter().find(|known| known.client.name() == name);
    let launchable = known.ok_or("this version of Trackway cannot start its client")?;
    match (&launchable.unavailable_reason, launchable.client.launcher()) {
        (None, Some(launcher)) => Ok((launchable.client, launcher)),
        (Some(missing), _) => Err(missing),
        (None, None) => Err("this version of Trackway cannot start its client"),
    }
}

/// An assignment whose script starts the client.
pub(crate) fn as_script(assignment: &Assignment, start: &LaunchScript) -> Assignment {
    Assignment {
        script: Some(start.script.to_owned()),
        shell: Some(start.shell.to_owned()),
        message_body: Some(start.input.clone()),
        ..assignment.clone()
    }
}

/// Records the cost of a session for each model. Omits the tokens of the session, because they are read from the
/// transcript.
pub(crate) fn cost_actions(run: Id<kind::Run>, report: Option<&ClientReport>, model: Option<&str>) -> Vec<RecordUsage> {
    let Some(report) = report else { return Vec::new() };
    let session = report.session.as_deref().unwrap_or_default();
    let line = |text: &str| text::cut(&text::clean_line(text), text::LINE_MAX - 1);
    let row = |(named, cost): &(Option<String>, f64)| {
        let model = named.as_deref().or(model);
        RecordUsage {
            run: run.into(),
            model: model.map(line),
            message_id: Some(line(&format!("cost {} {session} {}", run.uuid().simple(), model.unwrap_or_default()))),
            input_tokens: None,
            output_tokens: None,
            cache_creation_tokens: None,
            cache_read_tokens: None,
            cost: Some(*cost),
        }
    };
    report.costs.iter().map(row).collect()
}

/// Converts the client's report into the end of the run. `name` is the client's display name.
pub(crate) fn end_from_report(
    end: ExecutionEnd,
    report: Option<&ClientReport>,
    name: &str,
    max_steps: i64,
) -> ExecutionEnd {
    let Some(report) = report else {
        return match end {
            ExecutionEnd::Completed { .. } => ExecutionEnd::Failed { error: format!("{name} gave no result") },
            other => other,
        };
    };
    match end {
        ExecutionEnd::Completed { .. } | ExecutionEnd::Failed { .. } if report.reached_max_turns => {
            ExecutionEnd::MaxSteps { steps: max_steps }
        }
        ExecutionEnd::Completed { .. } | ExecutionEnd::Failed { .. }
            if report.failed || matches!(end, ExecutionEnd::Failed { .. }) =>
        {
            ExecutionEnd::Failed { error: report.failure_reason.clone().unwrap_or_else(|| format!("{name} failed")) }
        }
        ExecutionEnd::Completed { .. } => {
            ExecutionEnd::Completed { message: report.message.clone(), result: report.result.clone() }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trackway_domain::Time;

    use super::*;

    fn completed() -> ExecutionEnd {
        ExecutionEnd::Completed { message: Some("{".into()), result: json!({ "exit_code": 0 }) }
    }

    fn report() -> ClientReport {
        let result = json!({ "session_id": "s", "turns": 2, "cost": 0.5 });
        let message = Some("Done.".to_owned());
        ClientReport {
            session: Some("s".into()),
            failure_reason: message.clone(),
            message,
            result,
            ..ClientReport::default()
        }
    }

    #[test]
    fn report_decides_how_the_run_ended() {
        let end =
            |before: ExecutionEnd, report: Option<&ClientReport>| end_from_report(before, report, "The client", 30);
        let result = json!({ "session_id": "s", "turns": 2, "cost": 0.5 });
        let good = ExecutionEnd::Completed { message: Some("Done.".into()), result };
        assert_eq!(end(completed(), Some(&report())), good);
        let bad = ClientReport { failed: true, failure_reason: Some("No credit.".into()), ..report() };
        assert_eq!(end(completed(), Some(&bad)), ExecutionEnd::Failed { error: "No credit.".into() });
        assert_eq!(end(completed(), None), ExecutionEnd::Failed { error: "The client gave no result".into() });
        assert_eq!(end(ExecutionEnd::Lost, Some(&report())), ExecutionEnd::Lost);
        let failed = ExecutionEnd::Failed { error: "exit code 1".into() };
        assert_eq!(end(failed.clone(), None), failed);
        assert_eq!(end(failed.clone(), Some(&report())), ExecutionEnd::Failed { error: "Done.".into() });
        let stopped = ClientReport { reached_max_turns: true, ..report() };
        assert_eq!(end(failed, Some(&stopped)), ExecutionEnd::MaxSteps { steps: 30 });
    }

    #[test]
    fn costs_without_a_model_count_for_the_agents_model() {
        let cost = |of_models: Vec<(Option<String>, f64)>| -> Vec<(Option<String>, Option<f64>)> {
            let report = ClientReport { costs: of_models, ..report() };
            let rows = cost_actions(Id::new(Time::from_micros(0)), Some(&report), Some("m-1"));
            rows.into_iter().map(|usage| (usage.model, usage.cost)).collect()
        };
        let of_models = vec![(Some("opus".to_owned()), 0.5), (Some("haiku".to_owned()), 0.25)];
        assert_eq!(cost(of_models), [(Some("opus".into()), Some(0.5)), (Some("haiku".into()), Some(0.25))]);
        assert_eq!(cost(vec![(None, 0.75)]), [(Some("m-1".into()), Some(0.75))]);
        assert_eq!(cost(Vec::new()), []);
    }
}

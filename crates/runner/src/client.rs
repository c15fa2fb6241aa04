//! The executor for agents that a client drives: the installed client, started in the directory of the workspace.
//!
//! It is started as a script is, so that it ends as one does.

use trackway_actions::run::RecordUsage;
use trackway_capture::{
    client::{Client, Clients},
    launch::{Launcher, Report, Start},
};
use trackway_domain::{Id, kind, text};
use trackway_views::assignment::Assignment;

use crate::executor::Ended;

/// A client that can drive agents.
#[derive(Debug, Clone)]
pub struct Startable {
    pub client: &'static dyn Client,
    /// Why it cannot be started here.
    pub missing: Option<String>,
}

/// The clients that can be started for a task, and why some cannot be here.
pub fn startable(clients: Clients) -> Vec<Startable> {
    let startable = |client: &&'static dyn Client| {
        let launcher = client.launcher()?;
        Some(Startable { client: *client, missing: launcher.missing() })
    };
    clients.0.iter().filter_map(startable).collect()
}

/// The client of a name and how it is started, else why it cannot be.
pub(crate) fn find<'a>(
    clients: &'a [Startable],
    name: &str,
) -> Result<(&'static dyn Client, &'static dyn Launcher), &'a str> {
    let known = clients.iter().find(|startable| startable.client.name() == name);
    let startable = known.ok_or("this program cannot start the client that drives it")?;
    match (&startable.missing, startable.client.launcher()) {
        (None, Some(launcher)) => Ok((startable.client, launcher)),
        (Some(missing), _) => Err(missing),
        (None, None) => Err("this program cannot start the client that drives it"),
    }
}

/// The same assignment as a script that starts the client.
pub(crate) fn as_script(assignment: &Assignment, start: &Start) -> Assignment {
    Assignment {
        script: Some(start.script.to_owned()),
        shell: Some(start.shell.to_owned()),
        message_body: Some(start.input.clone()),
        ..assignment.clone()
    }
}

/// What a session cost, for each model it used. Its tokens are counted call by call, from its transcript.
pub(crate) fn costs(run: Id<kind::Run>, report: Option<&Report>, model: Option<&str>) -> Vec<RecordUsage> {
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

/// How the client reports that it ended. `name` is what people call it.
pub(crate) fn ended(ended: Ended, report: Option<&Report>, name: &str) -> Ended {
    let Some(report) = report else {
        return match ended {
            Ended::Completed { .. } => Ended::Failed { error: format!("{name} gave no result") },
            other => other,
        };
    };
    match ended {
        Ended::Completed { .. } | Ended::Failed { .. } if report.failed || matches!(ended, Ended::Failed { .. }) => {
            Ended::Failed { error: report.why.clone().unwrap_or_else(|| format!("{name} failed")) }
        }
        Ended::Completed { .. } => Ended::Completed { message: report.message.clone(), result: report.result.clone() },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trackway_domain::Time;

    use super::*;

    fn completed() -> Ended {
        Ended::Completed { message: Some("{".into()), result: json!({ "exit_code": 0 }) }
    }

    fn report() -> Report {
        let result = json!({ "session_id": "s", "turns": 2, "cost": 0.5 });
        let message = Some("Done.".to_owned());
        Report { session: Some("s".into()), why: message.clone(), message, result, ..Report::default() }
    }

    #[test]
    fn the_report_says_how_it_ended() {
        let ended = |before: Ended, report: Option<&Report>| ended(before, report, "The client");
        let result = json!({ "session_id": "s", "turns": 2, "cost": 0.5 });
        let good = Ended::Completed { message: Some("Done.".into()), result };
        assert_eq!(ended(completed(), Some(&report())), good);
        let bad = Report { failed: true, why: Some("No credit.".into()), ..report() };
        assert_eq!(ended(completed(), Some(&bad)), Ended::Failed { error: "No credit.".into() });
        assert_eq!(ended(completed(), None), Ended::Failed { error: "The client gave no result".into() });
        assert_eq!(ended(Ended::Lost, Some(&report())), Ended::Lost);
        let failed = Ended::Failed { error: "exit code 1".into() };
        assert_eq!(ended(failed.clone(), None), failed);
        assert_eq!(ended(failed, Some(&report())), Ended::Failed { error: "Done.".into() });
    }

    #[test]
    fn costs_are_of_the_models_that_are_named_or_else_of_the_agents() {
        let cost = |of_models: Vec<(Option<String>, f64)>| -> Vec<(Option<String>, Option<f64>)> {
            let report = Report { costs: of_models, ..report() };
            let rows = costs(Id::new(Time::from_micros(0)), Some(&report), Some("m-1"));
            rows.into_iter().map(|usage| (usage.model, usage.cost)).collect()
        };
        let of_models = vec![(Some("opus".to_owned()), 0.5), (Some("haiku".to_owned()), 0.25)];
        assert_eq!(cost(of_models), [(Some("opus".into()), Some(0.5)), (Some("haiku".into()), Some(0.25))]);
        assert_eq!(cost(vec![(None, 0.75)]), [(Some("m-1".into()), Some(0.75))]);
        assert_eq!(cost(Vec::new()), []);
    }
}

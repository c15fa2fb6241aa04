//! Resources: tasks, runs and reports by their address, and those that matter now.

use std::collections::BTreeSet;

use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use trackway_actions::context::Context;
use trackway_domain::{Error as Rule, text};

use super::read;
use crate::{
    blocks::{path_of, short},
    pages,
    problem::Problem,
    site::Site,
};

/// What an address begins with; the rest is a page's path.
const SCHEME: &str = "trackway://";
const MARKDOWN: &str = "text/markdown";
/// Of each kind, those that are listed.
const LISTED: i64 = 20;

/// How addresses are made.
pub fn templates() -> Vec<ResourceTemplate> {
    let template = |path: &str, name: &str, said: &str| {
        ResourceTemplate::new(format!("{SCHEME}{path}"), name).with_description(said).with_mime_type(MARKDOWN)
    };
    vec![
        template(
            "/tasks/{+variant}",
            "task",
            "A task: its versions, queue items, links, boards, routes, messages, reports and runs",
        ),
        template("/runs/{id}", "run", "A run: what it was told, did and made; `last` is the newest"),
        template("/reports/{+task}", "report", "The report that speaks for a task"),
    ]
}

/// What is under way, what could be started, and what was reported last.
pub fn current(site: &Site, context: &Context) -> Result<Vec<Resource>, Problem> {
    let mut read = site.core.reader(context)?;
    let mut rows = |command, input| -> Result<Vec<Value>, Problem> {
        Ok(pages::ask(&mut read, command, input)?.data.as_array().cloned().unwrap_or_default())
    };
    let mut found = Vec::new();
    for run in rows(("run", "list"), json!({ "status": "running", "limit": LISTED }))? {
        let (id, agent) = (of(&run, "id"), of(&run, "agent"));
        let on = run["task"].as_str().map_or_else(String::new, |task| format!(" on {task}"));
        found.extend(resource("run", &id, format!("run {}", short(&id)), format!("Running: {agent}{on}")));
    }
    let under_way = rows(("task", "list"), json!({ "status": "in_progress", "limit": LISTED }))?;
    for task in under_way.into_iter().chain(rows(("", "ready"), json!({ "limit": LISTED }))?) {
        let (variant, title) = (of(&task, "variant"), of(&task, "title"));
        let said = format!("Task, {}: {title}", of(&task, "status"));
        found.extend(resource("task", &variant, variant.clone(), said));
    }
    for report in rows(("report", "list"), json!({ "limit": LISTED }))? {
        if let (Some(task), Some(true)) = (report["task"].as_str(), report["current"].as_bool()) {
            let said = format!("Report by {}: {}", of(&report, "agent"), of(&report, "one_liner"));
            found.extend(resource("report", task, format!("report on {task}"), said));
        }
    }
    // Of several agents' reports on a task, the address leads to the one that speaks for it.
    let mut seen = BTreeSet::new();
    found.retain(|resource| seen.insert(resource.uri.clone()));
    Ok(found)
}

fn of(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_default().to_owned()
}

fn resource(kind: &str, reference: &str, name: String, said: String) -> Option<Resource> {
    Some(described(path_of(kind, reference)?, name, said))
}

fn described(path: String, name: String, said: String) -> Resource {
    let said = text::cut(text::clean_line(&said).trim_end_matches([':', ' ']), 200);
    Resource::new(format!("{SCHEME}{path}"), name).with_description(said).with_mime_type(MARKDOWN)
}

/// Reads one.
pub fn read(site: &Site, context: &Context, uri: &str) -> Result<ReadResourceResult, Problem> {
    let text = read::page(site, context, path_in(uri)?)?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(MARKDOWN)]))
}

/// All that one says, however long.
pub fn whole(site: &Site, context: &Context, uri: &str) -> Result<String, Problem> {
    read::whole(site, context, path_in(uri)?)
}

fn path_in(uri: &str) -> Result<&str, Problem> {
    Ok(uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/')).ok_or_else(|| {
        Rule::not_found(format!("there is no resource {uri:?}"))
            .hint("they begin with trackway:///tasks/, /runs/ or /reports/")
    })?)
}

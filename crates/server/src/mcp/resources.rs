//! MCP resources: tasks, runs and reports by their URI, and a list of those that are current.

use std::collections::BTreeSet;

use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use trackway_actions::context::Context;
use trackway_domain::{Error as Rule, text};

use super::read;
use crate::{
    blocks::{page_path, short_id},
    pages,
    problem::Problem,
    site::Site,
};

/// The scheme of resource URIs. The rest of a URI is the path of a page.
const SCHEME: &str = "trackway://";
const MARKDOWN: &str = "text/markdown";
/// Maximum number of listed resources of each kind.
const LISTED_MAX: i64 = 20;

/// The URI templates.
pub fn templates() -> Vec<ResourceTemplate> {
    let template = |path: &str, name: &str, description: &str| {
        ResourceTemplate::new(format!("{SCHEME}{path}"), name).with_description(description).with_mime_type(MARKDOWN)
    };
    vec![
        template(
            "/tasks/{+variant}",
            "task",
            "A task: its versions, queue items, links, boards, routes, messages, reports and runs",
        ),
        template("/runs/{id}", "run", "A run: its prompt, steps and touches; `last` is the newest run"),
        template("/reports/{+task}", "report", "The current report on a task"),
    ]
}

/// Running runs, tasks in progress, ready tasks and the newest reports.
pub fn current(site: &Site, context: &Context) -> Result<Vec<Resource>, Problem> {
    let mut read = site.core.reader(context)?;
    let mut rows = |command, input| -> Result<Vec<Value>, Problem> {
        Ok(pages::query_view(&mut read, command, input)?.data.as_array().cloned().unwrap_or_default())
    };
    let mut resources = Vec::new();
    for run in rows(("run", "list"), json!({ "status": "running", "limit": LISTED_MAX }))? {
        let (id, agent) = (text_field(&run, "id"), text_field(&run, "agent"));
        let on = run["task"].as_str().map_or_else(String::new, |task| format!(" on {task}"));
        resources.extend(resource("run", &id, format!("run {}", short_id(&id)), format!("Running: {agent}{on}")));
    }
    let in_progress = rows(("task", "list"), json!({ "status": "in_progress", "limit": LISTED_MAX }))?;
    for task in in_progress.into_iter().chain(rows(("", "ready"), json!({ "limit": LISTED_MAX }))?) {
        let (variant, title) = (text_field(&task, "variant"), text_field(&task, "title"));
        let description = format!("Task, {}: {title}", text_field(&task, "status"));
        resources.extend(resource("task", &variant, variant.clone(), description));
    }
    for report in rows(("report", "list"), json!({ "limit": LISTED_MAX }))? {
        if let (Some(task), Some(true)) = (report["task"].as_str(), report["current"].as_bool()) {
            let description =
                format!("Report by {}: {}", text_field(&report, "agent"), text_field(&report, "one_liner"));
            resources.extend(resource("report", task, format!("report on {task}"), description));
        }
    }
    // Several agents may have reports on one task. The URI leads to the current one, so it is listed once.
    let mut seen = BTreeSet::new();
    resources.retain(|resource| seen.insert(resource.uri.clone()));
    Ok(resources)
}

fn text_field(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_default().to_owned()
}

fn resource(kind: &str, reference: &str, name: String, description: String) -> Option<Resource> {
    Some(new_resource(page_path(kind, reference)?, name, description))
}

fn new_resource(path: String, name: String, description: String) -> Resource {
    let description = text::cut(text::clean_line(&description).trim_end_matches([':', ' ']), 200);
    Resource::new(format!("{SCHEME}{path}"), name).with_description(description).with_mime_type(MARKDOWN)
}

/// Reads a resource. A long one is cut.
pub fn read(site: &Site, context: &Context, uri: &str) -> Result<ReadResourceResult, Problem> {
    let text = read::page(site, context, path_of_uri(uri)?)?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(MARKDOWN)]))
}

/// The whole text of a resource, however long.
pub fn whole(site: &Site, context: &Context, uri: &str) -> Result<String, Problem> {
    read::whole(site, context, path_of_uri(uri)?)
}

fn path_of_uri(uri: &str) -> Result<&str, Problem> {
    Ok(uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/')).ok_or_else(|| {
        Rule::not_found(format!("unknown resource {uri:?}"))
            .hint("resource URIs begin with trackway:///tasks/, trackway:///runs/ or trackway:///reports/")
    })?)
}

//! `get` and `list` of what has a name: roles, workflows, workspaces, labels, studios, people and agents.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, Time, kind};
use trackway_store::{
    Reader, Result, Table,
    display::{AgentShown, WorkflowShown},
    params,
    table::Shown,
    tables::{Label, Person, Role, Studio, Workspace},
};

use crate::{
    page::{Filter, Listed, Order, Page},
    view::View,
};

/// Declares `get` and `list` for something that has a name.
macro_rules! named {
    ($noun:literal, $kind:ty, $row:ty, $id:expr, $select:expr, $alias:literal, $columns:expr,
     $(#[$get_meta:meta])* $get:ident, $(#[$list_meta:meta])* $list:ident) => {
        $(#[$get_meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $get {
            /// Which one, by name or id
            pub name: Ref<$kind>,
        }

        impl View for $get {
            const COMMAND: (&'static str, &'static str) = ($noun, "get");
            const ALIAS: Option<&'static str> = Some("show");
            type Output = $row;

            fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<$row> {
                let id = read.resolve(&self.name)?;
                let rows = read.query(&format!("{} where {}.tenant_id = ?1 and {}.id = ?2", $select, $alias, $alias), params![id])?;
                rows.into_iter().next().ok_or_else(|| Rule::not_found(format!("there is no {} {:?}", $noun, self.name)).into())
            }
        }

        $(#[$list_meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $list {
            #[command(flatten)]
            #[serde(flatten)]
            pub page: Page,
        }

        impl View for $list {
            const COMMAND: (&'static str, &'static str) = ($noun, "list");
            const COLUMNS: &'static [&'static str] = $columns;
            type Output = Listed<$row>;

            fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Listed<$row>> {
                let live = Filter::default().always(concat!($alias, ".deleted_at is null"));
                self.page.read(read, $select, $alias, live, Order::OldestFirst, $id)
            }

            fn more(output: &Self::Output) -> Option<String> {
                output.more.clone()
            }
        }
    };
}

named!(
    "role", kind::Role, Role, |role: &Role| role.id.uuid(), Role::select(), "roles", &["name", "title", "description", "tags", "origin"],
    /// Show a role
    GetRole,
    /// List roles
    ListRoles
);
named!(
    "workflow", kind::Workflow, WorkflowShown, |shown: &WorkflowShown| shown.workflow.id.uuid(), WorkflowShown::select(), "w",
    &["name", "title", "role", "description"],
    /// Show a workflow
    GetWorkflow,
    /// List workflows
    ListWorkflows
);
named!(
    "workspace", kind::Workspace, Workspace, |workspace: &Workspace| workspace.id.uuid(), Workspace::select(), "workspaces",
    &["name", "directory", "repository", "project", "tags"],
    /// Show a workspace
    GetWorkspace,
    /// List workspaces
    ListWorkspaces
);
named!(
    "label", kind::Label, Label, |label: &Label| label.id.uuid(), Label::select(), "labels", &["key", "name"],
    /// Show a label
    GetLabel,
    /// List labels
    ListLabels
);
named!(
    "studio", kind::Studio, Studio, |studio: &Studio| studio.id.uuid(), Studio::select(), "studios", &["name", "title", "description"],
    /// Show a studio
    GetStudio,
    /// List studios
    ListStudios
);
named!(
    "person", kind::Person, Person, |person: &Person| person.id.uuid(), Person::select(), "people", &["handle", "name", "created_at"],
    /// Show a person
    GetPerson,
    /// List people
    ListPeople
);
named!(
    "agent", kind::Agent, AgentShown, |shown: &AgentShown| shown.agent.id.uuid(), AgentShown::select(), "a",
    &["handle", "role", "owner", "parent", "runner", "model", "archived"],
    /// Show an agent
    GetAgent,
    /// List agents
    ListAgents
);

//! The `get` and `list` views of roles, workflows, workspaces, labels, studios, people and agents.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Ref, Time, kind};
use trackway_store::{
    Reader, Result, Table,
    display::{AgentRow, WorkflowRow},
    params,
    table::DisplayRow,
    tables::{Label, Person, Role, Studio, Workspace},
};

use crate::{
    page::{Filter, ListPage, Order, Page},
    view::View,
};

/// Declares the `get` and `list` views of a kind of row that has a name.
macro_rules! get_and_list_views {
    ($noun:literal, $kind:ty, $row:ty, $id:expr, $select:expr, $alias:literal, $columns:expr,
     $(#[$get_meta:meta])* $get:ident, $(#[$list_meta:meta])* $list:ident) => {
        $(#[$get_meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        pub struct $get {
            /// Name or id
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
            type Output = ListPage<$row>;

            fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<ListPage<$row>> {
                let live = Filter::default().require(concat!($alias, ".deleted_at is null"));
                self.page.read(read, $select, $alias, live, Order::OldestFirst, $id)
            }

            fn next_page(output: &Self::Output) -> Option<String> {
                output.next_page.clone()
            }
        }
    };
}

get_and_list_views!(
    "role", kind::Role, Role, |role: &Role| role.id.uuid(), Role::select(), "roles", &["name", "title", "description", "tags", "origin"],
    /// Show a role
    GetRole,
    /// List roles
    ListRoles
);
get_and_list_views!(
    "workflow", kind::Workflow, WorkflowRow, |shown: &WorkflowRow| shown.workflow.id.uuid(), WorkflowRow::select(), "w",
    &["name", "title", "role", "description"],
    /// Show a workflow
    GetWorkflow,
    /// List workflows
    ListWorkflows
);
get_and_list_views!(
    "workspace", kind::Workspace, Workspace, |workspace: &Workspace| workspace.id.uuid(), Workspace::select(), "workspaces",
    &["name", "directory", "repository", "project", "tags"],
    /// Show a workspace
    GetWorkspace,
    /// List workspaces
    ListWorkspaces
);
get_and_list_views!(
    "label", kind::Label, Label, |label: &Label| label.id.uuid(), Label::select(), "labels", &["key", "name"],
    /// Show a label
    GetLabel,
    /// List labels
    ListLabels
);
get_and_list_views!(
    "studio", kind::Studio, Studio, |studio: &Studio| studio.id.uuid(), Studio::select(), "studios", &["name", "title", "description"],
    /// Show a studio
    GetStudio,
    /// List studios
    ListStudios
);
get_and_list_views!(
    "person", kind::Person, Person, |person: &Person| person.id.uuid(), Person::select(), "people", &["handle", "name", "created_at"],
    /// Show a person
    GetPerson,
    /// List people
    ListPeople
);
get_and_list_views!(
    "agent", kind::Agent, AgentRow, |shown: &AgentRow| shown.agent.id.uuid(), AgentRow::select(), "a",
    &["handle", "role", "owner", "parent", "runner", "model", "archived"],
    /// Show an agent
    GetAgent,
    /// List agents
    ListAgents
);

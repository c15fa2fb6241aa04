//! What is defined: roles, workflows, workspaces, labels, studios, people, agents, tokens and links.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, Time, Variant, kind, words::LinkType};
use trackway_store::{
    Reader, Result, Table, params, row,
    shown::{AgentShown, LinkShown, TokenShown, WorkflowShown},
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

/// List the tokens of people; a run's token lives and dies with the run
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListTokens {
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListTokens {
    const COMMAND: (&'static str, &'static str) = ("token", "list");
    const COLUMNS: &'static [&'static str] =
        &["id", "actor", "name", "scope", "expires_at", "revoked_at", "created_at"];
    type Output = Listed<TokenShown>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let of_people = Filter::default().always("k.run_id is null");
        self.page.read(read, TokenShown::select(), "k", of_people, Order::OldestFirst, |shown: &TokenShown| {
            shown.token.id.uuid()
        })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// List the links of a task, both ways
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListLinks {
    /// The task
    pub task: Ref<kind::Task>,
}

row! {
    /// A link between two tasks. `relation` reads it from the task that was asked about.
    pub struct LinkRow {
        id: Id<kind::Link>,
        from: Variant,
        to: Variant,
        from_id: Id<kind::Task>,
        to_id: Id<kind::Task>,
        r#type: LinkType,
        relation: String,
        created_at: Time,
    }
}

impl View for ListLinks {
    const COMMAND: (&'static str, &'static str) = ("link", "list");
    const COLUMNS: &'static [&'static str] = &["id", "from", "type", "to", "created_at"];
    type Output = Vec<LinkRow>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let task = read.resolve(&self.task)?;
        // Two selections, an index each.
        let live = "l.deleted_at is null and f.deleted_at is null and t.deleted_at is null";
        let [from, to] = ["from_task_id", "to_task_id"]
            .map(|end| format!("{} where l.tenant_id = ?1 and l.{end} = ?2 and {live}", LinkShown::select()));
        let mut links = read.query::<LinkShown>(&format!("{from} union all {to}"), params![task])?;
        links.sort_by_key(|shown| shown.link.id);
        let relation = |shown: &LinkShown| {
            if shown.link.from_task_id == task { shown.link.link_type.word() } else { shown.link.link_type.inverse() }
        };
        Ok(links
            .into_iter()
            .map(|shown| LinkRow {
                relation: relation(&shown).to_owned(),
                id: shown.link.id,
                from: shown.from,
                to: shown.to,
                from_id: shown.link.from_task_id,
                to_id: shown.link.to_task_id,
                r#type: shown.link.link_type,
                created_at: shown.link.created_at,
            })
            .collect())
    }
}

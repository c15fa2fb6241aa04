//! Delete actions. Deleting only marks a row as deleted: its name becomes free, and its history stays.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, command, kind, sentence};
use trackway_store::{
    Writer,
    display::{AgentRow, CommitmentRow, ConversationRow, DecisionRow, ExperimentRow, NoteRow, RouteRow, WorkflowRow},
    params,
    tables::{
        Agent, Commitment, Conversation, Decision, Experiment, Label, Note, Role, Route, Studio, Workflow, Workspace,
    },
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    definition,
    error::Result,
    studio,
    touched::{NoTouches, Touch, action_type},
};

/// Marks a row and its registry entry as deleted.
pub(crate) fn mark_deleted<K: kind::Marker>(write: &mut Writer<'_>, table: &str, id: Id<K>) -> Result<()> {
    let now = write.now;
    write.post(&format!("update {table} set deleted_at = ?3 where tenant_id = ?1 and id = ?2"), params![id, now])?;
    write.mark_deleted(id)?;
    Ok(())
}

/// Deletes the packages of a role or of a task, as the column says.
pub(crate) fn delete_packages<K>(
    write: &mut Writer<'_>,
    column: &str,
    id: Id<K>,
) -> Result<Touch<kind::Package, action_type::Delete>> {
    let pins = write.query::<(Id<kind::Package>, String)>(
        &format!(
            "select p.id, g.display_path from packages p join registry g on g.id = p.id
             where p.tenant_id = ?1 and p.{column} = ?2 and p.deleted_at is null order by p.id"
        ),
        params![id],
    )?;
    for (pin, _) in &pins {
        mark_deleted(write, "packages", *pin)?;
    }
    Ok(Touch::many(pins.into_iter().map(|(pin, path)| Resource::new(pin, path))))
}

/// Declares the delete action of a kind outside studios. The block checks that the row can be deleted, deletes its
/// dependent rows, and returns the row with a function from the deleted resource to the touches. The actions for
/// agents, studios and routes have their own capabilities, which cannot be granted to agents.
macro_rules! delete_definition {
    ($(#[$meta:meta])* $action:ident, $name:literal by $capability:literal, $noun:literal, $table:literal, $kind:ty, touching $touched:ty, |$write:ident, $id:ident| $check:block -> $output:ty) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        #[serde(deny_unknown_fields)]
        pub struct $action {
            /// Name or id
            pub name: Ref<$kind>,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = $capability;
            const COMMAND: (&'static str, &'static str) = ($noun, "delete");
            const IS_DESTRUCTIVE: bool = true;
            type Touched = $touched;
            type Output = $output;

            fn perform(&self, _: &Context, $write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
                let $id = $write.resolve(&self.name)?;
                let (row, touched) = $check;
                let path = $write.entry_by_id($id.uuid())?.map_or_else(|| self.name.to_string(), |entry| entry.display_path);
                mark_deleted($write, $table, $id)?;
                let resource: Resource<$kind> = Resource::new($id, path);
                Ok(ActionOutcome::changed(row, &resource, touched(resource.clone())))
            }
        }
    };
}

fn locked_row<T: trackway_store::Table, K: kind::Marker>(write: &mut Writer<'_>, id: Id<K>) -> Result<T> {
    Ok(write
        .row_locked::<T>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no such {}", K::KIND)))?)
}

delete_definition!(
    /// Delete a role
    DeleteRole, "delete_role" by "delete", "role", "roles", kind::Role, touching Touch<kind::Package, action_type::Delete>, |write, id| {
        write.lock_catalog()?;
        let role = locked_row::<Role, _>(write, id)?;
        let used = write.one::<(i64, i64)>(
            "select (select count(*) from tasks where tenant_id = ?1 and role_id = ?2 and deleted_at is null),
             (select count(*) from queue_items where tenant_id = ?1 and role_id = ?2 and finished_at is null)",
            params![id],
        )?;
        if let Some((tasks, items)) = used.filter(|used| *used != (0, 0)) {
            return Err(Rule::conflict(format!("{tasks} task(s) and {items} unfinished queue item(s) have this role"))
                .hint(sentence![
                    command!("task list", role = role.name),
                    " and ",
                    command!("queue list", role = role.name),
                    " list them. Give the tasks another role; cancel the items or let them finish",
                ])
                .into());
        }
        let packages = delete_packages(write, "role_id", id)?;
        (role, |_| packages)
    } -> Role
);
delete_definition!(
    /// Delete a label
    DeleteLabel, "delete_label" by "delete", "label", "labels", kind::Label, touching Touch<kind::Label, action_type::Delete>, |write, id| { (locked_row(write, id)?, Touch::one) } -> Label
);
delete_definition!(
    /// Delete a workspace
    DeleteWorkspace, "delete_workspace" by "delete", "workspace", "workspaces", kind::Workspace, touching NoTouches, |write, id| { (locked_row(write, id)?, |_| NoTouches) } -> Workspace
);
delete_definition!(
    /// Delete an empty studio
    DeleteStudio, "delete_studio" by "delete_studio", "studio", "studios", kind::Studio, touching NoTouches, |write, id| {
        let studio = locked_row(write, id)?;
        let held = write.count(
            "select (select count(*) from notes where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)
             + (select count(*) from decisions where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)
             + (select count(*) from commitments where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)",
            params![id],
        )?;
        if held > 0 {
            return Err(Rule::conflict(format!("the studio still contains {held} notes, decisions and commitments"))
                .hint("delete them first")
                .into());
        }
        (studio, |_| NoTouches)
    } -> Studio
);
delete_definition!(
    /// Delete a workflow that owns no tasks
    DeleteWorkflow, "delete_workflow" by "delete", "workflow", "workflows", kind::Workflow, touching NoTouches, |write, id| {
        write.lock_catalog()?;
        locked_row::<Workflow, _>(write, id)?;
        let owned = write.query::<(String,)>(
            "select variant from task_variants where tenant_id = ?1 and workflow_id = ?2 and released_at is null order by variant limit 3",
            params![id],
        )?;
        if !owned.is_empty() {
            let names: Vec<_> = owned.into_iter().map(|(variant,)| variant).collect();
            return Err(Rule::conflict(format!("the workflow still owns {}", names.join(", ")))
                .hint(sentence!["delete its tasks first: ", command!("task delete")])
                .into());
        }
        (write.display_row_by_id::<WorkflowRow>("w", id)?, |_| NoTouches)
    } -> WorkflowRow
);
delete_definition!(
    /// Delete an agent that has no running runs and no unfinished queue items
    DeleteAgent, "delete_agent" by "delete_agent", "agent", "agents", kind::Agent, touching NoTouches, |write, id| {
        locked_row::<Agent, _>(write, id)?;
        let running = write.count("select count(*) from runs where tenant_id = ?1 and agent_id = ?2 and status = 'running'", params![id])?;
        if running > 0 {
            return Err(Rule::conflict(format!("the agent has {running} running run(s)")).hint(command!("run cancel")).into());
        }
        let waiting = write.count("select count(*) from queue_items where tenant_id = ?1 and agent_id = ?2 and finished_at is null", params![id])?;
        if waiting > 0 {
            return Err(Rule::conflict(format!("{waiting} unfinished queue item(s) are assigned to this agent")).hint(command!("queue cancel")).into());
        }
        (write.display_row_by_id::<AgentRow>("a", id)?, |_| NoTouches)
    } -> AgentRow
);

delete_definition!(
    /// Delete a conversation and its experiments, but not its messages
    DeleteConversation, "delete_conversation" by "delete", "conversation", "conversations", kind::Conversation, touching (Touch<kind::Conversation, action_type::Delete>, Touch<kind::Experiment, action_type::Delete>), |write, id| {
        locked_row::<Conversation, _>(write, id)?;
        let experiments = write.rows::<Experiment>(
            "where tenant_id = ?1 and conversation_id = ?2 and deleted_at is null",
            params![id],
        )?;
        let shown = write.display_row_by_id::<ConversationRow>("c", id)?;
        for experiment in &experiments {
            mark_deleted(write, "experiments", experiment.id)?;
        }
        let deleted = Touch::many(experiments.iter().map(definition::resource));
        (shown, |conversation| (Touch::one(conversation), deleted))
    } -> ConversationRow
);
delete_definition!(
    /// Delete an experiment, but not its messages
    DeleteExperiment, "delete_experiment" by "delete", "experiment", "experiments", kind::Experiment, touching Touch<kind::Experiment, action_type::Delete>, |write, id| {
        locked_row::<Experiment, _>(write, id)?;
        (write.display_row_by_id::<ExperimentRow>("x", id)?, Touch::one)
    } -> ExperimentRow
);
delete_definition!(
    /// Delete a route, but not the queue items that it created
    DeleteRoute, "delete_route" by "delete_route", "route", "routes", kind::Route, touching Touch<kind::Route, action_type::Delete>, |write, id| {
        locked_row::<Route, _>(write, id)?;
        (write.display_row_by_id::<RouteRow>("o", id)?, Touch::one)
    } -> RouteRow
);

/// Declares the delete action of a resource in a studio.
macro_rules! delete_in_studio {
    ($(#[$meta:meta])* $action:ident, $name:literal, $row:ty, $alias:literal, $shown:ty) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        #[serde(deny_unknown_fields)]
        pub struct $action {
            /// Id of the resource
            #[arg(value_name = "ID")]
            pub id: Ref<<$row as studio::StudioRow>::Kind>,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = "delete";
            const COMMAND: (&'static str, &'static str) = (<$row as studio::StudioRow>::NOUN, "delete");
            const IS_DESTRUCTIVE: bool = true;
            type Touched = Touch<<$row as studio::StudioRow>::Kind, action_type::Delete>;
            type Output = $shown;

            fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
                let row = studio::locked::<$row>(write, &self.id)?;
                let shown = write.display_row_by_id::<$shown>($alias, row.id)?;
                let resource = studio::resource(write, &row)?;
                mark_deleted(write, <$row as studio::StudioRow>::TABLE, row.id)?;
                Ok(ActionOutcome::changed(shown, &resource, Touch::one(resource.clone())))
            }
        }
    };
}

delete_in_studio!(
    /// Delete a note, but not its history
    DeleteNote, "delete_note", Note, "n", NoteRow
);
delete_in_studio!(
    /// Delete a decision, but not its history
    DeleteDecision, "delete_decision", Decision, "d", DecisionRow
);
delete_in_studio!(
    /// Delete a commitment, but not its history
    DeleteCommitment, "delete_commitment", Commitment, "c", CommitmentRow
);

//! Deleting: a row is marked, its name is free again, its history stays.

use serde::Deserialize;
use trackway_domain::{Error as Rule, Id, Ref, command, kind, sentence};
use trackway_store::{
    Writer,
    display::{
        AgentShown, CommitmentShown, ConversationShown, DecisionShown, ExperimentShown, NoteShown, RouteShown,
        TaskShown, WorkflowShown,
    },
    params,
    tables::{
        Agent, Commitment, Conversation, Decision, Experiment, Label, Note, Role, Route, Studio, Workflow, Workspace,
    },
};

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    definition,
    error::Result,
    studio,
    task::{self, lineage::refresh_versions, set::live_task},
    touched::{Nothing, Touch, did},
};

/// Marks a row deleted, and its entry in the registry.
pub(crate) fn mark<K: kind::Marker>(write: &mut Writer<'_>, table: &str, id: Id<K>) -> Result<()> {
    let now = write.now;
    write.post(&format!("update {table} set deleted_at = ?3 where tenant_id = ?1 and id = ?2"), params![id, now])?;
    write.unregister(id)?;
    Ok(())
}

/// Deletes the packages of a role, or of a task.
fn unpin<K>(write: &mut Writer<'_>, column: &str, id: Id<K>) -> Result<Touch<kind::Package, did::Delete>> {
    let pins = write.query::<(Id<kind::Package>, String)>(
        &format!(
            "select p.id, g.display_path from packages p join registry g on g.id = p.id
             where p.tenant_id = ?1 and p.{column} = ?2 and p.deleted_at is null order by p.id"
        ),
        params![id],
    )?;
    for (pin, _) in &pins {
        mark(write, "packages", *pin)?;
    }
    Ok(Touch::many(pins.into_iter().map(|(pin, path)| Resource::outside(pin, path))))
}

/// Declares the delete action of a kind outside studios. The block checks, deletes what belongs to the row, and returns the
/// row with a function from the deleted resource to what the action touched. Agents cannot be granted to delete agents or
/// studios.
macro_rules! delete_definition {
    ($(#[$meta:meta])* $action:ident, $name:literal by $capability:literal, $noun:literal, $table:literal, $kind:ty, touching $touched:ty, |$write:ident, $id:ident| $check:block -> $output:ty) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        #[serde(deny_unknown_fields)]
        pub struct $action {
            /// Which one, by name or id
            pub name: Ref<$kind>,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = $capability;
            const COMMAND: (&'static str, &'static str) = ($noun, "delete");
            const REMOVES: bool = true;
            type Touched = $touched;
            type Output = $output;

            fn perform(&self, _: &Context, $write: &mut Writer<'_>) -> Result<Done<Self>> {
                let $id = $write.resolve(&self.name)?;
                let (row, touched) = $check;
                let path = $write.entry($id.uuid())?.map_or_else(|| self.name.to_string(), |entry| entry.display_path);
                mark($write, $table, $id)?;
                let resource: Resource<$kind> = Resource::outside($id, path);
                Ok(Done::changed(row, &resource, touched(resource.clone())))
            }
        }
    };
}

/// The row that is about to go.
fn present<T: trackway_store::Table, K: kind::Marker>(write: &mut Writer<'_>, id: Id<K>) -> Result<T> {
    Ok(write
        .row_locked::<T>("where tenant_id = ?1 and id = ?2 and deleted_at is null", params![id])?
        .ok_or_else(|| Rule::not_found(format!("there is no such {}", K::KIND)))?)
}

delete_definition!(
    /// Delete a role
    DeleteRole, "delete_role" by "delete", "role", "roles", kind::Role, touching Touch<kind::Package, did::Delete>, |write, id| {
        write.lock_catalog()?;
        let role = present::<Role, _>(write, id)?;
        let used = write.one::<(i64, i64)>(
            "select (select count(*) from tasks where tenant_id = ?1 and role_id = ?2 and deleted_at is null),
             (select count(*) from queue_items where tenant_id = ?1 and role_id = ?2 and finished_at is null)",
            params![id],
        )?;
        if let Some((tasks, items)) = used.filter(|used| *used != (0, 0)) {
            return Err(Rule::conflict(format!("{tasks} task(s) and {items} queue item(s) are for this role"))
                .hint(sentence![
                    command!("task list", role = role.name),
                    " and ",
                    command!("queue list", role = role.name),
                    " show them: give the tasks another role, and let the items finish or cancel them",
                ])
                .into());
        }
        let packages = unpin(write, "role_id", id)?;
        (role, |_| packages)
    } -> Role
);
delete_definition!(
    /// Delete a label
    DeleteLabel, "delete_label" by "delete", "label", "labels", kind::Label, touching Touch<kind::Label, did::Delete>, |write, id| { (present(write, id)?, Touch::one) } -> Label
);
delete_definition!(
    /// Delete a workspace
    DeleteWorkspace, "delete_workspace" by "delete", "workspace", "workspaces", kind::Workspace, touching Nothing, |write, id| { (present(write, id)?, |_| Nothing) } -> Workspace
);
delete_definition!(
    /// Delete a studio that is empty
    DeleteStudio, "delete_studio" by "delete_studio", "studio", "studios", kind::Studio, touching Nothing, |write, id| {
        let studio = present(write, id)?;
        let held = write.count(
            "select (select count(*) from notes where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)
             + (select count(*) from decisions where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)
             + (select count(*) from commitments where tenant_id = ?1 and studio_id = ?2 and deleted_at is null)",
            params![id],
        )?;
        if held > 0 {
            return Err(Rule::conflict(format!("the studio still holds {held} notes, decisions and commitments"))
                .hint("delete them first")
                .into());
        }
        (studio, |_| Nothing)
    } -> Studio
);
delete_definition!(
    /// Delete a workflow that owns no tasks
    DeleteWorkflow, "delete_workflow" by "delete", "workflow", "workflows", kind::Workflow, touching Nothing, |write, id| {
        write.lock_catalog()?;
        present::<Workflow, _>(write, id)?;
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
        (write.shown_by_id::<WorkflowShown>("w", id)?, |_| Nothing)
    } -> WorkflowShown
);
delete_definition!(
    /// Delete an agent that is not running
    DeleteAgent, "delete_agent" by "delete_agent", "agent", "agents", kind::Agent, touching Nothing, |write, id| {
        present::<Agent, _>(write, id)?;
        let running = write.count("select count(*) from runs where tenant_id = ?1 and agent_id = ?2 and status = 'running'", params![id])?;
        if running > 0 {
            return Err(Rule::conflict(format!("the agent has {running} running run(s)")).hint(command!("run cancel")).into());
        }
        let waiting = write.count("select count(*) from queue_items where tenant_id = ?1 and agent_id = ?2 and finished_at is null", params![id])?;
        if waiting > 0 {
            return Err(Rule::conflict(format!("{waiting} queue item(s) are for this agent only")).hint(command!("queue cancel")).into());
        }
        (write.shown_by_id::<AgentShown>("a", id)?, |_| Nothing)
    } -> AgentShown
);

delete_definition!(
    /// Delete a conversation and its experiments; what was said in it stays
    DeleteConversation, "delete_conversation" by "delete", "conversation", "conversations", kind::Conversation, touching (Touch<kind::Conversation, did::Delete>, Touch<kind::Experiment, did::Delete>), |write, id| {
        present::<Conversation, _>(write, id)?;
        let experiments = write.rows::<Experiment>(
            "where tenant_id = ?1 and conversation_id = ?2 and deleted_at is null",
            params![id],
        )?;
        let shown = write.shown_by_id::<ConversationShown>("c", id)?;
        for experiment in &experiments {
            mark(write, "experiments", experiment.id)?;
        }
        let deleted = Touch::many(experiments.iter().map(definition::resource));
        (shown, |conversation| (Touch::one(conversation), deleted))
    } -> ConversationShown
);
delete_definition!(
    /// Delete an experiment; what was said in it stays
    DeleteExperiment, "delete_experiment" by "delete", "experiment", "experiments", kind::Experiment, touching Touch<kind::Experiment, did::Delete>, |write, id| {
        present::<Experiment, _>(write, id)?;
        (write.shown_by_id::<ExperimentShown>("x", id)?, Touch::one)
    } -> ExperimentShown
);
delete_definition!(
    /// Delete a route; what it queued stays
    DeleteRoute, "delete_route" by "delete_route", "route", "routes", kind::Route, touching Touch<kind::Route, did::Delete>, |write, id| {
        present::<Route, _>(write, id)?;
        (write.shown_by_id::<RouteShown>("o", id)?, Touch::one)
    } -> RouteShown
);

/// Delete a task; its variant is free again
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DeleteTask {
    /// Which one, by variant or id
    pub task: Ref<kind::Task>,
}

impl Action for DeleteTask {
    const NAME: &'static str = "delete_task";
    const CAPABILITY: &'static str = "delete";
    const COMMAND: (&'static str, &'static str) = ("task", "delete");
    const REMOVES: bool = true;
    type Touched = (Touch<kind::Task, did::Delete>, Touch<kind::Package, did::Delete>);
    type Output = TaskShown;

    fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        write.lock_catalog()?;
        let task = live_task(write, &self.task)?;
        let shown = write.shown_by_id::<TaskShown>("t", task.id)?;
        let now = write.now;
        mark(write, "tasks", task.id)?;
        let packages = unpin(write, "task_id", task.id)?;
        write.post(
            "update task_variants set released_at = ?3 where tenant_id = ?1 and variant = ?2 and released_at is null",
            params![task.variant, now],
        )?;
        refresh_versions(write, task.lineage_id)?;
        let resource = task::set::resource(&task);
        Ok(Done::changed(shown, &resource, (Touch::one(resource.clone()), packages)))
    }
}

/// Declares the delete action of a resource that lives in a studio.
macro_rules! delete_in_studio {
    ($(#[$meta:meta])* $action:ident, $name:literal, $row:ty, $alias:literal, $shown:ty) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
        #[serde(deny_unknown_fields)]
        pub struct $action {
            /// Which one
            #[arg(value_name = "ID")]
            pub id: Ref<<$row as studio::StudioRow>::Kind>,
        }

        impl Action for $action {
            const NAME: &'static str = $name;
            const CAPABILITY: &'static str = "delete";
            const COMMAND: (&'static str, &'static str) = (<$row as studio::StudioRow>::NOUN, "delete");
            const REMOVES: bool = true;
            type Touched = Touch<<$row as studio::StudioRow>::Kind, did::Delete>;
            type Output = $shown;

            fn perform(&self, _: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
                let row = studio::locked::<$row>(write, &self.id)?;
                let shown = write.shown_by_id::<$shown>($alias, row.id)?;
                let resource = studio::resource(write, &row)?;
                mark(write, <$row as studio::StudioRow>::TABLE, row.id)?;
                Ok(Done::changed(shown, &resource, Touch::one(resource.clone())))
            }
        }
    };
}

delete_in_studio!(
    /// Delete a note; its history stays
    DeleteNote, "delete_note", Note, "n", NoteShown
);
delete_in_studio!(
    /// Delete a decision; its history stays
    DeleteDecision, "delete_decision", Decision, "d", DecisionShown
);
delete_in_studio!(
    /// Delete a commitment; its history stays
    DeleteCommitment, "delete_commitment", Commitment, "c", CommitmentShown
);

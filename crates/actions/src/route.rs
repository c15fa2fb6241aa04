//! Routes: a message with a certain tag queues a certain task.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Patch, Ref, Variant, kind, patch::UNSET, text};
use trackway_store::{
    Writer,
    display::RouteRow,
    params,
    queue::{ROLE_OF_ROUTED_ITEM, version_to_run},
    row,
    tables::Route,
};

use crate::{
    action::{Action, ActionOutcome, Resource},
    context::Context,
    error::Result,
    touched::CreatedOrUpdated,
};

/// Create or update a route: queue a task for every message with a tag
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetRoute {
    /// Tag of the messages
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::NOT_BLANK_PATTERN))]
    pub tag: String,
    /// Role of the messages: the route ignores messages in other roles
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Task to queue for each message
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// Workspace of the queued task [default: the task's]
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub workspace: Patch<Ref<kind::Workspace>>,
    /// Run exactly this version of the task, instead of the role's pinned version or the current version
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub exact: Option<bool>,
}

/// The route after the change, and whether it is new.
#[derive(Debug, Serialize)]
pub struct SetRouteResult {
    #[serde(flatten)]
    pub route: RouteRow,
    pub new: bool,
}

impl Action for SetRoute {
    const NAME: &'static str = "set_route";
    const COMMAND: (&'static str, &'static str) = ("route", "set");
    type Touched = CreatedOrUpdated<kind::Route>;
    type Output = SetRouteResult;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<ActionOutcome<Self>> {
        let Self { tag, role, task, workspace, exact } = self;
        let tag = text::check_required_line("tag", tag, text::LINE_MAX)?;
        let role_id = write.resolve_optional(role.as_ref())?;
        let task_id = write.resolve(task)?;
        let before = write.row_locked::<Route>(
            "where tenant_id = ?1 and deleted_at is null and tag = ?2 and task_id = ?3 and role_id is not distinct from ?4",
            params![tag, task_id, role_id],
        )?;
        let route = before.clone().unwrap_or_else(|| Route {
            id: write.new_id(),
            tenant_id: context.tenant,
            tag,
            role_id,
            task_id,
            workspace_id: None,
            exact: false,
            created_by: context.actor.id(),
            created_at: write.now,
            updated_at: write.now,
            deleted_at: None,
        });
        let mut route = Route {
            id: route.id,
            tenant_id: route.tenant_id,
            tag: route.tag,
            role_id: route.role_id,
            task_id: route.task_id,
            workspace_id: workspace.clone().try_map(|workspace| write.resolve(&workspace))?.apply(route.workspace_id),
            exact: exact.unwrap_or(route.exact),
            created_by: route.created_by,
            created_at: route.created_at,
            updated_at: route.updated_at,
            deleted_at: route.deleted_at,
        };
        if before.as_ref() == Some(&route) {
            return Ok(ActionOutcome::unchanged(SetRouteResult {
                route: write.display_row_by_id("o", route.id)?,
                new: false,
            }));
        }
        route.updated_at = write.now;
        match before {
            None => write.insert(&route)?,
            Some(_) => write.update(&route)?,
        }
        let shown = write.display_row_by_id::<RouteRow>("o", route.id)?;
        let resource = Resource::new(route.id, path(&shown));
        let new = before.is_none();
        let touched = if new {
            resource.register(context, write)?;
            CreatedOrUpdated::created(resource.clone())
        } else {
            CreatedOrUpdated::updated(resource.clone())
        };
        Ok(ActionOutcome::changed(SetRouteResult { route: shown, new }, &resource, touched))
    }
}

fn path(shown: &RouteRow) -> String {
    let role = shown.role.as_ref().map(|role| format!(" of {role}")).unwrap_or_default();
    format!("{}{role} to {}", shown.route.tag, shown.task)
}

/// A task to queue for a message.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub task: Id<kind::Task>,
    pub role: Option<Id<kind::Role>>,
    pub workspace: Option<Id<kind::Workspace>>,
    /// The route that applies, or none if the message was sent to the task itself.
    pub route: Option<Id<kind::Route>>,
    /// True if exactly this version of the task must run.
    pub exact: bool,
    /// The task's variant, if no version of the task is live.
    pub variant_without_live_version: Option<Variant>,
}

/// A route for a tag, with its destination.
#[derive(Debug, Clone)]
pub(crate) struct MatchingRoute {
    pub route: Id<kind::Route>,
    /// The route applies only to messages in this role.
    pub required_role: Option<Id<kind::Role>>,
    pub to: Destination,
}

row! {
    /// A route with its task, and whether any version of the task is live.
    pub struct RouteOfTag {
        id: Id<kind::Route>,
        only: Option<Id<kind::Role>>,
        task_id: Id<kind::Task>,
        variant: Variant,
        role: Option<Id<kind::Role>>,
        workspace: Option<Id<kind::Workspace>>,
        exact: bool,
        is_live: bool,
    }
}

/// The routes for messages with this tag.
pub(crate) fn routes_for_tag(write: &mut Writer<'_>, tag: &str) -> Result<Vec<MatchingRoute>> {
    write.lock_live_versions_shared()?;
    let found = write.query::<RouteOfTag>(
        &format!(
            "select o.id, o.role_id, t.id, t.variant, {ROLE_OF_ROUTED_ITEM}, coalesce(o.workspace_id, t.workspace_id), o.exact, {} is not null
             from routes o join tasks t on t.id = o.task_id where o.tenant_id = ?1 and o.tag = ?2 and o.deleted_at is null",
            version_to_run("o.task_id", ROLE_OF_ROUTED_ITEM, "o.exact")
        ),
        params![tag],
    )?;
    let matching_route = |route: RouteOfTag| MatchingRoute {
        route: route.id,
        required_role: route.only,
        to: Destination {
            task: route.task_id,
            role: route.role,
            workspace: route.workspace,
            route: Some(route.id),
            exact: route.exact,
            variant_without_live_version: (!route.is_live).then_some(route.variant),
        },
    };
    Ok(found.into_iter().map(matching_route).collect())
}

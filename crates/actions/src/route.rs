//! Routes: which messages are work for which task.

use serde::{Deserialize, Serialize};
use trackway_domain::{Id, Patch, Ref, Variant, kind, patch::UNSET, text};
use trackway_store::{
    Writer,
    display::RouteShown,
    params,
    queue::{ROLE_OF_ROUTED_ITEM, resolved},
    row,
    tables::Route,
};

use crate::{
    action::{Action, Done, Resource},
    context::Context,
    error::Result,
    touched::CreatedOrUpdated,
};

/// Make messages with a tag work for a task, or change where such work is done
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct SetRoute {
    /// The tag of the messages
    #[arg(long)]
    #[schemars(length(min = 1, max = text::LINE_MAX), regex(pattern = text::SAYS_SOMETHING))]
    pub tag: String,
    /// Only messages in this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// The task that is queued for each of them
    #[arg(long)]
    pub task: Ref<kind::Task>,
    /// The workspace it is worked in (the task's, when it is not said)
    #[arg(long, default_value = UNSET, hide_default_value = true)]
    #[serde(default)]
    pub workspace: Patch<Ref<kind::Workspace>>,
    /// Run exactly this version, not the pin of the role or the current version
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    pub exact: Option<bool>,
}

/// A route as it now stands, and whether this made it.
#[derive(Debug, Serialize)]
pub struct RouteSet {
    #[serde(flatten)]
    pub route: RouteShown,
    pub new: bool,
}

impl Action for SetRoute {
    const NAME: &'static str = "set_route";
    const COMMAND: (&'static str, &'static str) = ("route", "set");
    type Touched = CreatedOrUpdated<kind::Route>;
    type Output = RouteSet;

    fn perform(&self, context: &Context, write: &mut Writer<'_>) -> Result<Done<Self>> {
        let Self { tag, role, task, workspace, exact } = self;
        let tag = text::required_line("tag", tag, text::LINE_MAX)?;
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
            return Ok(Done::unchanged(RouteSet { route: write.shown_by_id("o", route.id)?, new: false }));
        }
        route.updated_at = write.now;
        match before {
            None => write.insert(&route)?,
            Some(_) => write.update(&route)?,
        }
        let shown = write.shown_by_id::<RouteShown>("o", route.id)?;
        let resource = Resource::outside(route.id, path(&shown));
        let new = before.is_none();
        let touched = if new {
            resource.register(context, write)?;
            CreatedOrUpdated::created(resource.clone())
        } else {
            CreatedOrUpdated::updated(resource.clone())
        };
        Ok(Done::changed(RouteSet { route: shown, new }, &resource, touched))
    }
}

fn path(shown: &RouteShown) -> String {
    let role = shown.role.as_ref().map(|role| format!(" of {role}")).unwrap_or_default();
    format!("{}{role} to {}", shown.route.tag, shown.task)
}

/// A task that a message is work for.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub task: Id<kind::Task>,
    pub role: Option<Id<kind::Role>>,
    pub workspace: Option<Id<kind::Workspace>>,
    /// The route that leads there, unless the message was sent there.
    pub route: Option<Id<kind::Route>>,
    /// Whether exactly this version is run.
    pub exact: bool,
    /// The variant, if no version of the task is live.
    pub without_version: Option<Variant>,
}

/// Where a route leads, and whom.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub route: Id<kind::Route>,
    /// Only messages in this role.
    pub only: Option<Id<kind::Role>>,
    pub to: Destination,
}

row! {
    /// A route, and whether a version of its task is live.
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

/// The routes of a tag.
pub(crate) fn ways(write: &mut Writer<'_>, tag: &str) -> Result<Vec<Way>> {
    write.share_live_versions()?;
    let found = write.query::<RouteOfTag>(
        &format!(
            "select o.id, o.role_id, t.id, t.variant, {ROLE_OF_ROUTED_ITEM}, coalesce(o.workspace_id, t.workspace_id), o.exact, {} is not null
             from routes o join tasks t on t.id = o.task_id where o.tenant_id = ?1 and o.tag = ?2 and o.deleted_at is null",
            resolved("o.task_id", ROLE_OF_ROUTED_ITEM, "o.exact")
        ),
        params![tag],
    )?;
    let way = |route: RouteOfTag| Way {
        route: route.id,
        only: route.only,
        to: Destination {
            task: route.task_id,
            role: route.role,
            workspace: route.workspace,
            route: Some(route.id),
            exact: route.exact,
            without_version: (!route.is_live).then_some(route.variant),
        },
    };
    Ok(found.into_iter().map(way).collect())
}

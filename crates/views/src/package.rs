//! Which version a role uses, and what it has missed.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Time, Variant, kind, words::Level};
use trackway_store::{Reader, Result, display::PackageShown, params, table::Shown};
use uuid::Uuid;

use crate::{
    page::{Filter, Listed, Order, Page},
    task::latest,
    view::View,
};

/// A version that a role uses.
#[derive(Debug, PartialEq, Serialize)]
pub struct Used {
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    /// Whether it is pinned; else it is the current version.
    pub pinned: bool,
}

fn pinned(
    read: &mut Reader<'_>,
    role: Id<kind::Role>,
    task: Id<kind::Task>,
    condition: &str,
) -> Result<Option<PackageShown>> {
    let found = read.shown::<PackageShown>(
        &format!(
            "join tasks v on v.lineage_id = p.lineage_id where p.tenant_id = ?1 and p.role_id = ?2 and v.id = ?3
             and p.deleted_at is null and t.deleted_at is null{condition}"
        ),
        params![role, task],
    )?;
    Ok(found.into_iter().next())
}

/// Show the version of a task that is pinned for a role
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct GetPackage {
    /// The role
    #[arg(long)]
    pub role: Ref<kind::Role>,
    /// Any version of the task
    #[arg(long)]
    pub task: Ref<kind::Task>,
}

impl View for GetPackage {
    const COMMAND: (&'static str, &'static str) = ("package", "get");
    const ALIAS: Option<&'static str> = Some("show");
    type Output = Used;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Used> {
        let role = read.resolve(&self.role)?;
        let task = read.resolve(&self.task)?;
        let package = pinned(read, role, task, "")?
            .ok_or_else(|| Rule::not_found(format!("role {:?} has no version of {:?} pinned", self.role, self.task)))?;
        Ok(Used { role: package.role, task_id: package.package.task_id, variant: package.variant, pinned: true })
    }
}

/// Find the version of a task that a role should use: the pinned one, else the current one
///
/// A pin whose version is archived does not count.
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ResolvePackage {
    /// The role
    #[arg(long)]
    pub role: Ref<kind::Role>,
    /// Any version of the task
    #[arg(long)]
    pub variant: Ref<kind::Task>,
}

impl View for ResolvePackage {
    const COMMAND: (&'static str, &'static str) = ("package", "resolve");
    type Output = Used;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Used> {
        let role = read.resolve(&self.role)?;
        let task = read.resolve(&self.variant)?;
        if let Some(package) = pinned(read, role, task, " and not t.archived")? {
            return Ok(Used {
                role: package.role,
                task_id: package.package.task_id,
                variant: package.variant,
                pinned: true,
            });
        }
        let latest = latest(read, task)?;
        let name = read.one::<(String,)>("select name from roles where tenant_id = ?1 and id = ?2", params![role])?;
        Ok(Used {
            role: name.map_or_else(String::new, |(name,)| name),
            task_id: latest.id,
            variant: latest.variant,
            pinned: false,
        })
    }
}

/// A pin in a list.
#[derive(Debug, PartialEq, Serialize)]
pub struct Pin {
    #[serde(skip)]
    id: Uuid,
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    pub updated_at: Time,
}

impl From<PackageShown> for Pin {
    fn from(shown: PackageShown) -> Self {
        Self {
            id: shown.package.id.uuid(),
            role: shown.role,
            task_id: shown.package.task_id,
            variant: shown.variant,
            updated_at: shown.package.updated_at,
        }
    }
}

/// List pins
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListPackages {
    /// Only of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only of this task, whichever version is pinned
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListPackages {
    const COMMAND: (&'static str, &'static str) = ("package", "list");
    const COLUMNS: &'static [&'static str] = &["role", "variant", "task_id", "updated_at"];
    type Output = Listed<Pin>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        let filter = Filter::default()
            .always("p.deleted_at is null and t.deleted_at is null")
            .and("p.role_id = ?", role.as_ref())
            .and(
                "p.lineage_id = (select v.lineage_id from tasks v where v.tenant_id = ?1 and v.id = ?)",
                task.as_ref(),
            );
        let listed =
            self.page.read(read, PackageShown::select(), "p", filter, Order::OldestFirst, |shown: &PackageShown| {
                shown.package.id.uuid()
            })?;
        Ok(Listed { rows: listed.rows.into_iter().map(Pin::from).collect(), more: listed.more })
    }

    fn more(output: &Self::Output) -> Option<String> {
        output.more.clone()
    }
}

/// List pins that have a newer version
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct OutdatedPackages {
    /// Only of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
}

/// A pin and what it could be.
#[derive(Debug, PartialEq, Serialize)]
pub struct Outdated {
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    pub latest_id: Id<kind::Task>,
    pub latest_variant: Variant,
    /// The biggest step on the way.
    pub level: Level,
}

impl View for OutdatedPackages {
    const COMMAND: (&'static str, &'static str) = ("package", "outdated");
    const COLUMNS: &'static [&'static str] = &["role", "variant", "latest_variant", "level"];
    type Output = Vec<Outdated>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let replaced = read.shown::<PackageShown>(
            "where p.tenant_id = ?1 and p.deleted_at is null and t.deleted_at is null and t.replaced order by p.id",
            &[],
        )?;
        let mut outdated = Vec::new();
        for pin in replaced.into_iter().filter(|pin| role.is_none_or(|role| role == pin.package.role_id)) {
            let path = read.replacement_path(pin.package.task_id)?;
            let level = path.iter().filter_map(|step| step.level).max();
            if let (Some(level), Some(last)) = (level, path.last()) {
                outdated.push(Outdated {
                    role: pin.role,
                    task_id: pin.package.task_id,
                    variant: pin.variant,
                    latest_id: last.id,
                    latest_variant: last.variant.clone(),
                    level,
                });
            }
        }
        outdated.sort_by(|a, b| b.level.cmp(&a.level).then(a.role.cmp(&b.role)).then(a.variant.cmp(&b.variant)));
        Ok(outdated)
    }
}

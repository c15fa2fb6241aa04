//! Packages: the task versions that are pinned for roles, and newer versions of them.

use serde::{Deserialize, Serialize};
use trackway_domain::{Error as Rule, Id, Ref, Time, Variant, enums::Level, kind};
use trackway_store::{Reader, Result, display::PackageRow, params, table::DisplayRow};
use uuid::Uuid;

use crate::{
    page::{Filter, ListPage, Order, Page},
    task::current_version,
    view::View,
};

/// The version of a task that a role uses.
#[derive(Debug, PartialEq, Serialize)]
pub struct RoleVersion {
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    /// Whether the version is pinned. Otherwise it is the current version of the task.
    pub pinned: bool,
}

fn find_pin(
    read: &mut Reader<'_>,
    role: Id<kind::Role>,
    task: Id<kind::Task>,
    condition: &str,
) -> Result<Option<PackageRow>> {
    let found = read.display_rows::<PackageRow>(
        &format!(
            "join tasks v on v.lineage_id = p.lineage_id where p.tenant_id = ?1 and p.role_id = ?2 and v.id = ?3
             and p.deleted_at is null and t.deleted_at is null{condition}"
        ),
        params![role, task],
    )?;
    Ok(found.into_iter().next())
}

/// Show the pinned version of a task for a role
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
    type Output = RoleVersion;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RoleVersion> {
        let role = read.resolve(&self.role)?;
        let task = read.resolve(&self.task)?;
        let package = find_pin(read, role, task, "")?
            .ok_or_else(|| Rule::not_found(format!("role {:?} has no version of {:?} pinned", self.role, self.task)))?;
        Ok(RoleVersion { role: package.role, task_id: package.package.task_id, variant: package.variant, pinned: true })
    }
}

/// Find the version of a task that a role should use
///
/// This is the pinned version. If no version is pinned, or the pinned version is archived, it is the current version.
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
    type Output = RoleVersion;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<RoleVersion> {
        let role = read.resolve(&self.role)?;
        let task = read.resolve(&self.variant)?;
        if let Some(package) = find_pin(read, role, task, " and not t.archived")? {
            return Ok(RoleVersion {
                role: package.role,
                task_id: package.package.task_id,
                variant: package.variant,
                pinned: true,
            });
        }
        let current = current_version(read, task)?;
        let name = read.one::<(String,)>("select name from roles where tenant_id = ?1 and id = ?2", params![role])?;
        Ok(RoleVersion {
            role: name.map_or_else(String::new, |(name,)| name),
            task_id: current.id,
            variant: current.variant,
            pinned: false,
        })
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Pin {
    #[serde(skip)]
    id: Uuid,
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    pub updated_at: Time,
}

impl From<PackageRow> for Pin {
    fn from(shown: PackageRow) -> Self {
        Self {
            id: shown.package.id.uuid(),
            role: shown.role,
            task_id: shown.package.task_id,
            variant: shown.variant,
            updated_at: shown.package.updated_at,
        }
    }
}

/// List the pinned task versions of roles
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct ListPackages {
    /// Only pins of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
    /// Only pins of this task, whichever version is pinned
    #[arg(long)]
    pub task: Option<Ref<kind::Task>>,
    #[command(flatten)]
    #[serde(flatten)]
    pub page: Page,
}

impl View for ListPackages {
    const COMMAND: (&'static str, &'static str) = ("package", "list");
    const COLUMNS: &'static [&'static str] = &["role", "variant", "task_id", "updated_at"];
    type Output = ListPage<Pin>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let task = read.resolve_optional(self.task.as_ref())?;
        let filter = Filter::default()
            .require("p.deleted_at is null and t.deleted_at is null")
            .require_if_some("p.role_id = ?", role.as_ref())
            .require_if_some(
                "p.lineage_id = (select v.lineage_id from tasks v where v.tenant_id = ?1 and v.id = ?)",
                task.as_ref(),
            );
        let listed =
            self.page.read(read, PackageRow::select(), "p", filter, Order::OldestFirst, |shown: &PackageRow| {
                shown.package.id.uuid()
            })?;
        Ok(ListPage { rows: listed.rows.into_iter().map(Pin::from).collect(), next_page: listed.next_page })
    }

    fn next_page(output: &Self::Output) -> Option<String> {
        output.next_page.clone()
    }
}

/// List pinned versions that a newer version replaces, largest change first
#[derive(Debug, Deserialize, schemars::JsonSchema, clap::Args)]
pub struct OutdatedPackages {
    /// Only pins of this role
    #[arg(long)]
    pub role: Option<Ref<kind::Role>>,
}

/// A pinned version and the current version that replaces it.
#[derive(Debug, PartialEq, Serialize)]
pub struct OutdatedPin {
    pub role: String,
    pub task_id: Id<kind::Task>,
    pub variant: Variant,
    pub latest_id: Id<kind::Task>,
    pub latest_variant: Variant,
    /// The largest change between the two versions.
    pub level: Level,
}

impl View for OutdatedPackages {
    const COMMAND: (&'static str, &'static str) = ("package", "outdated");
    const COLUMNS: &'static [&'static str] = &["role", "variant", "latest_variant", "level"];
    type Output = Vec<OutdatedPin>;

    fn answer(&self, read: &mut Reader<'_>, _: Time) -> Result<Self::Output> {
        let role = read.resolve_optional(self.role.as_ref())?;
        let replaced = read.display_rows::<PackageRow>(
            "where p.tenant_id = ?1 and p.deleted_at is null and t.deleted_at is null and t.replaced order by p.id",
            &[],
        )?;
        let mut outdated = Vec::new();
        for pin in replaced.into_iter().filter(|pin| role.is_none_or(|role| role == pin.package.role_id)) {
            let path = read.replacement_path(pin.package.task_id)?;
            let level = path.iter().filter_map(|step| step.level).max();
            if let (Some(level), Some(last)) = (level, path.last()) {
                outdated.push(OutdatedPin {
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

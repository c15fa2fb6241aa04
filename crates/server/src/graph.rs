//! The versions of a task as a graph: newest on top, an arc from each to what it replaces, a bar for how they went.

use crate::{html::escaped, page::Version};

/// The height of a row; `style.css` has the same.
const ROW: usize = 36;
/// Where the line of versions stands.
const TRUNK: usize = 64;

/// Draws it.
pub fn html(versions: &[Version]) -> String {
    let most = versions.iter().map(|version| version.all).max().unwrap_or(1).max(1);
    let rows: String = versions.iter().map(|version| row(version, most)).collect();
    format!(
        "<div class=versions>{}<ol aria-label=\"Versions, newest first\">{rows}</ol></div>\n{}",
        arcs(versions),
        "<p class=key><span class=good></span>completed <span class=bad></span>ended otherwise <span class=busy></span>running</p>\n"
    )
}

/// From each version to what it replaces.
fn arcs(versions: &[Version]) -> String {
    let middle = |index: usize| index * ROW + ROW / 2;
    let height = versions.len().max(1) * ROW;
    let mut out = format!(
        "<svg viewBox=\"0 0 76 {height}\" width=76 height={height} role=img aria-label=\"What replaces what\">"
    );
    for (index, version) in versions.iter().enumerate() {
        for (older, level) in &version.replaces {
            let Some(target) = versions.iter().position(|version| version.name == *older) else { continue };
            let (from, to) = (middle(index), middle(target));
            let reach = TRUNK.saturating_sub(14 * index.abs_diff(target)).max(6);
            out += &format!(
                "<path class=\"edge {level}\" d=\"M{TRUNK} {from} C{reach} {from} {reach} {to} {TRUNK} {to}\"><title>{level}: {} replaces {}</title></path>",
                escaped(&version.name),
                escaped(older),
                level = escaped(level),
            );
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let here = if version.is_here { " class=here" } else { "" };
        out += &format!("<circle cx={TRUNK} cy={} r=6{here} />", middle(index));
    }
    out + "</svg>"
}

fn row(version: &Version, most: i64) -> String {
    let share = |count: i64| count * 1_000 / most;
    let (good, bad) = (share(version.good), share(version.all - version.good - version.running));
    let newest = if version.newest_only { "the newest " } else { "" };
    let said = match (version.all, version.running) {
        (0, _) => "not run yet".to_owned(),
        (all, 0) => format!("{} of {newest}{all}", version.good),
        (all, running) if all == running => format!("{running} running"),
        (all, running) => format!("{} of {newest}{}, {running} running", version.good, all - running),
    };
    let levels: Vec<&str> = version.replaces.iter().map(|(_, level)| level.as_str()).collect();
    let here = if version.is_here { " class=here" } else { "" };
    format!(
        "<li{here}><a href=\"{to}\" title=\"{name}\">{name}</a><span class=level>{levels}</span><svg viewBox=\"0 0 1000 8\" preserveAspectRatio=none aria-hidden=true><rect class=good width={good} height=8 /><rect class=bad x={good} width={bad} height=8 /><rect class=busy x={running_x} width={running} height=8 /></svg><span class=note>{said}</span></li>",
        to = escaped(&version.to),
        name = escaped(&version.name),
        levels = escaped(&levels.join(", ")),
        running_x = good + bad,
        running = share(version.running),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, good: i64, running: i64, all: i64) -> Version {
        let (name, to) = (name.to_owned(), format!("/tasks/{name}"));
        Version { name, to, is_here: false, replaces: Vec::new(), good, running, all, newest_only: false }
    }

    #[test]
    fn what_failed_what_runs_and_what_never_ran_differ() {
        let html = html(&[version("a", 1, 1, 4), version("b", 0, 0, 0), version("c", 0, 2, 2)]);
        assert!(html.contains("<rect class=good width=250 height=8 /><rect class=bad x=250 width=500 height=8 /><rect class=busy x=750 width=250 height=8 />"), "{html}");
        for said in [">1 of 3, 1 running<", ">not run yet<", ">2 running<"] {
            assert!(html.contains(said), "{said}: {html}");
        }
        let html = super::html(&[Version { newest_only: true, ..version("d", 900, 10, 1_000) }]);
        assert!(html.contains(">900 of the newest 990, 10 running<"), "{html}");
    }
}

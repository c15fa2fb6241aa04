//! Renders the versions of a task as a graph: newest on top, an arc from each version to the ones it replaces, and a
//! bar for the results of its runs.

use crate::{html::escape, page::Version};

/// Height of a row in pixels. `style.css` repeats it.
const ROW_HEIGHT: usize = 36;
/// Horizontal position of the version circles.
const CIRCLE_X: usize = 64;

pub fn html(versions: &[Version]) -> String {
    let max = versions.iter().map(|version| version.total_runs).max().unwrap_or(1).max(1);
    let rows: String = versions.iter().map(|version| row(version, max)).collect();
    format!(
        "<div class=versions>{}<ol aria-label=\"Versions, newest first\">{rows}</ol></div>\n{}",
        arcs(versions),
        "<p class=key><span class=good></span>completed <span class=bad></span>unsuccessful <span class=busy></span>running</p>\n"
    )
}

fn arcs(versions: &[Version]) -> String {
    let middle = |index: usize| index * ROW_HEIGHT + ROW_HEIGHT / 2;
    let height = versions.len().max(1) * ROW_HEIGHT;
    let mut out =
        format!("<svg viewBox=\"0 0 76 {height}\" width=76 height={height} role=img aria-label=\"Replacements\">");
    for (index, version) in versions.iter().enumerate() {
        for (older, level) in &version.replaces {
            let Some(target) = versions.iter().position(|version| version.name == *older) else { continue };
            let (from, to) = (middle(index), middle(target));
            let control_x = CIRCLE_X.saturating_sub(14 * index.abs_diff(target)).max(6);
            out += &format!(
                "<path class=\"edge {level}\" d=\"M{CIRCLE_X} {from} C{control_x} {from} {control_x} {to} {CIRCLE_X} {to}\"><title>{level}: {} replaces {}</title></path>",
                escape(&version.name),
                escape(older),
                level = escape(level),
            );
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let here = if version.is_current_page { " class=here" } else { "" };
        out += &format!("<circle cx={CIRCLE_X} cy={} r=6{here} />", middle(index));
    }
    out + "</svg>"
}

fn row(version: &Version, max: i64) -> String {
    let share = |count: i64| count * 1_000 / max;
    let (good, bad) =
        (share(version.completed_runs), share(version.total_runs - version.completed_runs - version.running_runs));
    let newest = if version.newest_only { "the newest " } else { "" };
    let note = match (version.total_runs, version.running_runs) {
        (0, _) => "not run yet".to_owned(),
        (total, 0) => format!("{} of {newest}{total}", version.completed_runs),
        (total, running) if total == running => format!("{running} running"),
        (total, running) => format!("{} of {newest}{}, {running} running", version.completed_runs, total - running),
    };
    let levels: Vec<&str> = version.replaces.iter().map(|(_, level)| level.as_str()).collect();
    let here = if version.is_current_page { " class=here" } else { "" };
    format!(
        "<li{here}><a href=\"{href}\" title=\"{name}\">{name}</a><span class=level>{levels}</span><svg viewBox=\"0 0 1000 8\" preserveAspectRatio=none aria-hidden=true><rect class=good width={good} height=8 /><rect class=bad x={good} width={bad} height=8 /><rect class=busy x={running_x} width={running} height=8 /></svg><span class=note>{note}</span></li>",
        href = escape(&version.href),
        name = escape(&version.name),
        levels = escape(&levels.join(", ")),
        running_x = good + bad,
        running = share(version.running_runs),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, completed_runs: i64, running_runs: i64, total_runs: i64) -> Version {
        let (name, href) = (name.to_owned(), format!("/tasks/{name}"));
        Version {
            name,
            href,
            is_current_page: false,
            replaces: Vec::new(),
            completed_runs,
            running_runs,
            total_runs,
            newest_only: false,
        }
    }

    #[test]
    fn distinguishes_failed_running_and_missing_runs() {
        let html = html(&[version("a", 1, 1, 4), version("b", 0, 0, 0), version("c", 0, 2, 2)]);
        assert!(html.contains("<rect class=good width=250 height=8 /><rect class=bad x=250 width=500 height=8 /><rect class=busy x=750 width=250 height=8 />"), "{html}");
        for expected in [">1 of 3, 1 running<", ">not run yet<", ">2 running<"] {
            assert!(html.contains(expected), "{expected}: {html}");
        }
        let html = super::html(&[Version { newest_only: true, ..version("d", 900, 10, 1_000) }]);
        assert!(html.contains(">900 of the newest 990, 10 running<"), "{html}");
    }
}

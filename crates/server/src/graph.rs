//! The versions of a task as a graph: newest on top, an arc from each to what it replaces, a bar for how they went.

use crate::{html::escaped, page::Version};

const ROW: usize = 36;
const TRUNK: usize = 64;
const NAME: usize = 84;
const BAR: usize = 420;
const BAR_WIDTH: i64 = 180;
const WIDTH: usize = 720;
/// Characters of a name that fit.
const NAME_MAX: usize = 40;

/// Draws it.
pub fn svg(versions: &[Version]) -> String {
    let middle = |index: usize| index * ROW + ROW / 2;
    let place = |name: &str| versions.iter().position(|version| version.name == name);
    let mut out = format!(
        "<div class=table tabindex=0><svg class=versions viewBox=\"0 0 {WIDTH} {height}\" width={WIDTH} height={height} role=group aria-label=\"Versions, newest first\">",
        height = versions.len().max(1) * ROW,
    );
    for (index, version) in versions.iter().enumerate() {
        for (older, level) in &version.replaces {
            let Some(target) = place(older) else { continue };
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
    let most = versions.iter().map(|version| version.all).max().unwrap_or(1).max(1);
    for (index, version) in versions.iter().enumerate() {
        let y = middle(index);
        let (good, rest) = (version.good * BAR_WIDTH / most, (version.all - version.good) * BAR_WIDTH / most);
        let here = if version.is_here { " class=here" } else { "" };
        let levels: Vec<&str> = version.replaces.iter().map(|(_, level)| level.as_str()).collect();
        out += &format!(
            "<circle cx={TRUNK} cy={y} r=6{here} /><a href=\"{to}\"><text x={NAME} y={text}>{name}</text></a><text class=level x={level_x} y={text}>{levels}</text><rect class=all x={BAR} y={top} width={BAR_WIDTH} height=10 rx=5 /><rect class=rest x={rest_x} y={top} width={rest} height=10 /><rect class=good x={BAR} y={top} width={good} height=10 /><text class=note x={note} y={text}>{done} of {all}</text>",
            to = escaped(&version.to),
            text = y + 5,
            name = escaped(&trackway_domain::text::cut(&version.name, NAME_MAX)),
            level_x = BAR - 60,
            levels = escaped(&levels.join(", ")),
            top = y - 5,
            rest_x = i64::try_from(BAR).unwrap_or_default() + good,
            note = BAR + 190,
            done = version.good,
            all = version.all,
        );
    }
    out + "</svg></div>\n"
}

//! Makes what is on a page fit: of what takes more than its share, texts in rows get shorter, then rows are left out, and
//! the page says so. HTML and Markdown are made to fit by the same rule; JSON has everything.

use trackway_domain::text;

use crate::{
    blocks::grouped,
    page::{Block, Branch, Cell},
};

/// Bytes of a page.
pub const PAGE_MAX: usize = 95_000;
/// Rows of a list, places of a tree: more are not read.
const ITEMS_MAX: usize = 100;
/// Characters that texts in rows are cut to, until what they stand in fits.
const CUTS: &[usize] = &[1_000, 500, 250, 120, 60, 30, 15];
/// Values that stand together in one place, where there is no room for all.
const TOGETHER: usize = 5;

/// Draws blocks in at most so many bytes. `draw` may be told how many bytes it has, and need not keep to it.
pub fn drawn(blocks: &[&Block], room: usize, path: &str, draw: &dyn Fn(&Block, usize) -> String) -> Vec<String> {
    let whole: Vec<String> = blocks.iter().map(|block| few(block, ITEMS_MAX, path, usize::MAX, draw)).collect();
    let mut wanted = room;
    loop {
        let share = share(whole.iter().map(String::len).collect(), wanted);
        let fitted = |(block, whole): (&&Block, &String)| {
            if whole.len() <= share { whole.clone() } else { smaller(block, share, path, draw) }
        };
        let drawn: Vec<String> = blocks.iter().zip(&whole).map(fitted).collect();
        // Where one cannot get as small as its share, the others make room for it.
        let over = drawn.iter().map(String::len).sum::<usize>().saturating_sub(room);
        if over == 0 || wanted == 0 {
            return drawn;
        }
        wanted = wanted.saturating_sub(over);
    }
}

/// The most that each may take so that all of them fit: who takes less leaves the rest to the others.
fn share(mut sizes: Vec<usize>, room: usize) -> usize {
    sizes.sort_unstable();
    let (mut left, count) = (room, sizes.len());
    for (index, size) in sizes.into_iter().enumerate() {
        let fair = left / (count - index);
        if size > fair {
            return fair;
        }
        left -= size;
    }
    usize::MAX
}

/// A block in at most so many bytes, if it has anything to shorten.
fn smaller(block: &Block, most: usize, path: &str, draw: &dyn Fn(&Block, usize) -> String) -> String {
    let mut block = block.clone();
    let mut out = few(&block, ITEMS_MAX, path, most, draw);
    for &max in CUTS {
        if out.len() <= most {
            return out;
        }
        cut_texts(&mut block, max);
        out = few(&block, ITEMS_MAX, path, most, draw);
    }
    let mut count = items(&block).min(ITEMS_MAX);
    while out.len() > most && count > 1 {
        count /= 2;
        out = few(&block, count, path, most, draw);
    }
    out
}

/// A block with so many of its items, and how many are left out.
fn few(block: &Block, most: usize, path: &str, room: usize, draw: &dyn Fn(&Block, usize) -> String) -> String {
    let rest = items(block).saturating_sub(most);
    if rest == 0 {
        return draw(block, room);
    }
    let mut block = block.clone();
    keep(&mut block, most);
    let said = format!("And {} more.", grouped(i64::try_from(rest).unwrap_or(i64::MAX)));
    let path = if path == "/" { "/index" } else { path };
    let links = vec![("This page as JSON has all of them.".to_owned(), format!("{path}.json"))];
    draw(&block, room) + &draw(&Block::Along { said, links }, room)
}

fn items(block: &Block) -> usize {
    match block {
        Block::Table(table) => table.rows.len(),
        Block::Timeline(moments) => moments.len(),
        Block::Thread(said) => said.len(),
        Block::Tree(branches) => branches.iter().map(places).sum(),
        Block::Bars(bars) => bars.len(),
        Block::Versions(versions) => versions.len(),
        _ => 0,
    }
}

fn places(branch: &Branch) -> usize {
    1 + branch.children.iter().map(places).sum::<usize>()
}

/// Keeps so many items: the first ones, and of what happened or was said the last ones.
fn keep(block: &mut Block, most: usize) {
    match block {
        Block::Table(table) => table.rows.truncate(most),
        Block::Timeline(moments) => drop(moments.drain(..moments.len().saturating_sub(most))),
        Block::Thread(said) => drop(said.drain(..said.len().saturating_sub(most))),
        Block::Tree(branches) => {
            let mut room = most;
            prune(branches, &mut room);
        }
        Block::Bars(bars) => bars.truncate(most),
        Block::Versions(versions) => versions.truncate(most),
        _ => {}
    }
}

fn prune(branches: &mut Vec<Branch>, room: &mut usize) {
    branches.retain_mut(|branch| {
        let is_kept = *room > 0;
        if is_kept {
            *room -= 1;
            prune(&mut branch.children, room);
        }
        is_kept
    });
}

/// Cuts the texts that stand in rows.
fn cut_texts(block: &mut Block, max: usize) {
    let shorten = |text: &mut String| *text = text::cut(text, max);
    match block {
        Block::Facts(facts) => facts.iter_mut().for_each(|(_, cell)| cut_cell(cell, max)),
        Block::Table(table) => table.rows.iter_mut().flatten().for_each(|cell| cut_cell(cell, max)),
        Block::Timeline(moments) => moments.iter_mut().filter_map(|moment| moment.text.as_mut()).for_each(shorten),
        Block::Thread(said) => {
            for said in said {
                shorten(&mut said.body);
                said.title.iter_mut().for_each(shorten);
                said.notes.iter_mut().for_each(|cell| cut_cell(cell, max));
            }
        }
        Block::Tree(branches) => branches.iter_mut().for_each(|branch| cut_branch(branch, max)),
        Block::Bars(bars) => bars.iter_mut().for_each(|bar| cut_cell(&mut bar.label, max)),
        Block::Chain(hops) => hops.iter_mut().for_each(|hop| shorten(&mut hop.label)),
        Block::Board(board) => {
            for stickie in board.columns.iter_mut().flat_map(|column| &mut column.stickies) {
                shorten(&mut stickie.title);
                // What it is called and says comes before what it carries besides.
                stickie.labels.truncate(max / 60);
                stickie.code.take_if(|_| max < 60);
                stickie.note.iter_mut().chain(&mut stickie.code).chain(&mut stickie.labels).for_each(shorten);
            }
        }
        _ => {}
    }
}

fn cut_cell(cell: &mut Cell, max: usize) {
    match cell {
        Cell::Text(text) | Cell::Code(text) | Cell::Link { text, .. } => *text = text::cut(text, max),
        Cell::Many(cells) => {
            if cells.len() > TOGETHER {
                cells.truncate(TOGETHER);
                cells.push(Cell::Text("…".to_owned()));
            }
            for cell in cells {
                cut_cell(cell, max);
            }
        }
        Cell::Nothing | Cell::Status(_) | Cell::Time(_) | Cell::Number(_) => {}
    }
}

fn cut_branch(branch: &mut Branch, max: usize) {
    for cell in &mut branch.cells {
        cut_cell(cell, max);
    }
    for branch in &mut branch.children {
        cut_branch(branch, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html, page::Table};

    fn table(rows: usize, text: &str) -> Block {
        let row = |_| vec![Cell::Text(text.to_owned())];
        Block::Table(Table { columns: vec!["n".to_owned()], rows: (0..rows).map(row).collect(), empty: String::new() })
    }

    fn drawn_in(room: usize, blocks: &[Block]) -> String {
        drawn(&blocks.iter().collect::<Vec<_>>(), room, "/here", &|block, _| html::block(block)).concat()
    }

    #[test]
    fn who_takes_less_leaves_the_rest_to_the_others() {
        assert_eq!(share(vec![10, 500, 20, 900], 1_000), 485);
        assert_eq!(share(vec![10, 500, 20], 530), usize::MAX);
        assert_eq!(share(Vec::new(), 0), usize::MAX);
    }

    #[test]
    fn a_long_table_is_cut_and_says_so() {
        let html = drawn_in(50_000, &[table(1_130, "x")]);
        assert_eq!(html.matches("<tr><td").count(), 100);
        assert!(
            html.contains("And 1,030 more. <a href=\"/here.json\">This page as JSON has all of them.</a>"),
            "{html}"
        );
    }

    #[test]
    fn texts_get_shorter_before_rows_are_left_out() {
        let wide = [table(90, &"<wide> ".repeat(200)), table(3, "kept")];
        let html = drawn_in(40_000, &wide);
        assert!(html.len() <= 40_000 && html.matches("<tr><td").count() == 93 && html.contains('…'), "{}", html.len());
        assert!(html.matches(">kept<").count() == 3);
        let html = drawn_in(4_000, &wide);
        assert!(html.len() <= 4_000 && html.contains(" more. ") && html.contains(">kept<"), "{html}");
    }

    #[test]
    fn a_tree_keeps_its_first_places_and_what_happened_its_last() {
        let leaf = |name: &str, children| Branch { cells: vec![Cell::Code(name.to_owned())], children };
        let mut tree = Block::Tree(vec![leaf("a", vec![leaf("b", Vec::new())]), leaf("c", Vec::new())]);
        assert_eq!(items(&tree), 3);
        keep(&mut tree, 2);
        assert_eq!(tree, Block::Tree(vec![leaf("a", vec![leaf("b", Vec::new())])]));
    }
}

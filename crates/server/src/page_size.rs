//! Keeps pages below a size limit. Blocks that exceed their share of the page first get shorter texts in their rows,
//! then fewer rows, and the page says how many rows are missing. HTML and Markdown follow the same rule; JSON is always
//! complete.

use trackway_domain::text;

use crate::{
    blocks::group_digits,
    page::{Block, Cell, TreeNode},
};

/// Maximum size of a page, in bytes.
pub const PAGE_MAX: usize = 95_000;
/// Maximum number of rows of a list or nodes of a tree. Nobody reads more on one page.
const ITEMS_MAX: usize = 100;
/// Maximum lengths of the texts in a block, in characters. They are tried in this order until the block fits.
const TEXT_LENGTHS: &[usize] = &[1_000, 500, 250, 120, 60, 30, 15];
/// Maximum number of values in one cell of a block that is too large.
const CELL_VALUES_MAX: usize = 5;

/// Renders blocks in at most `size` bytes. `render` receives the number of bytes it may use, but need not respect it.
pub fn render_blocks(
    blocks: &[&Block],
    size: usize,
    path: &str,
    render: &dyn Fn(&Block, usize) -> String,
) -> Vec<String> {
    let full: Vec<String> =
        blocks.iter().map(|block| render_items(block, ITEMS_MAX, path, usize::MAX, render)).collect();
    let mut target = size;
    loop {
        let share = fair_share(full.iter().map(String::len).collect(), target);
        let fit = |(block, full): (&&Block, &String)| {
            if full.len() <= share { full.clone() } else { shrink(block, share, path, render) }
        };
        let rendered: Vec<String> = blocks.iter().zip(&full).map(fit).collect();
        // If a block cannot shrink to its share, the other blocks get less.
        let excess = rendered.iter().map(String::len).sum::<usize>().saturating_sub(size);
        if excess == 0 || target == 0 {
            return rendered;
        }
        target = target.saturating_sub(excess);
    }
}

/// The largest size that each block may have so that all fit. Blocks that need less leave the remainder to the others.
fn fair_share(mut sizes: Vec<usize>, available: usize) -> usize {
    sizes.sort_unstable();
    let (mut left, count) = (available, sizes.len());
    for (index, size) in sizes.into_iter().enumerate() {
        let fair = left / (count - index);
        if size > fair {
            return fair;
        }
        left -= size;
    }
    usize::MAX
}

/// Renders a block in at most `max_size` bytes, as far as it can be shortened.
fn shrink(block: &Block, max_size: usize, path: &str, render: &dyn Fn(&Block, usize) -> String) -> String {
    let mut block = block.clone();
    let mut out = render_items(&block, ITEMS_MAX, path, max_size, render);
    for &max in TEXT_LENGTHS {
        if out.len() <= max_size {
            return out;
        }
        cut_texts(&mut block, max);
        out = render_items(&block, ITEMS_MAX, path, max_size, render);
    }
    let mut count = count_items(&block).min(ITEMS_MAX);
    while out.len() > max_size && count > 1 {
        count /= 2;
        out = render_items(&block, count, path, max_size, render);
    }
    out
}

/// Renders at most `max_items` items of a block, and says how many more there are.
fn render_items(
    block: &Block,
    max_items: usize,
    path: &str,
    size: usize,
    render: &dyn Fn(&Block, usize) -> String,
) -> String {
    let hidden = count_items(block).saturating_sub(max_items);
    if hidden == 0 {
        return render(block, size);
    }
    let mut block = block.clone();
    truncate_items(&mut block, max_items);
    let text = format!("And {} more.", group_digits(i64::try_from(hidden).unwrap_or(i64::MAX)));
    let path = if path == "/" { "/index" } else { path };
    let links = vec![("The JSON form of this page has all of them.".to_owned(), format!("{path}.json"))];
    render(&block, size) + &render(&Block::Pagination { text, links }, size)
}

fn count_items(block: &Block) -> usize {
    match block {
        Block::Table(table) => table.rows.len(),
        Block::Timeline(entries) => entries.len(),
        Block::Thread(messages) => messages.len(),
        Block::Tree(nodes) => nodes.iter().map(count_nodes).sum(),
        Block::Bars(bars) => bars.len(),
        Block::Versions(versions) => versions.len(),
        _ => 0,
    }
}

fn count_nodes(node: &TreeNode) -> usize {
    1 + node.children.iter().map(count_nodes).sum::<usize>()
}

/// Truncates a block to `max_items` items: the first ones, or the newest ones of a timeline or a thread.
fn truncate_items(block: &mut Block, max_items: usize) {
    match block {
        Block::Table(table) => table.rows.truncate(max_items),
        Block::Timeline(entries) => drop(entries.drain(..entries.len().saturating_sub(max_items))),
        Block::Thread(messages) => drop(messages.drain(..messages.len().saturating_sub(max_items))),
        Block::Tree(nodes) => {
            let mut remaining = max_items;
            prune_tree(nodes, &mut remaining);
        }
        Block::Bars(bars) => bars.truncate(max_items),
        Block::Versions(versions) => versions.truncate(max_items),
        _ => {}
    }
}

fn prune_tree(nodes: &mut Vec<TreeNode>, remaining: &mut usize) {
    nodes.retain_mut(|node| {
        let has_capacity = *remaining > 0;
        if has_capacity {
            *remaining -= 1;
            prune_tree(&mut node.children, remaining);
        }
        has_capacity
    });
}

/// Cuts the texts in the rows of a block to `max` characters.
fn cut_texts(block: &mut Block, max: usize) {
    let shorten = |text: &mut String| *text = text::cut(text, max);
    match block {
        Block::Facts(facts) => facts.iter_mut().for_each(|(_, cell)| cut_cell(cell, max)),
        Block::Table(table) => table.rows.iter_mut().flatten().for_each(|cell| cut_cell(cell, max)),
        Block::Timeline(entries) => entries.iter_mut().filter_map(|entry| entry.text.as_mut()).for_each(shorten),
        Block::Thread(messages) => {
            for message in messages {
                shorten(&mut message.body);
                message.title.iter_mut().for_each(shorten);
                message.notes.iter_mut().for_each(|cell| cut_cell(cell, max));
            }
        }
        Block::Tree(nodes) => nodes.iter_mut().for_each(|node| cut_node(node, max)),
        Block::Bars(bars) => bars.iter_mut().for_each(|bar| cut_cell(&mut bar.label, max)),
        Block::Chain(hops) => hops.iter_mut().for_each(|hop| shorten(&mut hop.label)),
        Block::Board(board) => {
            for stickie in board.columns.iter_mut().flat_map(|column| &mut column.stickies) {
                shorten(&mut stickie.title);
                // Title and note matter more than labels and code, so labels and code are dropped first.
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
        Cell::List(cells) => {
            if cells.len() > CELL_VALUES_MAX {
                cells.truncate(CELL_VALUES_MAX);
                cells.push(Cell::Text("…".to_owned()));
            }
            for cell in cells {
                cut_cell(cell, max);
            }
        }
        Cell::Empty | Cell::Status(_) | Cell::Time(_) | Cell::Number(_) => {}
    }
}

fn cut_node(node: &mut TreeNode, max: usize) {
    for cell in &mut node.cells {
        cut_cell(cell, max);
    }
    for node in &mut node.children {
        cut_node(node, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html, page::Table};

    fn table(rows: usize, text: &str) -> Block {
        let row = |_| vec![Cell::Text(text.to_owned())];
        Block::Table(Table {
            columns: vec!["n".to_owned()],
            rows: (0..rows).map(row).collect(),
            empty_text: String::new(),
        })
    }

    fn render_in(size: usize, blocks: &[Block]) -> String {
        render_blocks(&blocks.iter().collect::<Vec<_>>(), size, "/here", &|block, _| html::block(block)).concat()
    }

    #[test]
    fn small_blocks_leave_space_to_large_ones() {
        assert_eq!(fair_share(vec![10, 500, 20, 900], 1_000), 485);
        assert_eq!(fair_share(vec![10, 500, 20], 530), usize::MAX);
        assert_eq!(fair_share(Vec::new(), 0), usize::MAX);
    }

    #[test]
    fn truncated_table_says_how_many_rows_are_missing() {
        let html = render_in(50_000, &[table(1_130, "x")]);
        assert_eq!(html.matches("<tr><td").count(), 100);
        assert!(
            html.contains("And 1,030 more. <a href=\"/here.json\">The JSON form of this page has all of them.</a>"),
            "{html}"
        );
    }

    #[test]
    fn shortens_texts_before_dropping_rows() {
        let wide = [table(90, &"<wide> ".repeat(200)), table(3, "short")];
        let html = render_in(40_000, &wide);
        assert!(html.len() <= 40_000 && html.matches("<tr><td").count() == 93 && html.contains('…'), "{}", html.len());
        assert!(html.matches(">short<").count() == 3);
        let html = render_in(4_000, &wide);
        assert!(html.len() <= 4_000 && html.contains(" more. ") && html.contains(">short<"), "{html}");
    }

    #[test]
    fn truncated_tree_keeps_its_first_nodes() {
        let leaf = |name: &str, children| TreeNode { cells: vec![Cell::Code(name.to_owned())], children };
        let mut tree = Block::Tree(vec![leaf("a", vec![leaf("b", Vec::new())]), leaf("c", Vec::new())]);
        assert_eq!(count_items(&tree), 3);
        truncate_items(&mut tree, 2);
        assert_eq!(tree, Block::Tree(vec![leaf("a", vec![leaf("b", Vec::new())])]));
    }
}

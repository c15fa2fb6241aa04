//! Finds the recorded change that wrote a line of a file. Each change stores a hash of every line it wrote, and of the
//! lines next to them.
//!
//! The search compares a line's text and its neighbours, not its number: every edit shifts numbers, and edits by other
//! programs are not recorded at all. If a later recorded change inserted a new neighbour, the line still matches. The
//! search returns nothing if no change wrote the text, or if the neighbours do not match.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// Stands for the hash of an unknown neighbour.
const UNKNOWN: u64 = 0;
/// Stands for the hash of the neighbour above the first line of a file and below the last line.
const EDGE: u64 = 1;
/// The first byte of the stored bytes.
const FORMAT_VERSION: u8 = 1;

/// Hashes of the lines that one change wrote into a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineHashes {
    /// True if the change wrote the whole file. Then an older change may have been the first to write some of the
    /// lines.
    pub is_whole_file: bool,
    /// True if the change replaced unknown content. Then an unrecorded edit may have been the first to write some of
    /// the lines.
    pub replaces_unknown: bool,
    pub segments: Vec<Segment>,
}

/// Consecutive lines that one change wrote, with the neighbours `before` and `after` them. A segment without lines
/// records the two lines that a deletion made neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    before: u64,
    after: u64,
    lines: Vec<u64>,
}

/// The quality of the match between a line and a change that wrote its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceMatch {
    /// The line now has other neighbours, so the match is uncertain.
    Moved,
    /// The line still has the neighbours that it was written with.
    Exact,
}

impl TraceMatch {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Exact => "exact",
        }
    }
}

/// The hash of a line. It ignores space around the line, so that a change of the indentation keeps the line's writer.
fn hash(line: &str) -> u64 {
    let digest = Sha256::digest(line.trim().as_bytes());
    let hash = u64::from_le_bytes(digest[..8].try_into().unwrap_or_default());
    hash.max(EDGE + 1)
}

/// Whether a line has enough text to be recognised by a single neighbour. A line such as `}` has not.
fn is_distinctive(line: &str) -> bool {
    line.chars().filter(|character| character.is_alphanumeric()).count() >= 4
}

impl LineHashes {
    /// The lines of a whole file.
    pub fn of_file(content: &str) -> Self {
        let lines: Vec<u64> = content.lines().map(hash).collect();
        Self {
            is_whole_file: true,
            replaces_unknown: false,
            segments: vec![Segment { before: EDGE, after: EDGE, lines }],
        }
    }

    /// The lines of a whole file that replaced unknown content.
    pub fn of_file_over_unknown(content: &str) -> Self {
        Self { replaces_unknown: true, ..Self::of_file(content) }
    }

    /// The lines that a unified diff adds. Each hunk has the number of its first line after the change, and its lines
    /// with their markers.
    pub fn of_patch<'a, L: IntoIterator<Item = &'a str>>(hunks: impl IntoIterator<Item = (i64, L)>) -> Self {
        let mut segments = Vec::new();
        for (start, lines) in hunks {
            let mut before = if start <= 1 { EDGE } else { UNKNOWN };
            let mut added = Vec::new();
            let mut changed = false;
            for line in lines {
                match line.split_at_checked(1) {
                    Some(("+", text)) => added.push(hash(text)),
                    Some(("-", _)) => changed = true,
                    Some((" ", text)) => {
                        let context = hash(text);
                        if changed || !added.is_empty() {
                            segments.push(Segment { before, after: context, lines: std::mem::take(&mut added) });
                        }
                        changed = false;
                        before = context;
                    }
                    _ => {}
                }
            }
            if changed || !added.is_empty() {
                // A patch shows the lines after a change, so a change without them is at the end of the file.
                segments.push(Segment { before, after: EDGE, lines: added });
            }
        }
        Self { segments, ..Self::default() }
    }

    /// The lines that differ after the replacement of `old` by `new` at an unknown position in the file.
    pub fn of_replacement(old: &str, new: &str) -> Self {
        let old: Vec<u64> = old.lines().map(hash).collect();
        let new: Vec<u64> = new.lines().map(hash).collect();
        let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let rest = old.len().min(new.len()) - same_start;
        let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
        let before = same_start.checked_sub(1).map_or(UNKNOWN, |index| new[index]);
        let after = new.get(new.len() - same_end).copied().filter(|_| same_end > 0).unwrap_or(UNKNOWN);
        let lines = new[same_start..new.len() - same_end].to_vec();
        Self { segments: vec![Segment { before, after, lines }], ..Self::default() }
    }

    pub fn lines(&self) -> usize {
        self.segments.iter().map(|segment| segment.lines.len()).sum()
    }

    /// Encodes the hashes for the database.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT_VERSION, u8::from(self.is_whole_file) | u8::from(self.replaces_unknown) << 1];
        for segment in &self.segments {
            let count = u32::try_from(segment.lines.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&count.to_le_bytes());
            for hash in [segment.before, segment.after].iter().chain(segment.lines.iter().take(count as usize)) {
                bytes.extend_from_slice(&hash.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes bytes from the database. Returns nothing if they are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[FORMAT_VERSION, flags], mut rest) = bytes.split_at_checked(2)? else {
            return None;
        };
        let mut segments = Vec::new();
        while !rest.is_empty() {
            let (count, after_count) = rest.split_first_chunk::<4>()?;
            let count = u32::from_le_bytes(*count) as usize;
            let (hashes, after_hashes) = after_count.split_at_checked(count.checked_add(2)?.checked_mul(8)?)?;
            let mut hashes =
                hashes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<_>>();
            let lines = hashes.split_off(2);
            segments.push(Segment { before: hashes[0], after: hashes[1], lines });
            rest = after_hashes;
        }
        Some(Self { is_whole_file: flags & 1 != 0, replaces_unknown: flags & 2 != 0, segments })
    }
}

/// Finds the change that wrote line `number` (from 1) of `content`, among the changes of the file, newest first.
pub fn trace_line<Id: Copy>(
    content: &str,
    number: usize,
    newest_first: &[(Id, LineHashes)],
) -> Option<(Id, TraceMatch)> {
    let lines: Vec<&str> = content.lines().collect();
    let index = number.checked_sub(1)?;
    let text = *lines.get(index)?;
    let wanted = hash(text);
    let above = index.checked_sub(1).map_or(EDGE, |above| hash(lines[above]));
    let below = lines.get(index + 1).map_or(EDGE, |below| hash(below));
    let is_unique = lines.iter().filter(|line| hash(line) == wanted).count() == 1;
    let recorded: HashSet<u64> = newest_first
        .iter()
        .flat_map(|(_, written)| &written.segments)
        .flat_map(|segment| segment.lines.iter().chain([&segment.before, &segment.after]))
        .copied()
        .filter(|hash| *hash != UNKNOWN)
        .collect();
    // If the line now occurs between these neighbours more often than any change wrote it there, some occurrences are
    // copies that no change recorded.
    let hashes: Vec<u64> = lines.iter().map(|line| hash(line)).collect();
    let present_count = hashes.windows(3).filter(|around| **around == [above, wanted, below]).count();
    let written_count = newest_first
        .iter()
        .flat_map(|(_, written)| &written.segments)
        .map(|segment| {
            let with_neighbours: Vec<u64> =
                [segment.before].into_iter().chain(segment.lines.iter().copied()).chain([segment.after]).collect();
            with_neighbours.windows(3).filter(|around| **around == [above, wanted, below]).count()
        })
        .max();
    let is_copied = present_count > written_count.unwrap_or_default().max(1);
    // Pairs of lines that a newer change made neighbours, by an insertion or deletion next to an existing line.
    let mut new_neighbours: HashSet<(u64, u64)> = HashSet::new();
    let mut best: Option<(Id, TraceMatch)> = None;
    for (id, written) in newest_first {
        for segment in &written.segments {
            for (position, _) in segment.lines.iter().enumerate().filter(|(_, line)| **line == wanted) {
                let left = position.checked_sub(1).map_or(segment.before, |left| segment.lines[left]);
                let right = segment.lines.get(position + 1).copied().unwrap_or(segment.after);
                let agrees = |neighbour: u64, now: u64, pair: (u64, u64)| match neighbour {
                    _ if neighbour == now || new_neighbours.contains(&pair) => Some(true),
                    // The change did not know this neighbour. The present neighbour counts if it appears in any
                    // recorded change.
                    UNKNOWN if is_unique && recorded.contains(&now) => Some(true),
                    UNKNOWN => None,
                    _ => Some(false),
                };
                let quality = match (agrees(left, above, (above, wanted)), agrees(right, below, (wanted, below))) {
                    (Some(true), Some(true)) if is_copied || written.replaces_unknown => Some(TraceMatch::Moved),
                    (Some(true), Some(true)) => Some(TraceMatch::Exact),
                    (Some(true), None) | (None, Some(true)) if is_distinctive(text) && !is_copied => {
                        Some(TraceMatch::Exact)
                    }
                    (Some(true), _) | (_, Some(true)) if is_distinctive(text) => Some(TraceMatch::Moved),
                    (None, None) if is_unique && is_distinctive(text) => Some(TraceMatch::Moved),
                    _ => None,
                };
                match quality {
                    Some(TraceMatch::Exact) if !written.is_whole_file => return Some((*id, TraceMatch::Exact)),
                    // The change wrote the whole file, so the line may be older. Keep looking for an older exact match.
                    Some(TraceMatch::Exact) => best = Some((*id, TraceMatch::Exact)),
                    Some(TraceMatch::Moved) if best.is_none() => best = Some((*id, TraceMatch::Moved)),
                    _ => {}
                }
            }
        }
        for segment in &written.segments {
            let first = segment.lines.first().copied().unwrap_or(segment.after);
            let last = segment.lines.last().copied().unwrap_or(segment.before);
            new_neighbours.extend([(segment.before, first), (last, segment.after)]);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: &str = "fn main() {\n    let one = 1;\n    let two = 2;\n    print(one, two);\n}\n";

    fn edit() -> LineHashes {
        // The edit of `let two = 2`, as a client reports it.
        LineHashes::of_patch([(
            1,
            [
                " fn main() {",
                "     let one = 1;",
                "-    let two = 2;",
                "+    let two = 22;",
                "     print(one, two);",
                " }",
            ],
        )])
    }

    #[test]
    fn each_line_is_traced_to_the_change_that_wrote_it() {
        let now = FIRST.replace("= 2;", "= 22;");
        let changes = [("edit", edit()), ("write", LineHashes::of_file(FIRST))];
        let answers: Vec<_> = (1..=5).map(|line| trace_line(&now, line, &changes)).collect();
        let exact = |id| Some((id, TraceMatch::Exact));
        assert_eq!(answers, [exact("write"), exact("write"), exact("edit"), exact("write"), exact("write")]);
        assert_eq!(trace_line(&now, 6, &changes), None);
        assert_eq!(trace_line(&now, 0, &changes), None);
    }

    #[test]
    fn line_of_an_unrecorded_edit_has_no_writer_and_its_neighbours_match_as_moved() {
        let now = FIRST.replace("    let two = 2;\n", "    let two = 2;\n    }\n    let three = 3;\n");
        let changes = [("write", LineHashes::of_file(FIRST))];
        assert_eq!(trace_line(&now, 3, &changes), Some(("write", TraceMatch::Moved)));
        assert_eq!(trace_line(&now, 4, &changes), None);
        assert_eq!(trace_line(&now, 5, &changes), None);
        assert_eq!(trace_line(&now, 7, &changes), Some(("write", TraceMatch::Exact)));
    }

    #[test]
    fn rewriting_a_file_keeps_the_first_writer_of_unchanged_lines() {
        let now = format!("{FIRST}// more of it\n");
        let changes = [("again", LineHashes::of_file(&now)), ("write", LineHashes::of_file(FIRST))];
        assert_eq!(trace_line(&now, 2, &changes), Some(("write", TraceMatch::Exact)));
        assert_eq!(trace_line(&now, 6, &changes), Some(("again", TraceMatch::Exact)));
    }

    #[test]
    fn replacement_is_recognised_by_its_unchanged_lines() {
        let replaced = LineHashes::of_replacement("let one = 1;\n    let two = 2;", "let one = 1;\n    let two = 3;");
        let now = FIRST.replace("two = 2", "two = 3");
        let changes = [("edit", replaced), ("write", LineHashes::of_file(FIRST))];
        assert_eq!(trace_line(&now, 3, &changes), Some(("edit", TraceMatch::Exact)));
        assert_eq!(trace_line(&now, 2, &changes), Some(("write", TraceMatch::Exact)));
        let alone = [("edit", LineHashes::of_replacement("2", "    let two = 3;"))];
        assert_eq!(trace_line(&now, 3, &alone), Some(("edit", TraceMatch::Moved)));
        let among =
            [("edit", LineHashes::of_replacement("2", "    let two = 3;")), ("write", LineHashes::of_file(FIRST))];
        assert_eq!(trace_line(&now, 3, &among), Some(("edit", TraceMatch::Exact)));
    }

    #[test]
    fn unrecorded_copy_of_lines_is_never_an_exact_match() {
        let body = "fn one() {\n    let first = 1;\n    let second = 2;\n    done();\n}\n";
        let changes = [("write", LineHashes::of_file(body))];
        let twice = format!("{body}\n{}", body.replace("fn one", "fn two"));
        assert_eq!(trace_line(&twice, 3, &changes), Some(("write", TraceMatch::Moved)));
        assert_eq!(trace_line(&twice, 9, &changes), Some(("write", TraceMatch::Moved)));
    }

    #[test]
    fn line_written_over_unknown_content_is_never_an_exact_match() {
        assert_eq!(
            trace_line(FIRST, 2, &[("over", LineHashes::of_file_over_unknown(FIRST))]),
            Some(("over", TraceMatch::Moved))
        );
        let known = [("over", LineHashes::of_file_over_unknown(FIRST)), ("write", LineHashes::of_file(FIRST))];
        assert_eq!(trace_line(FIRST, 2, &known), Some(("write", TraceMatch::Exact)));
    }

    proptest! {
        #[test]
        fn decoding_restores_encoded_hashes(texts in proptest::collection::vec("[a-c\n]{0,12}", 0..4), whole: bool) {
            let mut written = LineHashes { is_whole_file: whole, replaces_unknown: whole && texts.len() > 2, segments: Vec::new() };
            for pair in texts.windows(2) {
                written.segments.extend(LineHashes::of_replacement(&pair[0], &pair[1]).segments);
            }
            prop_assert_eq!(LineHashes::from_bytes(&written.to_bytes()), Some(written));
        }

        #[test]
        fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = LineHashes::from_bytes(&bytes);
        }

        #[test]
        fn line_that_no_change_wrote_has_no_writer(content in "[a-d ]{0,6}(\n[a-d ]{0,6}){0,6}", number in 0usize..9) {
            let changes = [("other", LineHashes::of_file("zz\nyy\n"))];
            let blank = content.lines().nth(number.saturating_sub(1)).is_some_and(|line| line.trim().is_empty());
            prop_assume!(!blank);
            prop_assert_eq!(trace_line(&content, number, &changes), None);
        }
    }
}

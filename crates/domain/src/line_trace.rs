//! Which change wrote a line: a hash per line written, with its neighbours.
//!
//! A line is known again by its text and by what stands around it, not by its number: numbers shift with every edit,
//! and edits from outside are not recorded at all. A neighbour that a later recorded change put there counts as known.
//! Where neither text nor surroundings speak for a change, there is no answer.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// A neighbour that is not known.
const UNKNOWN: u64 = 0;
/// The edge of the file, above its first line and below its last.
const EDGE: u64 = 1;
/// The first byte of the stored form.
const FORM: u8 = 1;

/// What one change wrote into a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The whole content was given: lines may have been written before.
    pub whole: bool,
    /// It replaced a content that is not known: lines may be anyone's.
    pub over: bool,
    pub segments: Vec<Segment>,
}

/// Lines next to each other that one change wrote. Without lines: what stands next to each other after a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    before: u64,
    after: u64,
    lines: Vec<u64>,
}

/// How sure the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The line stands between others now.
    Moved,
    /// The line stands where it was written.
    Exact,
}

impl Fit {
    pub fn word(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Exact => "exact",
        }
    }
}

/// The hash of a line. Space around it does not count: a formatter does not write lines.
fn hash(line: &str) -> u64 {
    let digest = Sha256::digest(line.trim().as_bytes());
    let hash = u64::from_le_bytes(digest[..8].try_into().unwrap_or_default());
    hash.max(EDGE + 1)
}

/// Whether a line says enough to be known again by one neighbour only.
fn is_telling(line: &str) -> bool {
    line.chars().filter(|character| character.is_alphanumeric()).count() >= 4
}

impl Written {
    /// A file written whole.
    pub fn whole(content: &str) -> Self {
        let lines: Vec<u64> = content.lines().map(hash).collect();
        Self { whole: true, over: false, segments: vec![Segment { before: EDGE, after: EDGE, lines }] }
    }

    /// A file written whole over one whose content is not known.
    pub fn over(content: &str) -> Self {
        Self { over: true, ..Self::whole(content) }
    }

    /// A unified diff's hunks: the number of the first line after the change, and the lines with their marks.
    pub fn patch<'a, L: IntoIterator<Item = &'a str>>(hunks: impl IntoIterator<Item = (i64, L)>) -> Self {
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
                // A patch shows what follows unless nothing does.
                segments.push(Segment { before, after: EDGE, lines: added });
            }
        }
        Self { segments, ..Self::default() }
    }

    /// A replaced piece of text whose place in the file is not known.
    pub fn replacement(old: &str, new: &str) -> Self {
        let old: Vec<u64> = old.lines().map(hash).collect();
        let new: Vec<u64> = new.lines().map(hash).collect();
        let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let rest = old.len().min(new.len()) - same_start;
        let same_end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
        let before = same_start.checked_sub(1).map_or(UNKNOWN, |place| new[place]);
        let after = new.get(new.len() - same_end).copied().filter(|_| same_end > 0).unwrap_or(UNKNOWN);
        let lines = new[same_start..new.len() - same_end].to_vec();
        Self { segments: vec![Segment { before, after, lines }], ..Self::default() }
    }

    pub fn lines(&self) -> usize {
        self.segments.iter().map(|segment| segment.lines.len()).sum()
    }

    /// The form it is stored in.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORM, u8::from(self.whole) | u8::from(self.over) << 1];
        for segment in &self.segments {
            let count = u32::try_from(segment.lines.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&count.to_le_bytes());
            for hash in [segment.before, segment.after].iter().chain(segment.lines.iter().take(count as usize)) {
                bytes.extend_from_slice(&hash.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads the stored form; what cannot be read says nothing.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[FORM, marks], mut rest) = bytes.split_at_checked(2)? else {
            return None;
        };
        let mut segments = Vec::new();
        while !rest.is_empty() {
            let (count, behind) = rest.split_first_chunk::<4>()?;
            let count = u32::from_le_bytes(*count) as usize;
            let (hashes, behind) = behind.split_at_checked(count.checked_add(2)?.checked_mul(8)?)?;
            let mut hashes =
                hashes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect::<Vec<_>>();
            let lines = hashes.split_off(2);
            segments.push(Segment { before: hashes[0], after: hashes[1], lines });
            rest = behind;
        }
        Some(Self { whole: marks & 1 != 0, over: marks & 2 != 0, segments })
    }
}

/// The change that wrote line `number` (from 1) of `content`, out of the file's changes, newest first.
pub fn trace<Id: Copy>(content: &str, number: usize, newest_first: &[(Id, Written)]) -> Option<(Id, Fit)> {
    let lines: Vec<&str> = content.lines().collect();
    let index = number.checked_sub(1)?;
    let text = *lines.get(index)?;
    let wanted = hash(text);
    let above = index.checked_sub(1).map_or(EDGE, |above| hash(lines[above]));
    let below = lines.get(index + 1).map_or(EDGE, |below| hash(below));
    let unique = lines.iter().filter(|line| hash(line) == wanted).count() == 1;
    let known: HashSet<u64> = newest_first
        .iter()
        .flat_map(|(_, written)| &written.segments)
        .flat_map(|segment| segment.lines.iter().chain([&segment.before, &segment.after]))
        .copied()
        .filter(|hash| *hash != UNKNOWN)
        .collect();
    // A line that stands between the same neighbours more often than it was written there is someone's copy, too.
    let hashes: Vec<u64> = lines.iter().map(|line| hash(line)).collect();
    let stands = hashes.windows(3).filter(|around| **around == [above, wanted, below]).count();
    let was_written = newest_first
        .iter()
        .flat_map(|(_, written)| &written.segments)
        .map(|segment| {
            let whole: Vec<u64> =
                [segment.before].into_iter().chain(segment.lines.iter().copied()).chain([segment.after]).collect();
            whole.windows(3).filter(|around| **around == [above, wanted, below]).count()
        })
        .max();
    let copied = stands > was_written.unwrap_or_default().max(1);
    // Pairs of neighbours that a newer change made by putting something next to a line that was there.
    let mut joined: HashSet<(u64, u64)> = HashSet::new();
    let mut best: Option<(Id, Fit)> = None;
    for (id, written) in newest_first {
        for segment in &written.segments {
            for (place, _) in segment.lines.iter().enumerate().filter(|(_, line)| **line == wanted) {
                let left = place.checked_sub(1).map_or(segment.before, |left| segment.lines[left]);
                let right = segment.lines.get(place + 1).copied().unwrap_or(segment.after);
                let agrees = |recorded: u64, now: u64, pair: (u64, u64)| match recorded {
                    _ if recorded == now || joined.contains(&pair) => Some(true),
                    // What stood there is not known; a line that no one else wrote is as good.
                    UNKNOWN if unique && known.contains(&now) => Some(true),
                    UNKNOWN => None,
                    _ => Some(false),
                };
                let fit = match (agrees(left, above, (above, wanted)), agrees(right, below, (wanted, below))) {
                    (Some(true), Some(true)) if copied || written.over => Some(Fit::Moved),
                    (Some(true), Some(true)) => Some(Fit::Exact),
                    (Some(true), None) | (None, Some(true)) if is_telling(text) && !copied => Some(Fit::Exact),
                    (Some(true), _) | (_, Some(true)) if is_telling(text) => Some(Fit::Moved),
                    (None, None) if unique && is_telling(text) => Some(Fit::Moved),
                    _ => None,
                };
                match fit {
                    Some(Fit::Exact) if !written.whole => return Some((*id, Fit::Exact)),
                    // A line of a file written whole may be older: an older change that fits as well wrote it.
                    Some(Fit::Exact) => best = Some((*id, Fit::Exact)),
                    Some(Fit::Moved) if best.is_none() => best = Some((*id, Fit::Moved)),
                    _ => {}
                }
            }
        }
        for segment in &written.segments {
            let first = segment.lines.first().copied().unwrap_or(segment.after);
            let last = segment.lines.last().copied().unwrap_or(segment.before);
            joined.extend([(segment.before, first), (last, segment.after)]);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: &str = "fn main() {\n    let one = 1;\n    let two = 2;\n    print(one, two);\n}\n";

    fn edit() -> Written {
        // What `let two = 2` became, as the client shows it.
        Written::patch([(
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
    fn each_line_belongs_to_the_change_that_wrote_it() {
        let now = FIRST.replace("= 2;", "= 22;");
        let changes = [("edit", edit()), ("write", Written::whole(FIRST))];
        let answers: Vec<_> = (1..=5).map(|line| trace(&now, line, &changes)).collect();
        let exact = |id| Some((id, Fit::Exact));
        assert_eq!(answers, [exact("write"), exact("write"), exact("edit"), exact("write"), exact("write")]);
        assert_eq!(trace(&now, 6, &changes), None);
        assert_eq!(trace(&now, 0, &changes), None);
    }

    #[test]
    fn an_edit_from_outside_is_nobodys_and_its_neighbours_have_moved() {
        let now = FIRST.replace("    let two = 2;\n", "    let two = 2;\n    }\n    let three = 3;\n");
        let changes = [("write", Written::whole(FIRST))];
        assert_eq!(trace(&now, 3, &changes), Some(("write", Fit::Moved)));
        assert_eq!(trace(&now, 4, &changes), None);
        assert_eq!(trace(&now, 5, &changes), None);
        assert_eq!(trace(&now, 7, &changes), Some(("write", Fit::Exact)));
    }

    #[test]
    fn a_file_written_again_with_the_same_lines_keeps_their_first_writer() {
        let now = format!("{FIRST}// more of it\n");
        let changes = [("again", Written::whole(&now)), ("write", Written::whole(FIRST))];
        assert_eq!(trace(&now, 2, &changes), Some(("write", Fit::Exact)));
        assert_eq!(trace(&now, 6, &changes), Some(("again", Fit::Exact)));
    }

    #[test]
    fn a_replaced_piece_is_known_by_what_it_kept() {
        let replaced = Written::replacement("let one = 1;\n    let two = 2;", "let one = 1;\n    let two = 3;");
        let now = FIRST.replace("two = 2", "two = 3");
        let changes = [("edit", replaced), ("write", Written::whole(FIRST))];
        assert_eq!(trace(&now, 3, &changes), Some(("edit", Fit::Exact)));
        assert_eq!(trace(&now, 2, &changes), Some(("write", Fit::Exact)));
        let alone = [("edit", Written::replacement("2", "    let two = 3;"))];
        assert_eq!(trace(&now, 3, &alone), Some(("edit", Fit::Moved)));
        let among = [("edit", Written::replacement("2", "    let two = 3;")), ("write", Written::whole(FIRST))];
        assert_eq!(trace(&now, 3, &among), Some(("edit", Fit::Exact)));
    }

    #[test]
    fn a_copy_by_someone_else_is_never_exact() {
        let body = "fn one() {\n    let first = 1;\n    let second = 2;\n    done();\n}\n";
        let changes = [("write", Written::whole(body))];
        let twice = format!("{body}\n{}", body.replace("fn one", "fn two"));
        assert_eq!(trace(&twice, 3, &changes), Some(("write", Fit::Moved)));
        assert_eq!(trace(&twice, 9, &changes), Some(("write", Fit::Moved)));
    }

    #[test]
    fn over_an_unknown_file_no_line_is_exact() {
        assert_eq!(trace(FIRST, 2, &[("over", Written::over(FIRST))]), Some(("over", Fit::Moved)));
        let known = [("over", Written::over(FIRST)), ("write", Written::whole(FIRST))];
        assert_eq!(trace(FIRST, 2, &known), Some(("write", Fit::Exact)));
    }

    proptest! {
        #[test]
        fn comes_back_from_its_bytes(texts in proptest::collection::vec("[a-c\n]{0,12}", 0..4), whole: bool) {
            let mut written = Written { whole, over: whole && texts.len() > 2, segments: Vec::new() };
            for pair in texts.windows(2) {
                written.segments.extend(Written::replacement(&pair[0], &pair[1]).segments);
            }
            prop_assert_eq!(Written::from_bytes(&written.to_bytes()), Some(written));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Written::from_bytes(&bytes);
        }

        #[test]
        fn a_line_that_was_not_written_has_no_writer(content in "[a-d ]{0,6}(\n[a-d ]{0,6}){0,6}", number in 0usize..9) {
            let changes = [("other", Written::whole("zz\nyy\n"))];
            let blank = content.lines().nth(number.saturating_sub(1)).is_some_and(|line| line.trim().is_empty());
            prop_assume!(!blank);
            prop_assert_eq!(trace(&content, number, &changes), None);
        }
    }
}

//! Inputs for the fuzz targets: the files in `tests/corpus`, and mutations of them.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::Index};

/// Byte sequences that have a meaning to at least one parser.
const TOKENS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b": ",
    b",",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\x1b[31m",
    b"\x7f",
    b"\xff",
    b"\xc3",
    b"---\n",
    b"...\n",
    b"```",
    b"```json\n",
    b"# ",
    b"- ",
    b"| ",
    b"|\n",
    b">-\n",
    b"&a ",
    b"*a",
    b"!!str ",
    b"? ",
    b"<<: ",
    b"null",
    b"true",
    b"~",
    b"-1",
    b"1e999",
    b"999999999999999999999",
    b"\\ud800",
    b"\\u0000",
    b"/",
    b"../",
    b"%00",
    b"' or 1=1 --",
    b"<script>",
    b"*",
    b"NEAR(",
    b"-",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xae",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
];

/// A change of an input.
#[derive(Debug, Clone)]
enum Mutation {
    Insert(Index, Index),
    Delete(Index, usize),
    SetByte(Index, u8),
    Repeat(Index, usize, usize),
    SpliceSeed(Index, Index),
}

/// The unmodified inputs of a target, sorted by file name.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Inputs of a target with up to five mutations each.
pub fn mutated(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds = seeds(target);
    let at = any::<Index>;
    let mutation = prop_oneof![
        4 => (at(), at()).prop_map(|(position, token)| Mutation::Insert(position, token)),
        2 => (at(), 1..40usize).prop_map(|(position, length)| Mutation::Delete(position, length)),
        2 => (at(), any::<u8>()).prop_map(|(position, byte)| Mutation::SetByte(position, byte)),
        1 => (at(), 1..20usize, 2..300usize).prop_map(|(position, length, times)| Mutation::Repeat(position, length, times)),
        1 => (at(), at()).prop_map(|(position, seed)| Mutation::SpliceSeed(position, seed)),
    ];
    (at(), vec(mutation, 0..6)).prop_map(move |(seed, mutations)| {
        let mut input = seed.get(&seeds).clone();
        for mutation in mutations {
            apply(&mut input, &mutation, &seeds);
        }
        input
    })
}

/// Like [`mutated`], as text: invalid UTF-8 becomes U+FFFD.
pub fn mutated_text(target: &str) -> impl Strategy<Value = String> + use<> {
    mutated(target).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn apply(input: &mut Vec<u8>, mutation: &Mutation, seeds: &[Vec<u8>]) {
    let position = |index: &Index, input: &[u8]| index.index(input.len() + 1);
    let range = |index: &Index, length: usize, input: &[u8]| {
        let start = position(index, input);
        start..(start + length).min(input.len())
    };
    match mutation {
        Mutation::Insert(at, token) => {
            let start = position(at, input);
            input.splice(start..start, token.get(TOKENS).iter().copied());
        }
        Mutation::Delete(at, length) => drop(input.drain(range(at, *length, input))),
        Mutation::SetByte(at, byte) => {
            let changed = at.index(input.len().max(1));
            input.get_mut(changed).into_iter().for_each(|changed| *changed = *byte);
        }
        Mutation::Repeat(at, length, times) => {
            let range = range(at, *length, input);
            let again = input[range.clone()].repeat(*times);
            input.splice(range, again);
        }
        Mutation::SpliceSeed(at, seed) => {
            let start = position(at, input);
            input.splice(start.., seed.get(seeds)[start.min(seed.get(seeds).len())..].iter().copied());
        }
    }
}

/// The number of cases for a target: `few`, or twenty times as many with `./test --all`.
pub fn proptest_config(few: u32) -> ProptestConfig {
    let all = std::env::var_os("TRACKWAY_TEST_ALL").is_some();
    ProptestConfig { cases: if all { few * 20 } else { few }, failure_persistence: None, ..ProptestConfig::default() }
}

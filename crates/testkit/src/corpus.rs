//! Inputs for the fuzz targets: what stands in `tests/corpus`, and what becomes of it when it is bent.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::Index};

/// What means something to one reader or another.
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

/// One way to bend an input.
#[derive(Debug, Clone)]
enum Bend {
    Put(Index, Index),
    Take(Index, usize),
    Change(Index, u8),
    Again(Index, usize, usize),
    Other(Index, Index),
}

/// The inputs of a target, by their names.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Inputs of a target, each bent a few times or not at all.
pub fn bent(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let seeds = seeds(target);
    let at = any::<Index>;
    let bend = prop_oneof![
        4 => (at(), at()).prop_map(|(place, token)| Bend::Put(place, token)),
        2 => (at(), 1..40usize).prop_map(|(place, length)| Bend::Take(place, length)),
        2 => (at(), any::<u8>()).prop_map(|(place, byte)| Bend::Change(place, byte)),
        1 => (at(), 1..20usize, 2..300usize).prop_map(|(place, length, times)| Bend::Again(place, length, times)),
        1 => (at(), at()).prop_map(|(place, seed)| Bend::Other(place, seed)),
    ];
    (at(), vec(bend, 0..6)).prop_map(move |(seed, bends)| {
        let mut input = seed.get(&seeds).clone();
        for bend in bends {
            apply(&mut input, &bend, &seeds);
        }
        input
    })
}

/// The same as text; what is no text is marked.
pub fn bent_text(target: &str) -> impl Strategy<Value = String> + use<> {
    bent(target).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn apply(input: &mut Vec<u8>, bend: &Bend, seeds: &[Vec<u8>]) {
    let place = |index: &Index, input: &[u8]| index.index(input.len() + 1);
    let part = |index: &Index, length: usize, input: &[u8]| {
        let start = place(index, input);
        start..(start + length).min(input.len())
    };
    match bend {
        Bend::Put(at, token) => {
            let start = place(at, input);
            input.splice(start..start, token.get(TOKENS).iter().copied());
        }
        Bend::Take(at, length) => drop(input.drain(part(at, *length, input))),
        Bend::Change(at, byte) => {
            let changed = at.index(input.len().max(1));
            input.get_mut(changed).into_iter().for_each(|changed| *changed = *byte);
        }
        Bend::Again(at, length, times) => {
            let part = part(at, *length, input);
            let again = input[part.clone()].repeat(*times);
            input.splice(part, again);
        }
        Bend::Other(at, seed) => {
            let start = place(at, input);
            input.splice(start.., seed.get(seeds)[start.min(seed.get(seeds).len())..].iter().copied());
        }
    }
}

/// How often a target is tried: that often, or twenty times as often when everything is tested.
pub fn tries(few: u32) -> ProptestConfig {
    let all = std::env::var_os("TRACKWAY_TEST_ALL").is_some();
    ProptestConfig { cases: if all { few * 20 } else { few }, failure_persistence: None, ..ProptestConfig::default() }
}

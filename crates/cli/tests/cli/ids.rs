//! Short ids: what is shown, what is accepted, what is ambiguous.

use trackway_domain::{Id, ids, kind};
use trackway_testkit::{Engine, TestEnv};
use uuid::Uuid;

use crate::terminal::{Terminal, both_engines, text};

both_engines! {
    fn any_suffix_of_six_or_more_is_accepted(terminal: Terminal) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "x"])["id"]);
        let hex = note.replace('-', "");
        for digits in [6, 7, 8, 9, 20, 32] {
            assert_eq!(terminal.json(&["note", "show", &hex[32 - digits..]])["id"], serde_json::json!(note), "{digits}");
        }
        assert_eq!(terminal.json(&["note", "show", &note.to_uppercase()])["id"], serde_json::json!(note));
        assert_eq!(terminal.fails(&["note", "show", &hex[27..]]).0, 3);
        assert_eq!(terminal.fails(&["note", "show", ""]).0, 3);
        let shown = terminal.runs(&["note", "list"]).stdout;
        assert!(shown.contains(&format!("\n{}\t", &hex[24..])), "{shown}");
        // The id of one kind is not an id of another.
        assert_eq!(terminal.fails(&["decision", "show", &note]).0, 3);
    }
}

#[expect(clippy::disallowed_methods, reason = "ids that end alike do not come by themselves")]
fn ids_that_end_alike(env: &TestEnv) {
    let ids = [0x1111_u128, 0x2222].map(|start| Uuid::from_u128(start << 112 | 0xabcd_1234));
    let mut write = env.core.store().write(env.ada.tenant).unwrap();
    for id in ids {
        write.register(Id::<kind::Note>::from(id), None, "twin", None).unwrap();
    }
    write.commit().unwrap();
    let mut read = env.core.store().read(env.ada.tenant).unwrap();
    let error = read.entry_ending("abcd1234", None).unwrap_err();
    assert_eq!(error.to_string(), "\"abcd1234\" is the end of 2 ids");
    assert_eq!(
        error.hint().unwrap().to_string(),
        "type more of it: 100000000000000000000abcd1234 (note twin), 200000000000000000000abcd1234 (note twin)"
    );
    let forms = read.short_forms(&ids).unwrap();
    assert_eq!(forms[&ids[0]], ids::suffix(ids[0], 29));
    assert_eq!(forms[&ids[1]], ids::suffix(ids[1], 29));
}

#[test]
fn ambiguous_ids_are_answered_with_the_candidates_on_sqlite() {
    ids_that_end_alike(&TestEnv::new(Engine::Sqlite));
}

#[test]
fn ambiguous_ids_are_answered_with_the_candidates_on_postgres() {
    ids_that_end_alike(&TestEnv::new(Engine::Postgres));
}

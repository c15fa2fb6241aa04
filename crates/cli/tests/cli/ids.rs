//! Short ids: the printed form, the accepted forms and ambiguous suffixes.

use trackway_domain::{Id, ids, kind};
use trackway_testkit::{Engine, TestEnv};
use uuid::Uuid;

use crate::terminal::{Terminal, both_engines, text};

both_engines! {
    fn id_suffix_of_six_or_more_digits_is_accepted(terminal: Terminal) {
        let note = text(&terminal.json(&["note", "create", "--studio", "main", "--title", "x"])["id"]);
        let hex = note.replace('-', "");
        for digits in [6, 7, 8, 9, 20, 32] {
            assert_eq!(terminal.json(&["note", "show", &hex[32 - digits..]])["id"], serde_json::json!(note), "{digits}");
        }
        assert_eq!(terminal.json(&["note", "show", &note.to_uppercase()])["id"], serde_json::json!(note));
        assert_eq!(terminal.expect_error(&["note", "show", &hex[27..]]).0, 3);
        assert_eq!(terminal.expect_error(&["note", "show", ""]).0, 3);
        let shown = terminal.run(&["note", "list"]).stdout;
        assert!(shown.contains(&format!("\n{}\t", &hex[24..])), "{shown}");
        // A command accepts only ids of its own resource kind.
        assert_eq!(terminal.expect_error(&["decision", "show", &note]).0, 3);
    }
}

#[expect(clippy::disallowed_methods, reason = "generated ids do not share a long suffix")]
fn assert_ambiguous_suffix_lists_candidates(env: &TestEnv) {
    let ids = [0x1111_u128, 0x2222].map(|start| Uuid::from_u128(start << 112 | 0xabcd_1234));
    let mut write = env.core.store().write(env.ada.tenant).unwrap();
    for id in ids {
        write.register(Id::<kind::Note>::from(id), None, "twin", None).unwrap();
    }
    write.commit().unwrap();
    let mut read = env.core.store().read(env.ada.tenant).unwrap();
    let error = read.entry_by_id_suffix("abcd1234", None).unwrap_err();
    assert_eq!(error.to_string(), "\"abcd1234\" is ambiguous: 2 ids end with it");
    assert_eq!(
        error.hint().unwrap().to_string(),
        "use a longer suffix: 100000000000000000000abcd1234 (note twin), 200000000000000000000abcd1234 (note twin)"
    );
    let forms = read.short_ids(&ids).unwrap();
    assert_eq!(forms[&ids[0]], ids::suffix(ids[0], 29));
    assert_eq!(forms[&ids[1]], ids::suffix(ids[1], 29));
}

#[test]
fn ambiguous_id_suffix_lists_candidates_on_sqlite() {
    assert_ambiguous_suffix_lists_candidates(&TestEnv::new(Engine::Sqlite));
}

#[test]
fn ambiguous_id_suffix_lists_candidates_on_postgres() {
    assert_ambiguous_suffix_lists_candidates(&TestEnv::new(Engine::Postgres));
}

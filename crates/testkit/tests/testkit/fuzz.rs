//! Fuzz targets: everything that reads what others wrote, given what they might write. Short by default, long with
//! `TRACKWAY_TEST_ALL`. An input that once broke something goes into `tests/corpus`.

use std::{cell::Cell, fs};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use trackway_capture::transcript::{Flow, Mark, Transcript};
use trackway_client_claude::{event, transcript};
use trackway_domain::{
    Duration, ErrorKind, Ref, Time, Variant,
    board::{BoardContent, StickieContent},
    board_folder::{BoardFile, RelationFile, StickieFile, board_yaml, parse, stickie_yaml},
    closing, ids, kind, scratchpad,
    search_query::SearchQuery,
    text,
};
use trackway_server::{markdown, page::Page};
use trackway_testkit::{
    TestEnv,
    corpus::{bent, bent_text, seeds, tries},
    engines,
};
use uuid::Uuid;

/// Reads a transcript from a mark on: how many facts, and where it stopped.
fn read(transcript: &Transcript, mark: Option<&Mark>) -> (usize, Option<Mark>) {
    let (mut facts, mut last) = (0, mark.cloned());
    transcript::read(transcript, mark, &mut |seen| {
        facts += seen.facts.len();
        let progress = seen.progress.unwrap();
        let offset = progress.to.cast_unsigned();
        last = Some(Mark { identity: progress.identity, offset, changed: None, state: progress.state });
        Flow::Continue
    })
    .unwrap();
    (facts, last)
}

/// Bent inputs say little about a reader that refuses them straight away.
#[test]
fn the_corpus_is_understood() {
    let texts = |target| seeds(target).into_iter().map(|seed| String::from_utf8(seed).unwrap());
    for event in seeds("hook") {
        assert!(event::parse(&event).is_ok_and(|event| !event.facts(None, Time::from_micros(0)).is_empty()));
    }
    assert_eq!(texts("reply").filter_map(|reply| closing::report(&closing::object(&reply)?).ok()?).count(), 2);
    assert_eq!(texts("board").filter(|yaml| parse::<StickieFile>("x", yaml).is_ok()).count(), 2);
    assert_eq!(texts("board").filter(|yaml| parse::<BoardFile>("x", yaml).is_ok()).count(), 1);
    assert_eq!(texts("board").filter(|yaml| parse::<Vec<RelationFile>>("x", yaml).is_ok()).count(), 1);
}

proptest! {
    #![proptest_config(tries(1_000))]

    #[test]
    fn hook_input(bytes in bent("hook")) {
        let header = event::header(&bytes);
        if let Ok(event) = event::parse(&bytes) {
            prop_assert_eq!(header.map(|header| header.name), Ok(event.name.clone()));
            let facts = event.facts(None, Time::from_micros(0));
            prop_assert_eq!(event.observation("client", facts).facts.len(), event.facts(None, Time::from_micros(0)).len());
        }
    }

    #[test]
    fn selectors_and_queries(said in bent_text("query")) {
        if let Ok(variant) = Variant::select(None, Some(&said)) {
            prop_assert_eq!(variant.as_str(), said.trim());
        }
        if let Ok(duration) = said.parse::<Duration>() {
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }
        if let Ok(time) = said.parse::<Time>() {
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }
        if let Ok(query) = SearchQuery::parse(&said) {
            let _ = query.is_in(&said);
        }
        let _ = ids::parse_suffix(&said);
    }

    #[test]
    fn scratchpad_replies(reply in bent_text("reply")) {
        let _ = closing::beside(&reply);
        let object = closing::object(&reply);
        let _ = scratchpad::at_end_of_run(object.as_ref().and_then(|object| object.get("scratchpad")));
        if let Some(report) = object.as_ref().and_then(|object| closing::report(object).ok()?) {
            prop_assert!(report.one_liner.chars().count() <= text::LINE_MAX && !report.one_liner.contains('\n'));
            prop_assert!(!report.content.trim().is_empty() && !report.content.contains('\0'));
        }
    }

    #[test]
    fn front_matter(title in bent_text("title")) {
        let page = markdown::page(&Page::new("/notes/x", &*title, Value::Null));
        let (matter, _) = page.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
        let matter: Value = serde_saphyr::from_str(matter).unwrap();
        let keys: Vec<&String> = matter.as_object().unwrap().keys().collect();
        prop_assert_eq!(keys, ["path", "title", "actions"]);
        prop_assert_eq!(matter, json!({ "path": "/notes/x", "title": text::clean_line(&title), "actions": [] }));
    }

    #[test]
    fn board_yaml_files(yaml in bent_text("board")) {
        let _ = parse::<Option<Vec<RelationFile>>>("x", &yaml);
        if let Ok(content) = parse::<StickieFile>("x", &yaml).and_then(|file| file.applied_to(&StickieContent::default())) {
            let again: StickieFile = parse("x", &stickie_yaml(Uuid::nil(), &content, 1).unwrap()).unwrap();
            prop_assert_eq!(again.applied_to(&StickieContent::default()).unwrap(), content);
        }
        if let Ok(content) = parse::<BoardFile>("x", &yaml).and_then(|file| file.applied_to(&BoardContent::default())) {
            let again: BoardFile = parse("x", &board_yaml(Uuid::nil(), &content, 1, None).unwrap()).unwrap();
            prop_assert_eq!(again.applied_to(&BoardContent::default()).unwrap(), content);
        }
    }
}

proptest! {
    #![proptest_config(tries(200))]

    #[test]
    fn transcript_lines(bytes in bent("transcript")) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.jsonl");
        fs::write(&path, &bytes).unwrap();
        let transcript = Transcript { path, session: "11111111-1111-4111-8111-111111111111".into(), agent: None };
        let (_, mark) = read(&transcript, None);
        if let Some(mark) = mark.filter(|mark| mark.offset > 0) {
            prop_assert!(mark.offset <= bytes.len() as u64);
            prop_assert_eq!(read(&transcript, Some(&mark)).0, 0, "what was read is not read again");
        }
    }
}

engines! {
    fn references(env: TestEnv) {
        TestRunner::new(tries(100)).run(&bent_text("query"), |said| {
            let found = env.read(|reader| Ok(reader.resolve(&Ref::<kind::Task>::new(&*said))));
            prop_assert!(matches!(found.unwrap_err().kind(), ErrorKind::NotFound | ErrorKind::Usage), "{:?}", said);
            Ok(())
        }).unwrap();
    }

    fn issues_of_beads(env: TestEnv) {
        let number = Cell::new(0);
        TestRunner::new(tries(40)).run(&bent_text("beads"), |issues| {
            // Each below another command: nothing of the one before is there.
            number.set(number.get() + 1);
            let input = json!({ "issues": issues, "command": format!("b{}", number.get()) });
            env.act("import_beads", input.clone()).unwrap();
            let again = env.act("import_beads", input).unwrap();
            prop_assert_eq!(["tasks", "updated", "links"].map(|what| again[what].as_i64()), [Some(0); 3], "{}", again);
            Ok(())
        }).unwrap();
    }
}

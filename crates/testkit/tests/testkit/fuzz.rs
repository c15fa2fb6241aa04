//! Fuzz targets: all parsers of external input, run on mutated inputs. `TRACKWAY_TEST_ALL` makes the runs longer. Add
//! every input that ever caused a failure to `tests/corpus`.

use std::{cell::Cell, fs};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use trackway_capture::transcript::{Flow, ReadCursor, Transcript};
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
    corpus::{mutated, mutated_text, proptest_config, seeds},
    engines,
};
use uuid::Uuid;

/// Reads a transcript from this cursor, or from the start. Returns the number of facts and the new cursor.
fn read(transcript: &Transcript, mark: Option<&ReadCursor>) -> (usize, Option<ReadCursor>) {
    let (mut facts, mut last) = (0, mark.cloned());
    transcript::read(transcript, mark, &mut |seen| {
        facts += seen.facts.len();
        let progress = seen.progress.unwrap();
        let offset = progress.to.cast_unsigned();
        last = Some(ReadCursor { identity: progress.identity, offset, changed: None, state: progress.state });
        Flow::Continue
    })
    .unwrap();
    (facts, last)
}

/// Mutations test a parser only if it accepts the unmodified input.
#[test]
fn parsers_accept_corpus_inputs() {
    let header_texts = |target| seeds(target).into_iter().map(|seed| String::from_utf8(seed).unwrap());
    for event in seeds("hook") {
        assert!(event::parse(&event).is_ok_and(|event| !event.facts(None, Time::from_micros(0)).is_empty()));
    }
    assert_eq!(
        header_texts("reply").filter_map(|reply| closing::parse_report(&closing::find_object(&reply)?).ok()?).count(),
        2
    );
    assert_eq!(header_texts("board").filter(|yaml| parse::<StickieFile>("x", yaml).is_ok()).count(), 2);
    assert_eq!(header_texts("board").filter(|yaml| parse::<BoardFile>("x", yaml).is_ok()).count(), 1);
    assert_eq!(header_texts("board").filter(|yaml| parse::<Vec<RelationFile>>("x", yaml).is_ok()).count(), 1);
}

proptest! {
    #![proptest_config(proptest_config(1_000))]

    #[test]
    fn hook_parser_handles_mutated_input(bytes in mutated("hook")) {
        let header = event::header(&bytes);
        if let Ok(event) = event::parse(&bytes) {
            prop_assert_eq!(header.map(|header| header.name), Ok(event.name.clone()));
            let facts = event.facts(None, Time::from_micros(0));
            prop_assert_eq!(event.observation("client", facts).facts.len(), event.facts(None, Time::from_micros(0)).len());
        }
    }

    #[test]
    fn selector_and_query_parsers_handle_mutated_input(input in mutated_text("query")) {
        if let Ok(variant) = Variant::select(None, Some(&input)) {
            prop_assert_eq!(variant.as_str(), input.trim());
        }
        if let Ok(duration) = input.parse::<Duration>() {
            prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
        }
        if let Ok(time) = input.parse::<Time>() {
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }
        if let Ok(query) = SearchQuery::parse(&input) {
            let _ = query.matches_body(&input);
        }
        let _ = ids::parse_suffix(&input);
    }

    #[test]
    fn closing_reply_parsers_handle_mutated_input(reply in mutated_text("reply")) {
        let _ = closing::text_after_block(&reply);
        let object = closing::find_object(&reply);
        let _ = scratchpad::parse_reply(object.as_ref().and_then(|object| object.get("scratchpad")));
        if let Some(report) = object.as_ref().and_then(|object| closing::parse_report(object).ok()?) {
            prop_assert!(report.one_liner.chars().count() <= text::LINE_MAX && !report.one_liner.contains('\n'));
            prop_assert!(!report.content.trim().is_empty() && !report.content.contains('\0'));
        }
    }

    #[test]
    fn front_matter_stays_valid_for_mutated_titles(title in mutated_text("title")) {
        let page = markdown::page(&Page::new("/notes/x", &*title, Value::Null));
        let (matter, _) = page.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
        let matter: Value = serde_saphyr::from_str(matter).unwrap();
        let keys: Vec<&String> = matter.as_object().unwrap().keys().collect();
        prop_assert_eq!(keys, ["path", "title", "actions"]);
        prop_assert_eq!(matter, json!({ "path": "/notes/x", "title": text::clean_line(&title), "actions": [] }));
    }

    #[test]
    fn board_files_round_trip_after_mutation(yaml in mutated_text("board")) {
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
    #![proptest_config(proptest_config(200))]

    #[test]
    fn transcript_reader_handles_mutated_lines(bytes in mutated("transcript")) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.jsonl");
        fs::write(&path, &bytes).unwrap();
        let transcript = Transcript { path, session: "11111111-1111-4111-8111-111111111111".into(), agent: None };
        let (_, mark) = read(&transcript, None);
        if let Some(mark) = mark.filter(|mark| mark.offset > 0) {
            prop_assert!(mark.offset <= bytes.len() as u64);
            prop_assert_eq!(read(&transcript, Some(&mark)).0, 0, "the reader must not read the same lines twice");
        }
    }
}

engines! {
    fn mutated_references_are_not_found_or_usage_errors(env: TestEnv) {
        TestRunner::new(proptest_config(100)).run(&mutated_text("query"), |input| {
            let found = env.read(|reader| Ok(reader.resolve(&Ref::<kind::Task>::new(&*input))));
            prop_assert!(matches!(found.unwrap_err().kind(), ErrorKind::NotFound | ErrorKind::Usage), "{:?}", input);
            Ok(())
        }).unwrap();
    }

    fn importing_mutated_beads_issues_twice_changes_nothing(env: TestEnv) {
        let number = Cell::new(0);
        TestRunner::new(proptest_config(40)).run(&mutated_text("beads"), |issues| {
            // Each case imports below a separate command, so that tasks of earlier cases do not interfere.
            number.set(number.get() + 1);
            let input = json!({ "issues": issues, "command": format!("b{}", number.get()) });
            env.execute_json("import_beads", input.clone()).unwrap();
            let again = env.execute_json("import_beads", input).unwrap();
            prop_assert_eq!(["tasks", "updated", "links"].map(|what| again[what].as_i64()), [Some(0); 3], "{}", again);
            Ok(())
        }).unwrap();
    }
}

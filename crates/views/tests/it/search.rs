//! Search on both engines agrees with Trackway's own tokenizer, also for long bodies.

use std::collections::BTreeSet;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use trackway_domain::{
    Time,
    observed::{Fact, Observation, ObservedFact, PromptKey, Source},
    search_query::SearchQuery,
};
use trackway_store::params;
use trackway_testkit::{Engine, TestEnv, engines};
use trackway_views::{
    View,
    message::MessageFilter,
    page::Page,
    search::{HitPage, Search},
};

/// Records the texts as replies of an agent in one session.
fn record_replies(env: &TestEnv, bodies: &[String]) {
    let start: Time = "2026-03-01T09:00:00Z".parse().unwrap();
    let observed_reply = |(index, text): (usize, &String)| {
        let line = Some(format!("line {index}"));
        let fact = Fact::Reply { text: text.clone(), line };
        ObservedFact::new(start.plus_seconds(i64::try_from(index).unwrap()), None, &PromptKey::default(), fact)
    };
    let observation = Observation {
        client: "claude_code",
        session: "0b9f6d4e-9a51-4e0a-8a3c-2f3d7f9d0001".into(),
        source: Source::Transcript,
        facts: bodies.iter().enumerate().map(observed_reply).collect(),
        progress: None,
    };
    env.core.observe(&env.ada, &observation).unwrap();
}

fn search(words: &str) -> Search {
    let page = Page { limit: Some(10_000), after: None };
    Search { words: vec![words.to_owned()], which: MessageFilter::default(), page }
}

fn hits(env: &TestEnv, search: &Search) -> HitPage {
    env.read(|read| Ok(search.answer(read, env.now())?))
}

/// The bodies that a search finds.
fn found_bodies(env: &TestEnv, words: &str) -> BTreeSet<String> {
    let hits = hits(env, &search(words));
    env.read(|read| {
        let mut bodies = BTreeSet::new();
        for hit in &hits.hits {
            let body = "select c.body from messages m join contents c on c.id = m.content_id where m.tenant_id = ?1 and m.id = ?2";
            bodies.extend(read.one::<(String,)>(body, params![hit.message_id])?.map(|(body,)| body));
        }
        Ok(bodies)
    })
}

engines! {
    fn search_agrees_with_the_tokenizer(env: TestEnv) {
        let mut runner = TestRunner::deterministic();
        let mut some = |pattern: &str| {
            proptest::string::string_regex(pattern).unwrap().new_tree(&mut runner).unwrap().current()
        };
        let bodies: Vec<String> = (0..150)
            .map(|_| some("([abA\u{e9}e\u{df}\u{41b}\u{43b}1]{1,3}[ _.'\n]|[\u{6771}\u{4eac}\u{90fd}\u{732b}]{1,4}|\u{1F389}){1,12}"))
            .collect();
        record_replies(&env, &bodies);
        let mut queries: Vec<String> = (0..100)
            .map(|_| some("(\"[abe1\u{e9}]{1,2} [abe\u{6771}\u{4eac}]{1,2}\"?|[abe\u{e9}s\u{43b}]{1,2}\\*?|[\u{6771}\u{4eac}\u{90fd}\u{732b}]{1,3})( [abe])?"))
            .collect();
        queries.extend(["東", "猫", "\"a b\" e*", "a.b", "ss"].map(Into::into));
        let mut many = 0;
        for query in queries {
            let Ok(parsed) = SearchQuery::parse(&query) else { continue };
            let expected: BTreeSet<String> = bodies.iter().filter(|body| parsed.matches_body(body)).cloned().collect();
            many += usize::from(!expected.is_empty());
            assert_eq!(found_bodies(&env, &query), expected, "{query}");
        }
        assert!(many > 50, "only {many} queries find anything");
    }

    fn long_bodies_are_searched_to_their_end(env: TestEnv) {
        let numbers = (0..20_000).map(|number| format!("n{number}")).collect::<Vec<_>>().join(" ");
        let often = format!("{}the end", "the cat ".repeat(400));
        // Nearly all pairs of characters are different, so the index has no room for all of them.
        let wide: Vec<char> = std::iter::successors(Some(1_u64), |last| {
            Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
        })
        .filter_map(|random| char::from_u32(0x4e00 + u32::try_from(random >> 33).ok()? % 20_000))
        .take(200_000)
        .collect();
        let piece = |at: usize| wide[at..at + 5].iter().collect::<String>();
        let wide_body: String = wide.iter().collect();
        record_replies(&env, &[numbers.clone(), often.clone(), wide_body]);
        assert_eq!(found_bodies(&env, "n19999"), BTreeSet::from([numbers.clone()]));
        assert_eq!(found_bodies(&env, "\"n19998 n19999\" n3"), BTreeSet::from([numbers]));
        assert_eq!(found_bodies(&env, "\"n19999 n19998\""), BTreeSet::new());
        assert_eq!(found_bodies(&env, "\"the end\""), BTreeSet::from([often]));
        assert_eq!(found_bodies(&env, "\"end the\""), BTreeSet::new());
        // Compares only the number: a failure message would contain the long body.
        assert_eq!(found_bodies(&env, &piece(100_000)).len(), 1);
        assert_eq!(found_bodies(&env, &piece(199_000)).len(), 0);
        let shown = hits(&env, &search("\"n19998 n19999\"")).hits.remove(0).snippet;
        assert!(shown.ends_with(" n19997 «n19998 n19999»"), "{shown}");
    }

    fn only_the_newest_matches_are_ranked(env: TestEnv) {
        record_replies(&env, &(0..30).map(|number| format!("common {number}")).collect::<Vec<_>>());
        let newest = |max: i64| env.read(|read| Ok(search("common").rank_newest(read, max)?));
        let all = newest(30);
        assert_eq!((all.hits.len(), all.newest_only), (30, false));
        assert_eq!(Search::remarks(&all), Vec::<String>::new());
        let some = newest(10);
        assert!(some.newest_only && Search::remarks(&some)[0].contains("only the newest 10,000"));
        let mut snippets: Vec<_> = some.hits.iter().map(|hit| hit.snippet.clone()).collect();
        snippets.sort();
        assert_eq!(snippets, (20..30).map(|number| format!("«common» {number}")).collect::<Vec<_>>());
    }

    fn another_tenant_finds_nothing(env: TestEnv) {
        record_replies(&env, &["secret tea".into()]);
        let other = env.another_tenant("other");
        let hits = env.core.read(&other, |read| Ok(search("tea").answer(read, env.now())?)).unwrap();
        assert_eq!(hits.hits, []);
    }

    fn search_uses_the_index(env: TestEnv) {
        record_replies(&env, &(0..300).map(|number| format!("body {number}")).collect::<Vec<_>>());
        let plan = match env.core.store().engine() {
            Engine::Sqlite => env.read(|read| {
                let sql = "explain query plan select c.content_id, -bm25(content_index), true from content_index cross join content_words c on c.number = content_index.rowid
                     where content_index.words match '\"body\"' and c.tenant_id = ?1 order by content_index.rowid desc limit 10";
                Ok(read.query::<(i64, i64, i64, String)>(sql, &[])?.into_iter().map(|row| row.3).collect::<Vec<_>>())
            }),
            Engine::Postgres => env.read(|read| {
                read.query_unscoped::<(String,)>("select set_config('enable_seqscan', 'off', true)", &[])?;
                let sql = "explain select c.content_id from content_words c where c.tenant_id = ?1
                     and (c.words @@ cast('''body'' <-> ''7''' as tsquery) or (not c.whole and c.words @@ cast('''body'' & ''7''' as tsquery)))";
                Ok(read.query::<(String,)>(sql, &[])?.into_iter().map(|row| row.0).collect::<Vec<_>>())
            }),
        };
        let plan = plan.join("\n");
        match env.core.store().engine() {
            Engine::Sqlite => {
                let (index, body) = plan.split_once('\n').unwrap();
                assert!(index.starts_with("SCAN content_index VIRTUAL TABLE INDEX"), "{plan}");
                assert_eq!(body, "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)");
            }
            Engine::Postgres => assert!(plan.contains("BitmapOr") && plan.contains("Bitmap Index Scan on content_words_by_word"), "{plan}"),
        }
    }
}

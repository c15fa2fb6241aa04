//! Settings files of every sort, connected and disconnected again.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use trackway_client_claude::settings::{Wanted, connect, connected_memory, disconnect, hooks::EVENTS, hooks::is_ours};
use trackway_domain::words::Memory;

fn wanted(program: &str) -> Wanted {
    Wanted { program: program.to_owned(), memory: Memory::Subagents, client: None }
}

/// Few events, so that a text can be read: those that clients of 1.0.40 know.
fn three_events() -> Wanted {
    Wanted { client: "1.0.40".parse().ok(), ..wanted("trackway") }
}

#[track_caller]
fn connected(text: &str) -> String {
    let connected = connect(text, &three_events()).unwrap();
    assert_eq!(connect(&connected, &three_events()).unwrap(), connected);
    assert_eq!(disconnect(&connected).unwrap(), text);
    connected
}

#[test]
fn no_file_becomes_a_file_with_hooks_only() {
    snapbox::assert_data_eq!(
        connected(""),
        snapbox::str![[r#"
{
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "Task|Agent",
        "hooks": [
          {
            "type": "command",
            "command": "trackway hook",
            "timeout": 5
          }
        ]
      }
    ],
    "PostToolUse": [
      {
        "matcher": "Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent",
        "hooks": [
          {
            "type": "command",
            "command": "trackway hook",
            "timeout": 5
          }
        ]
      }
    ],
    "Stop": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "trackway hook",
            "timeout": 10
          }
        ]
      }
    ]
  }
}

"#]]
    );
}

#[test]
fn the_rest_of_the_file_stays_and_ours_looks_like_it() {
    let text = "{\r\n\t\"hooks\": {\r\n\t\t\"Stop\": [\r\n\t\t\t{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}\r\n\t\t]\r\n\t},\r\n\t\"model\" : \"opus\"\r\n}";
    let connected = connected(text);
    assert!(!connected.replace("\r\n", "").contains('\n'));
    snapbox::assert_data_eq!(
        connected.replace('\t', "--").replace('\r', ""),
        snapbox::str![[r#"
{
--"hooks": {
----"Stop": [
------{"hooks": [{"type": "command", "command": "say done"}]},
------{
--------"hooks": [
----------{
------------"type": "command",
------------"command": "trackway hook",
------------"timeout": 10
----------}
--------]
------}
----],
----"PreToolUse": [
------{
--------"matcher": "Task|Agent",
--------"hooks": [
----------{
------------"type": "command",
------------"command": "trackway hook",
------------"timeout": 5
----------}
--------]
------}
----],
----"PostToolUse": [
------{
--------"matcher": "Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent",
--------"hooks": [
----------{
------------"type": "command",
------------"command": "trackway hook",
------------"timeout": 5
----------}
--------]
------}
----]
--},
--"model" : "opus"
}
"#]]
    );
}

#[test]
fn one_line_stays_one_line() {
    assert_eq!(
        connected(r#"{"a":1,"hooks":{"PreToolUse":[],"PostToolUse":[{"hooks":[]}]}}"#),
        concat!(
            r#"{"a":1,"hooks":{"PreToolUse":[ {"matcher":"Task|Agent","hooks":[{"type":"command","command":"trackway hook","timeout":5}]}],"#,
            r#""PostToolUse":[{"hooks":[]},{"matcher":"Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent","hooks":[{"type":"command","command":"trackway hook","timeout":5}]}],"#,
            r#""Stop":[{"hooks":[{"type":"command","command":"trackway hook","timeout":10}]}]}}"#
        )
    );
}

#[test]
fn empty_brackets_that_were_there_stay() {
    let texts = [
        "{}",
        "{}\n",
        "{ }",
        "{\n}\n",
        "{\r\n\r\n}",
        "{\"hooks\": {}}",
        "{\"hooks\":{ } }",
        "{\n  \"hooks\": {}\n}",
        "{\n  \"hooks\": {\n  }\n}",
        "{\n  \"hooks\": {\"Stop\": []}\n}",
        "{\n  \"hooks\": {\n    \"Stop\": [\n    ],\n    \"Bogus\": []\n  }\n}\n",
        "\u{feff}{}\r\n",
        "\u{feff}",
        " \n\n",
    ];
    for text in texts {
        connected(text);
    }
}

#[test]
fn without_its_mark_an_empty_bracket_goes() {
    let formatted = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&connected("{}")).unwrap()).unwrap();
    assert_eq!(disconnect(&formatted).unwrap(), "");
    let kept = connected("{\"hooks\": {}, \"a\": 1}");
    let formatted = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&kept).unwrap()).unwrap();
    assert_eq!(disconnect(&formatted).unwrap(), "{\n  \"a\": 1\n}");
}

#[test]
fn an_older_entry_is_replaced_where_it_stands() {
    let before = |command: &str| {
        json!({ "hooks": {
            "Stop": [
                { "hooks": [{ "type": "command", "command": "one" }] },
                { "matcher": "*", "hooks": [{ "type": "command", "command": command }] },
                { "hooks": [{ "type": "command", "command": "two" }] },
                { "hooks": [{ "type": "command", "command": command }] },
            ],
            "Notification": [{ "hooks": [{ "type": "command", "command": command }] }],
            "PreToolUse": [{ "matcher": "Bash", "hooks": [
                { "type": "command", "command": "check" }, { "type": "command", "command": command },
            ] }],
        } })
    };
    for command in ["/old/trackway hook", "'/a b/trackway' hook --memory off", "RUST_LOG=1 trackway hook"] {
        let after: Value =
            serde_json::from_str(&connect(&before(command).to_string(), &three_events()).unwrap()).unwrap();
        let ours = |timeout: u32| json!([{ "type": "command", "command": "trackway hook", "timeout": timeout }]);
        assert_eq!(
            after["hooks"]["Stop"],
            json!([
                { "hooks": [{ "type": "command", "command": "one" }] },
                { "hooks": ours(10) },
                { "hooks": [{ "type": "command", "command": "two" }] },
            ])
        );
        assert_eq!(
            after["hooks"]["PreToolUse"],
            json!([
                { "matcher": "Bash", "hooks": [{ "type": "command", "command": "check" }] },
                { "matcher": "Task|Agent", "hooks": ours(5) },
            ])
        );
        assert_eq!(after["hooks"].get("Notification"), None);
    }
}

#[test]
fn what_others_added_around_ours_stays() {
    let mut settings: Value = serde_json::from_str(&connected("{}")).unwrap();
    let other = json!({ "hooks": [{ "type": "command", "command": "say done" }] });
    settings["hooks"]["Stop"].as_array_mut().unwrap().push(other.clone());
    settings["hooks"]["Notification"] = json!([other]);
    let left: Value = serde_json::from_str(&disconnect(&settings.to_string()).unwrap()).unwrap();
    assert_eq!(left, json!({ "hooks": { "Stop": [other], "Notification": [other] } }));
}

#[test]
fn of_a_key_that_stands_there_twice_the_last_counts() {
    let text = r#"{"hooks": 1, "hooks": {"Stop": 2, "Stop": []}}"#;
    assert_eq!(
        connect(text, &wanted("trackway")).unwrap_err().to_string(),
        "line 1, column 32: the hooks of \"Stop\" should be an array, and are a plain value"
    );
    let connected = connected(r#"{"hooks": 1, "hooks": {"Stop": [1], "Stop": []}}"#);
    let read: Value = serde_json::from_str(&connected).unwrap();
    assert_eq!(
        read["hooks"]["Stop"],
        json!([{ "hooks": [{ "type": "command", "command": "trackway hook", "timeout": 10 }] }])
    );
}

#[test]
fn what_cannot_be_right_is_refused() {
    let refused = |text: &str| connect(text, &wanted("trackway")).unwrap_err().to_string();
    assert_eq!(refused("[]"), "line 1, column 1: settings are an object, and this is an array");
    assert_eq!(refused("{\n  \"hooks\": []\n}"), "line 2, column 12: \"hooks\" should be an object, and is an array");
    assert_eq!(
        refused("{\"hooks\": {\n\"Foo\": {}}}"),
        "line 2, column 8: the hooks of \"Foo\" should be an array, and are an object"
    );
    assert!(refused("{,}").starts_with("line 1, column 2: a key in double quotes should be here"));
    assert!(disconnect("{,}").is_err());
    assert_eq!(disconnect("{\"hooks\": 1}"), Ok("{\"hooks\": 1}".to_owned()));
}

/// A JSON document before it is written down.
#[derive(Debug, Clone)]
enum Document {
    /// As it is written: a number, a string, an escape.
    Atom(&'static str),
    Array(Vec<Document>),
    Object(Vec<(&'static str, Document)>),
}

/// How it is written down.
#[derive(Debug, Clone)]
enum Style {
    Pretty {
        newline: &'static str,
        unit: &'static str,
    },
    Compact {
        blank: &'static str,
    },
    /// These blanks at every place where blanks may be, over and over.
    Wild(Vec<String>),
}

struct Writer<'a> {
    style: &'a Style,
    places: usize,
    out: String,
}

impl Writer<'_> {
    /// Where blanks may be: those that belong there, or wild ones.
    fn blank(&mut self, usual: &str) {
        self.places += 1;
        match self.style {
            Style::Wild(blanks) => self.out.push_str(&blanks[self.places % blanks.len()]),
            _ => self.out.push_str(usual),
        }
    }

    fn line(&mut self, depth: usize) {
        let usual = match self.style {
            Style::Pretty { newline, unit } => format!("{newline}{}", unit.repeat(depth)),
            _ => String::new(),
        };
        self.blank(&usual);
    }

    fn after(&self) -> &'static str {
        match self.style {
            Style::Pretty { .. } => " ",
            Style::Compact { blank } => blank,
            Style::Wild(_) => "",
        }
    }

    fn document(&mut self, document: &Document, depth: usize) {
        let (open, close, items): (_, _, Vec<(Option<&str>, &Document)>) = match document {
            Document::Atom(text) => return self.out.push_str(text),
            Document::Array(elements) => ('[', ']', elements.iter().map(|element| (None, element)).collect()),
            Document::Object(members) => ('{', '}', members.iter().map(|(key, value)| (Some(*key), value)).collect()),
        };
        self.out.push(open);
        if items.is_empty() {
            self.blank("");
        }
        for (index, (key, value)) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
                if matches!(self.style, Style::Compact { .. }) {
                    self.out.push_str(self.after());
                }
            }
            self.line(depth + 1);
            if let Some(key) = key {
                self.out.push_str(key);
                self.blank("");
                self.out.push(':');
                self.blank(self.after());
            }
            self.document(value, depth + 1);
            self.blank("");
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
    }
}

fn anything() -> impl Strategy<Value = Document> {
    let atom =
        select(vec!["0", "-1.5e+3", "true", "null", r#""""#, r#""\ud800 \u00e9 é 😀 \"""#, r#""echo trackway hook""#]);
    atom.prop_map(Document::Atom).prop_recursive(3, 12, 3, |inner| {
        let key = select(vec![r#""a""#, r#""hooks""#, r#""Stop""#, r#""command""#, r#""ä\n""#]);
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Document::Array),
            vec((key, inner), 0..3).prop_map(Document::Object)
        ]
    })
}

/// Hooks as other tools write them, empty ones and keys that stand there twice included.
fn hooks() -> impl Strategy<Value = Document> {
    let event =
        select(vec![r#""Stop""#, r#""PreToolUse""#, r#""Notification""#, r#""SessionStart""#, r#""\u0053top""#]);
    vec((event, vec(anything(), 0..3).prop_map(Document::Array)), 0..4).prop_map(Document::Object)
}

fn style() -> impl Strategy<Value = Style> {
    let newline = select(vec!["\n", "\r\n"]);
    let unit = select(vec!["  ", "    ", "\t", "", " "]);
    prop_oneof![
        (newline, unit).prop_map(|(newline, unit)| Style::Pretty { newline, unit }),
        select(vec!["", " "]).prop_map(|blank| Style::Compact { blank }),
        vec("[ \t\r\n]{0,3}", 1..6).prop_map(Style::Wild),
    ]
}

/// The text of a settings file without anything of ours.
fn settings() -> impl Strategy<Value = String> {
    let key = select(vec![r#""model""#, r#""env""#, r#""permissions""#, r#""""#]);
    let members = (vec((key.clone(), anything()), 0..3), proptest::option::of(hooks()), vec((key, anything()), 0..2));
    let root = members.prop_map(|(mut members, hooks, after)| {
        members.extend(hooks.map(|hooks| (r#""hooks""#, hooks)));
        members.extend(after);
        Document::Object(members)
    });
    let mark = select(vec!["", "\u{feff}"]);
    let around = select(vec!["", "\n", "\r\n", " ", "\n\n\t"]);
    (mark, around.clone(), proptest::option::weighted(0.9, root), style(), around).prop_map(
        |(mark, before, root, style, after)| {
            let mut writer = Writer { style: &style, places: 0, out: format!("{mark}{before}") };
            if let Some(root) = &root {
                writer.document(root, 0);
            }
            writer.out + after
        },
    )
}

/// What the client reads, without our entries: the rest of the settings, and whether ours was there once per event.
fn read(text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return json!({});
    }
    // Half a pair of surrogates is a string to the client and none to the reference parser.
    serde_json::from_str(&text.replace(r"\ud800", "?")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn disconnect_gives_back_what_connect_was_given(text in settings()) {
        let connected = connect(&text, &wanted("/a b/trackway")).unwrap();
        prop_assert_eq!(disconnect(&connected).unwrap(), &text[..]);
        prop_assert_eq!(connected_memory(&connected), Ok(Some(Memory::Subagents)));
        prop_assert_eq!(connected_memory(&text), Ok(None));
    }

    #[test]
    fn connecting_otherwise_is_as_if_it_had_been_so_from_the_start(text in settings()) {
        let first = connect(&text, &wanted("/old/trackway")).unwrap();
        let other = Wanted { memory: Memory::All, ..wanted("trackway") };
        let second = connect(&first, &other).unwrap();
        prop_assert_eq!(&second, &connect(&text, &other).unwrap());
        prop_assert_eq!(&second, &connect(&second, &other).unwrap());
        prop_assert_eq!(disconnect(&second).unwrap(), text);
    }

    #[test]
    fn an_older_client_in_between_leaves_nothing_behind(text in settings()) {
        let first = connect(&text, &wanted("trackway")).unwrap();
        let fewer = connect(&first, &three_events()).unwrap();
        let again = connect(&fewer, &wanted("trackway")).unwrap();
        prop_assert_eq!(read(&again), read(&first));
        prop_assert_eq!(disconnect(&fewer).unwrap(), &text[..]);
        prop_assert_eq!(disconnect(&again).unwrap(), text);
    }

    #[test]
    fn the_client_reads_what_was_there_and_one_entry_per_event(text in settings()) {
        let wanted = wanted("trackway");
        let mut after = read(&connect(&text, &wanted).unwrap());
        let before = read(&text);
        for event in EVENTS {
            let groups = after["hooks"][event.name].as_array_mut().unwrap();
            prop_assert_eq!(groups.pop(), Some(wanted.group(event)));
            if before["hooks"].get(event.name).is_none() {
                prop_assert!(groups.is_empty());
                after["hooks"].as_object_mut().unwrap().remove(event.name);
            }
        }
        if before.get("hooks").is_none() {
            prop_assert_eq!(after.as_object_mut().unwrap().remove("hooks"), Some(json!({})));
        }
        prop_assert_eq!(after, before);
        prop_assert!(is_ours(&wanted.command()));
    }
}

//! Connects and disconnects all kinds of settings files.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use trackway_client_claude::settings::{
    HookEntries, HookSettings, connect, connected_memory, disconnect, hooks::EVENTS, hooks::is_trackway_command,
};
use trackway_domain::enums::Memory;

fn wanted(program: &str) -> HookSettings {
    HookSettings { program: program.to_owned(), memory: Memory::Subagents, client: None }
}

/// The three events that version 1.0.40 of the client supports. Few events keep the expected texts short.
fn three_events() -> HookSettings {
    HookSettings { client: "1.0.40".parse().ok(), ..wanted("trackway") }
}

#[track_caller]
fn connect_and_check(text: &str) -> String {
    let connected = connect(text, &three_events()).unwrap();
    assert_eq!(connect(&connected, &three_events()).unwrap(), connected);
    assert_eq!(disconnect(&connected).unwrap(), text);
    connected
}

#[test]
fn missing_file_becomes_file_with_hooks_only() {
    snapbox::assert_data_eq!(
        connect_and_check(""),
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
fn keeps_other_settings_and_matches_their_formatting() {
    let text = "{\r\n\t\"hooks\": {\r\n\t\t\"Stop\": [\r\n\t\t\t{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}\r\n\t\t]\r\n\t},\r\n\t\"model\" : \"opus\"\r\n}";
    let connected = connect_and_check(text);
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
fn single_line_file_stays_single_line() {
    assert_eq!(
        connect_and_check(r#"{"a":1,"hooks":{"PreToolUse":[],"PostToolUse":[{"hooks":[]}]}}"#),
        concat!(
            r#"{"a":1,"hooks":{"PreToolUse":[ {"matcher":"Task|Agent","hooks":[{"type":"command","command":"trackway hook","timeout":5}]}],"#,
            r#""PostToolUse":[{"hooks":[]},{"matcher":"Write|Edit|MultiEdit|NotebookEdit|Bash|Task|Agent","hooks":[{"type":"command","command":"trackway hook","timeout":5}]}],"#,
            r#""Stop":[{"hooks":[{"type":"command","command":"trackway hook","timeout":10}]}]}}"#
        )
    );
}

#[test]
fn disconnect_keeps_existing_empty_brackets() {
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
        connect_and_check(text);
    }
}

#[test]
fn disconnect_removes_empty_brackets_after_reformatting() {
    let formatted =
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(&connect_and_check("{}")).unwrap()).unwrap();
    assert_eq!(disconnect(&formatted).unwrap(), "");
    let with_empty_hooks = connect_and_check("{\"hooks\": {}, \"a\": 1}");
    let formatted = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&with_empty_hooks).unwrap()).unwrap();
    assert_eq!(disconnect(&formatted).unwrap(), "{\n  \"a\": 1\n}");
}

#[test]
fn replaces_older_entry_in_place() {
    let settings_with = |command: &str| {
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
            serde_json::from_str(&connect(&settings_with(command).to_string(), &three_events()).unwrap()).unwrap();
        let trackway_hooks =
            |timeout: u32| json!([{ "type": "command", "command": "trackway hook", "timeout": timeout }]);
        assert_eq!(
            after["hooks"]["Stop"],
            json!([
                { "hooks": [{ "type": "command", "command": "one" }] },
                { "hooks": trackway_hooks(10) },
                { "hooks": [{ "type": "command", "command": "two" }] },
            ])
        );
        assert_eq!(
            after["hooks"]["PreToolUse"],
            json!([
                { "matcher": "Bash", "hooks": [{ "type": "command", "command": "check" }] },
                { "matcher": "Task|Agent", "hooks": trackway_hooks(5) },
            ])
        );
        assert_eq!(after["hooks"].get("Notification"), None);
    }
}

#[test]
fn disconnect_keeps_entries_of_other_tools() {
    let mut settings: Value = serde_json::from_str(&connect_and_check("{}")).unwrap();
    let other = json!({ "hooks": [{ "type": "command", "command": "say done" }] });
    settings["hooks"]["Stop"].as_array_mut().unwrap().push(other.clone());
    settings["hooks"]["Notification"] = json!([other]);
    let left: Value = serde_json::from_str(&disconnect(&settings.to_string()).unwrap()).unwrap();
    assert_eq!(left, json!({ "hooks": { "Stop": [other], "Notification": [other] } }));
}

#[test]
fn last_duplicate_key_takes_effect() {
    let text = r#"{"hooks": 1, "hooks": {"Stop": 2, "Stop": []}}"#;
    assert_eq!(
        connect(text, &wanted("trackway")).unwrap_err().to_string(),
        "line 1, column 32: the hooks of \"Stop\" must be an array, but are a plain value"
    );
    let connected = connect_and_check(r#"{"hooks": 1, "hooks": {"Stop": [1], "Stop": []}}"#);
    let read: Value = serde_json::from_str(&connected).unwrap();
    assert_eq!(
        read["hooks"]["Stop"],
        json!([{ "hooks": [{ "type": "command", "command": "trackway hook", "timeout": 10 }] }])
    );
}

#[test]
fn rejects_malformed_hooks() {
    let error_of = |text: &str| connect(text, &wanted("trackway")).unwrap_err().to_string();
    assert_eq!(error_of("[]"), "line 1, column 1: settings must be an object, but this is an array");
    assert_eq!(error_of("{\n  \"hooks\": []\n}"), "line 2, column 12: \"hooks\" must be an object, but is an array");
    assert_eq!(
        error_of("{\"hooks\": {\n\"Foo\": {}}}"),
        "line 2, column 8: the hooks of \"Foo\" must be an array, but are an object"
    );
    assert!(error_of("{,}").starts_with("line 1, column 2: expected a key in double quotes"));
    assert!(disconnect("{,}").is_err());
    assert_eq!(disconnect("{\"hooks\": 1}"), Ok("{\"hooks\": 1}".to_owned()));
}

/// A generated JSON document.
#[derive(Debug, Clone)]
enum Document {
    /// JSON text of a number, a string or an escape.
    Scalar(&'static str),
    Array(Vec<Document>),
    Object(Vec<(&'static str, Document)>),
}

/// The format of the document.
#[derive(Debug, Clone)]
enum Style {
    Pretty {
        newline: &'static str,
        unit: &'static str,
    },
    Compact {
        blank: &'static str,
    },
    /// Inserts these blanks, in turn, everywhere blanks are allowed.
    Random(Vec<String>),
}

struct DocumentWriter<'a> {
    style: &'a Style,
    blank_count: usize,
    out: String,
}

impl DocumentWriter<'_> {
    /// Writes blanks where JSON allows them: the usual ones of the style, or the next random ones.
    fn blank(&mut self, usual: &str) {
        self.blank_count += 1;
        match self.style {
            Style::Random(blanks) => self.out.push_str(&blanks[self.blank_count % blanks.len()]),
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
            Style::Random(_) => "",
        }
    }

    fn document(&mut self, document: &Document, depth: usize) {
        let (open, close, items): (_, _, Vec<(Option<&str>, &Document)>) = match document {
            Document::Scalar(text) => return self.out.push_str(text),
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

fn arbitrary_value() -> impl Strategy<Value = Document> {
    let atom =
        select(vec!["0", "-1.5e+3", "true", "null", r#""""#, r#""\ud800 \u00e9 é 😀 \"""#, r#""echo trackway hook""#]);
    atom.prop_map(Document::Scalar).prop_recursive(3, 12, 3, |inner| {
        let key = select(vec![r#""a""#, r#""hooks""#, r#""Stop""#, r#""command""#, r#""ä\n""#]);
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Document::Array),
            vec((key, inner), 0..3).prop_map(Document::Object)
        ]
    })
}

/// Hooks of other tools, including empty ones and duplicate keys.
fn hooks() -> impl Strategy<Value = Document> {
    let event =
        select(vec![r#""Stop""#, r#""PreToolUse""#, r#""Notification""#, r#""SessionStart""#, r#""\u0053top""#]);
    vec((event, vec(arbitrary_value(), 0..3).prop_map(Document::Array)), 0..4).prop_map(Document::Object)
}

fn style() -> impl Strategy<Value = Style> {
    let newline = select(vec!["\n", "\r\n"]);
    let unit = select(vec!["  ", "    ", "\t", "", " "]);
    prop_oneof![
        (newline, unit).prop_map(|(newline, unit)| Style::Pretty { newline, unit }),
        select(vec!["", " "]).prop_map(|blank| Style::Compact { blank }),
        vec("[ \t\r\n]{0,3}", 1..6).prop_map(Style::Random),
    ]
}

/// The text of a settings file without Trackway's hooks.
fn settings() -> impl Strategy<Value = String> {
    let key = select(vec![r#""model""#, r#""env""#, r#""permissions""#, r#""""#]);
    let members = (
        vec((key.clone(), arbitrary_value()), 0..3),
        proptest::option::of(hooks()),
        vec((key, arbitrary_value()), 0..2),
    );
    let root = members.prop_map(|(mut members, hooks, after)| {
        members.extend(hooks.map(|hooks| (r#""hooks""#, hooks)));
        members.extend(after);
        Document::Object(members)
    });
    let mark = select(vec!["", "\u{feff}"]);
    let around = select(vec!["", "\n", "\r\n", " ", "\n\n\t"]);
    (mark, around.clone(), proptest::option::weighted(0.9, root), style(), around).prop_map(
        |(mark, before, root, style, after)| {
            let mut writer = DocumentWriter { style: &style, blank_count: 0, out: format!("{mark}{before}") };
            if let Some(root) = &root {
                writer.document(root, 0);
            }
            writer.out + after
        },
    )
}

/// Parses a settings file like the client.
fn read(text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return json!({});
    }
    // The client accepts a lone surrogate; the reference parser does not.
    serde_json::from_str(&text.replace(r"\ud800", "?")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn disconnect_restores_text_before_connect(text in settings()) {
        let connected = connect(&text, &wanted("/a b/trackway")).unwrap();
        prop_assert_eq!(disconnect(&connected).unwrap(), &text[..]);
        prop_assert_eq!(connected_memory(&connected), Ok(Some(Memory::Subagents)));
        prop_assert_eq!(connected_memory(&text), Ok(None));
    }

    #[test]
    fn reconnecting_equals_connecting_once_with_the_new_settings(text in settings()) {
        let first = connect(&text, &wanted("/old/trackway")).unwrap();
        let other = HookSettings { memory: Memory::All, ..wanted("trackway") };
        let second = connect(&first, &other).unwrap();
        prop_assert_eq!(&second, &connect(&text, &other).unwrap());
        prop_assert_eq!(&second, &connect(&second, &other).unwrap());
        prop_assert_eq!(disconnect(&second).unwrap(), text);
    }

    #[test]
    fn connecting_an_older_client_in_between_leaves_no_traces(text in settings()) {
        let first = connect(&text, &wanted("trackway")).unwrap();
        let fewer = connect(&first, &three_events()).unwrap();
        let again = connect(&fewer, &wanted("trackway")).unwrap();
        prop_assert_eq!(read(&again), read(&first));
        prop_assert_eq!(disconnect(&fewer).unwrap(), &text[..]);
        prop_assert_eq!(disconnect(&again).unwrap(), text);
    }

    #[test]
    fn connect_adds_one_entry_per_event_and_keeps_the_rest(text in settings()) {
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
        prop_assert!(is_trackway_command(&wanted.command()));
    }
}

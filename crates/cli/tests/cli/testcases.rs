//! Test results, set one by one or imported from an XML report.

use std::fs;

use serde_json::json;
use snapbox::str;

use crate::{
    output::redact,
    terminal::{Terminal, both_engines, column, run_command_with_input, text},
};

const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4">
  <testsuite name="outer" file="tests/tea.rs">
    <testsuite name="inner">
      <testcase classname="tea" name="brews" time="0.25"/>
      <testcase classname="tea" name="pours &amp; &lt;spills&gt;" line="12" time="1.5">
        <failure message="assert failed"><![CDATA[left: <1>]]> &#13;right: 2</failure>
        <system-out>noise</system-out>
      </testcase>
    </testsuite>
    <testcase name="steeps"><skipped/></testcase>
    <testcase name="boils"><error type="Panic">no water</error></testcase>
  </testsuite>
</testsuites>
"#;

impl Terminal {
    fn write_report(&self, content: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join("junit.xml");
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn create_experiment_for_tests(&self) -> String {
        let conversation = text(&self.json(&["conversation", "create", "--title", "Tea"])["id"]);
        text(&self.json(&["experiment", "create", "--conversation", &conversation, "--title", "first try"])["id"])
    }
}

both_engines! {
    fn report_is_decoded_in_its_declared_encoding(terminal: Terminal) {
        let experiment = terminal.create_experiment_for_tests();
        let report = |encoding: &str, title: &str| format!("<?xml version='1.0' encoding='{encoding}'?>\n<testsuite><testcase name='{title}'/></testsuite>");
        let latin1 = |text: &str| text.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect::<Vec<u8>>();
        let utf16_le = |text: &str| [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let utf16_be = |text: &str| [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        let import = |bytes: Vec<u8>| terminal.json(&["testcase", "import", &terminal.write_report(bytes), "--experiment", &experiment]);
        for bytes in [
            latin1(&report("ISO-8859-1", "gießt")),
            latin1(&report("windows-1252", "brüht")),
            utf16_le(&report("utf-16", "zieht 茶")),
            utf16_be(&report("UTF-16", "kocht 🍵")),
            report("UTF-8", "schäumt").into_bytes(),
        ] {
            import(bytes);
        }
        let titles = column(&terminal.json(&["testcase", "list", "--experiment", &experiment]), "title");
        assert_eq!(titles, ["schäumt", "kocht 🍵", "zieht 茶", "brüht", "gießt"]);
        let mut truncated = utf16_le(&report("utf-16", "x"));
        truncated.pop();
        for bytes in [latin1(&report("UTF-8", "gießt")), latin1(&report("no-such", "gießt")), latin1("<testsuite><testcase name='ß'/></testsuite>"), truncated] {
            let (code, message) = terminal.expect_error(&["testcase", "import", &terminal.write_report(bytes)]);
            assert!(code == 2 && message.contains("is not text in UTF-8"), "{code} {message}");
        }
        assert_eq!(terminal.json(&["testcase", "list"]).as_array().map_or(0, Vec::len), 5);
    }

    fn test_result_is_created_and_updated(terminal: Terminal) {
        terminal.json(&["role", "set", "--name", "tester"]);
        let experiment = terminal.create_experiment_for_tests();
        let made = terminal.json(&["testcase", "create", "--title", "pours", "--status", "KO", "--error", "spilt", "--file", "tea.rs", "--line", "7", "--duration", "0.0125", "--experiment", &experiment, "--role", "tester"]);
        assert_eq!((&made["new"], &made["status"], &made["line"], &made["duration_ms"]), (&json!(true), &json!("KO"), &json!(7), &json!(13)));
        let id = text(&made["id"]);
        let fixed = terminal.json(&["testcase", "set", &id, "--status", "OK", "--error", ""]);
        assert_eq!((&fixed["new"], &fixed["status"], &fixed["error"], &fixed["title"]), (&json!(false), &json!("OK"), &json!(null), &json!("pours")));
        terminal.json(&["testcase", "set", "--title", "later"]);
        let shown = terminal.json(&["testcase", "get", &id]);
        assert_eq!((&shown["experiment"], &shown["role"], &shown["file"]), (&json!("first try"), &json!("tester"), &json!("tea.rs")));
        assert_eq!(column(&terminal.json(&["testcase", "list"]), "status"), ["TODO", "OK"]);
        assert_eq!(column(&terminal.json(&["testcase", "list", "--experiment", &experiment]), "title"), ["pours"]);
        assert_eq!(column(&terminal.json(&["testcase", "list", "--status", "TODO"]), "title"), ["later"]);
        for (arguments, code) in [
            (vec!["--status", "OK"], 2),
            (vec!["--title", " "], 2),
            (vec!["--title", "x", "--status", "FINE"], 2),
            (vec!["--title", "x", "--line", "0"], 2),
            (vec!["--title", "x", "--line", "top"], 2),
            (vec!["--title", "x", "--duration=-1"], 2),
            (vec!["--title", "x", "--duration", "nan"], 2),
            (vec!["--title", "x", "--experiment", "ffffffff"], 3),
        ] {
            assert_eq!(terminal.expect_error(&[&["testcase", "create"], &arguments[..]].concat()).0, code, "{arguments:?}");
        }
        assert_eq!(terminal.json(&["testcase", "list"]).as_array().unwrap().len(), 2);
    }

    fn junit_report_is_imported(terminal: Terminal) {
        let experiment = terminal.create_experiment_for_tests();
        let report = terminal.write_report(REPORT);
        let counts = terminal.json(&["testcase", "import", &report, "--experiment", &experiment]);
        assert_eq!(counts, json!({ "imported": 4, "ok": 1, "ko": 2, "todo": 1, "duplicate": false }));
        let mut cases = terminal.json(&["testcase", "list", "--experiment", &experiment]);
        cases.as_array_mut().unwrap().reverse();
        assert_eq!(column(&cases, "title"), ["tea.brews", "tea.pours & <spills>", "steeps", "boils"]);
        assert_eq!(column(&cases, "status"), ["OK", "KO", "TODO", "KO"]);
        assert_eq!(column(&cases, "duration_ms"), ["250", "1500", "null", "null"]);
        assert_eq!((&cases[1]["error"], &cases[1]["line"], &cases[1]["file"]), (&json!("assert failed\nleft: <1> right: 2"), &json!(12), &json!("tests/tea.rs")));
        assert_eq!(cases[3]["error"], "Panic\nno water");
        let output = run_command_with_input(terminal.command(&["testcase", "import", "-", "--json"]), REPORT.as_bytes());
        assert!(output.stdout.contains("\"imported\":4"), "{}", output.stderr);
        snapbox::assert_data_eq!(redact(&terminal.run(&["testcase", "list", "--experiment", &experiment]).stdout), str![[r#"
id	status	title	file	line	duration_ms	experiment	role	error
[ID]	KO	boils	tests/tea.rs			first try		Panic no water
[ID]	TODO	steeps	tests/tea.rs			first try		
[ID]	KO	tea.pours & <spills>	tests/tea.rs	12	1500	first try		assert failed left: <1> right: 2
[ID]	OK	tea.brews	tests/tea.rs		250	first try		

"#]]);
    }

    fn same_report_is_imported_once_per_run_and_experiment(terminal: Terminal) {
        let (experiment, report) = (terminal.create_experiment_for_tests(), terminal.write_report(REPORT));
        let import = |more: &[&str]| terminal.json(&[&["testcase", "import", &report], more].concat());
        let count = || terminal.json(&["testcase", "list"]).as_array().unwrap().len();
        assert_eq!(import(&[])["imported"], 4);
        assert_eq!(import(&[]), json!({ "imported": 0, "ok": 0, "ko": 0, "todo": 0, "duplicate": true }));
        assert_eq!(count(), 4);
        // In an experiment or in a run, the same report counts as new results.
        assert_eq!(import(&["--experiment", &experiment])["imported"], 4);
        assert_eq!(import(&["--experiment", &experiment])["duplicate"], true);
        for _ in 0..2 {
            let (_, token) = terminal.start_run(&["--agent", "worker"]);
            let import_in_run = || {
                let mut command = terminal.command(&["testcase", "import", &report, "--json"]);
                command.env("TRACKWAY_TOKEN", &token);
                crate::terminal::run_command(command).stdout
            };
            assert!(import_in_run().contains("\"imported\":4"));
            assert!(import_in_run().contains("\"duplicate\":true"));
        }
        assert_eq!(count(), 16);
    }

    fn invalid_report_imports_nothing(terminal: Terminal) {
        let cut = &REPORT[..REPORT.find("no water").unwrap()];
        let entity_expansion = "<!DOCTYPE t [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\">]><testsuite><testcase name=\"&b;\"/></testsuite>";
        for (report, part) in [
            (cut, "not well formed at line 12, column "),
            (entity_expansion, "not well formed at line 1, column 1: a document type declaration is not allowed"),
            ("<testsuite><testcase name='a'></testsuite>", "not well formed at line 1, column 31: "),
            ("<testsuite>&mystery;</testsuite>", "unknown entity &mystery;"),
            ("", "the text has no element"),
            ("{\"not\": \"xml\"}", "there is text outside of the root element"),
            ("<html></html>", "not a JUnit report: the root element is <html>"),
        ] {
            let (code, message) = terminal.expect_error(&["testcase", "import", &terminal.write_report(report)]);
            assert_eq!(code, 2, "{report}");
            assert!(message.contains(part), "{report}: {message}");
        }
        let huge = terminal.home.path().join("huge.xml");
        fs::File::create(&huge).unwrap().set_len(100_000_000).unwrap();
        assert_eq!(terminal.expect_error(&["testcase", "import", huge.to_str().unwrap()]), (2, format!("{} exceeds the limit of 20000000 bytes", huge.display())));
        assert_eq!(terminal.expect_error(&["testcase", "import", "nowhere.xml"]).0, 3);
        let report = terminal.write_report(REPORT);
        assert_eq!(terminal.expect_error(&["testcase", "import", &report, "--experiment", "ffffffff"]).0, 3);
        assert_eq!(terminal.json(&["testcase", "import", &report, "--dry-run"])["imported"], 4);
        assert_eq!(terminal.json(&["testcase", "list"]), json!([]));
    }
}

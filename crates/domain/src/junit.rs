//! Parses test reports in the XML format of `JUnit`. The format has no standard, so the parser reads what most test
//! runners have in common, and ignores everything else.

use std::borrow::Cow;

use quick_xml::{
    Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
};

use crate::{Error, Result, enums::TestcaseStatus, text};

/// Maximum number of bytes of a report.
pub const REPORT_MAX: usize = 20_000_000;
/// Maximum number of test cases of a report.
const CASES_MAX: usize = 100_000;
/// Maximum number of levels of nested elements.
const DEPTH_MAX: usize = 100;

/// One test case of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub title: String,
    pub status: TestcaseStatus,
    pub error: Option<String>,
    pub file: Option<String>,
    pub line: Option<i64>,
    pub duration_ms: Option<i64>,
}

/// Parses the test cases of a report, in the order of the report. Fails if any part of the report is not well formed.
pub fn parse_cases(report: &str) -> Result<Vec<Case>> {
    if report.len() > REPORT_MAX {
        return Err(Error::usage(format!("the report has {} bytes, the limit is {REPORT_MAX}", report.len())));
    }
    let mut parser = Parser::new(report);
    while parser.step()? {}
    Ok(parser.cases)
}

/// An element whose end tag the parser has not reached yet.
#[derive(Debug)]
struct OpenElement {
    name: String,
    /// The file that a test suite names for its test cases.
    file: Option<String>,
}

#[derive(Debug)]
struct Parser<'a> {
    report: &'a str,
    reader: Reader<&'a [u8]>,
    open: Vec<OpenElement>,
    has_root: bool,
    /// The open test case, and its depth.
    case: Option<(Case, usize)>,
    /// Whether the parser is inside an element that describes a failure.
    is_in_failure: bool,
    cases: Vec<Case>,
}

impl<'a> Parser<'a> {
    fn new(report: &'a str) -> Self {
        let mut reader = Reader::from_str(report);
        reader.config_mut().enable_all_checks(true);
        Self { report, reader, open: Vec::new(), has_root: false, case: None, is_in_failure: false, cases: Vec::new() }
    }

    /// Parses one XML event. Returns false at the end of the report.
    fn step(&mut self) -> Result<bool> {
        let at = self.reader.buffer_position();
        let event = self.reader.read_event().map_err(|error| self.malformed(self.reader.error_position(), error))?;
        match event {
            Event::Start(start) => self.start(at, &start)?,
            Event::Empty(start) => {
                self.start(at, &start)?;
                self.end();
            }
            Event::End(_) => self.end(),
            Event::Text(text) => self.text(at, &text.xml10_content())?,
            Event::CData(text) => self.text(at, &text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|error| self.malformed(at, error))?;
                let name = reference.xml10_content();
                match (character, resolve_xml_entity(&name)) {
                    (Some(character), _) => self.text(at, character.encode_utf8(&mut [0; 4]))?,
                    (None, Some(text)) => self.text(at, text)?,
                    (None, None) => return Err(self.malformed(at, format!("unknown entity &{name};"))),
                }
            }
            Event::DocType(_) => {
                // A report needs no entity declarations, and an attacker can use them to exhaust the parser's memory.
                return Err(self.malformed(at, "a document type declaration is not allowed"));
            }
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => {
                return match self.open.last() {
                    Some(open) => Err(self.malformed(at, format!("the text ends inside <{}>", open.name))),
                    None if !self.has_root => Err(self.malformed(at, "the text has no element")),
                    None => Ok(false),
                };
            }
        }
        Ok(true)
    }

    fn start(&mut self, at: u64, start: &BytesStart<'_>) -> Result<()> {
        let name = start.local_name().as_ref().to_owned();
        if self.open.is_empty() {
            if self.has_root {
                return Err(self.malformed(at, format!("a second root element, <{name}>")));
            }
            if !matches!(name.as_str(), "testsuites" | "testsuite" | "testcase") {
                return Err(Error::usage(format!("not a JUnit report: the root element is <{name}>"))
                    .hint("the root element of a report is <testsuites>, <testsuite> or <testcase>"));
            }
            self.has_root = true;
        }
        if self.open.len() == DEPTH_MAX {
            return Err(self.malformed(at, format!("elements are nested more than {DEPTH_MAX} levels deep")));
        }
        let attributes = self.attributes(at, start)?;
        let attribute = |wanted: &str| {
            attributes
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| &**value)
                .filter(|value| !value.is_empty())
        };
        let mut file = None;
        match (name.as_str(), &mut self.case) {
            ("testcase", None) => {
                if self.cases.len() == CASES_MAX {
                    return Err(self.malformed(at, format!("there are more than {CASES_MAX} test cases")));
                }
                let suite_file = self.open.iter().rev().find_map(|open| open.file.as_deref());
                self.case = Some((case(attribute, suite_file), self.open.len()));
            }
            ("failure" | "error", Some((case, depth))) if self.open.len() == *depth + 1 => {
                case.status = TestcaseStatus::Ko;
                add_line(&mut case.error, attribute("message").or_else(|| attribute("type")).unwrap_or_default());
                self.is_in_failure = true;
            }
            ("skipped", Some((case, depth))) if self.open.len() == *depth + 1 && case.status == TestcaseStatus::Ok => {
                case.status = TestcaseStatus::Todo;
                add_line(&mut case.error, attribute("message").unwrap_or_default());
            }
            ("testsuites" | "testsuite", None) => {
                file = attribute("file").or_else(|| attribute("filepath")).map(Into::into);
            }
            _ => {}
        }
        self.open.push(OpenElement { name, file });
        Ok(())
    }

    fn end(&mut self) {
        self.open.pop();
        match self.case.take() {
            Some((case, depth)) if self.open.len() == depth => self.cases.push(cleaned_case(case)),
            case => {
                self.is_in_failure &= case.as_ref().is_some_and(|(_, depth)| self.open.len() > *depth + 1);
                self.case = case;
            }
        }
    }

    fn text(&mut self, at: u64, text: &str) -> Result<()> {
        if self.open.is_empty() && !text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err(self.malformed(at, "there is text outside of the root element"));
        }
        if self.is_in_failure
            && let Some((case, _)) = &mut self.case
        {
            case.error.get_or_insert_default().push_str(text);
        }
        Ok(())
    }

    fn attributes<'s>(&self, at: u64, start: &'s BytesStart<'_>) -> Result<Vec<(&'s str, Cow<'s, str>)>> {
        let mut attributes = Vec::new();
        // The check for duplicate attributes takes quadratic time, so it stays off.
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| self.malformed(at, error))?;
            let value =
                attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| self.malformed(at, error))?;
            attributes.push((attribute.key.into_inner(), value));
        }
        Ok(attributes)
    }

    fn malformed(&self, at: u64, what: impl std::fmt::Display) -> Error {
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.report.len());
        let before = &self.report.as_bytes()[..at];
        let line = before.split(|byte| *byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        Error::usage(format!("the report is not well formed at line {line}, column {column}: {what}"))
    }
}

fn case<'v>(attribute: impl Fn(&str) -> Option<&'v str>, suite_file: Option<&str>) -> Case {
    let name = attribute("name").unwrap_or("(no name)");
    let title = match attribute("classname") {
        Some(class) => format!("{class}.{name}"),
        None => name.to_owned(),
    };
    // GoogleTest and others mark skipped test cases by this attribute.
    let is_skipped = matches!(attribute("status"), Some("notrun" | "disabled" | "skipped"));
    Case {
        title,
        status: if is_skipped { TestcaseStatus::Todo } else { TestcaseStatus::Ok },
        error: None,
        file: attribute("file").or(suite_file).map(Into::into),
        line: attribute("line").and_then(|line| line.trim().parse().ok()).filter(|line| *line > 0),
        duration_ms: attribute("time").and_then(milliseconds),
    }
}

/// Parses a number of seconds. Some runners write a comma after the thousands.
fn milliseconds(seconds: &str) -> Option<i64> {
    let seconds: f64 = seconds.trim().replace(',', "").parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (0.0..1e12).contains(&seconds).then_some((seconds * 1_000.0).round() as i64)
}

/// Cleans the texts of a test case. Cuts texts that are too long instead of failing, because runners can write long
/// ones.
fn cleaned_case(case: Case) -> Case {
    let cut_line = |line: &str, max: usize| text::cut(&text::clean_line(line), max - 1);
    let error = case.error.map(|error| text::cut(text::clean(&error).trim(), text::TEXT_MAX - 1));
    let file = case.file.map(|file| cut_line(&file, text::PATH_MAX));
    Case {
        title: cut_line(&case.title, text::LINE_MAX),
        error: error.filter(|error| !error.is_empty()),
        file: file.filter(|file| !file.is_empty()),
        ..case
    }
}

fn add_line(text: &mut Option<String>, line: &str) {
    if !line.is_empty() {
        let text = text.get_or_insert_default();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statuses(report: &str) -> Vec<(String, TestcaseStatus, Option<String>)> {
        parse_cases(report).unwrap().into_iter().map(|case| (case.title, case.status, case.error)).collect()
    }

    #[test]
    fn parses_suites_cases_failures_and_skips() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
            <testsuites><testsuite name="a" file="a.py">
              <properties><property name="x" value="y"/></properties>
              <testsuite name="inner">
                <testcase classname="a.B" name="one" time="0.25"/>
                <testcase name="two &amp; &lt;b&gt;" file="c.rs" line="7" time="1,234.5">
                  <failure message="1 &#x21; 2" type="E"><![CDATA[at <here>]]> &quot;and&#10;there&quot;</failure>
                  <system-out>noise</system-out>
                </testcase>
              </testsuite>
              <testcase name="three"><skipped message="later"/></testcase>
              <testcase name="four"><error type="Boom"/></testcase>
              <testcase name="five" status="notrun"/>
            </testsuite></testsuites>"#;
        let all = parse_cases(report).unwrap();
        let titles: Vec<_> = all.iter().map(|case| case.title.as_str()).collect();
        assert_eq!(titles, ["a.B.one", "two & <b>", "three", "four", "five"]);
        assert_eq!((all[0].duration_ms, all[0].file.as_deref(), all[0].line), (Some(250), Some("a.py"), None));
        assert_eq!((all[1].duration_ms, all[1].file.as_deref(), all[1].line), (Some(1_234_500), Some("c.rs"), Some(7)));
        assert_eq!(all[1].error.as_deref(), Some("1 ! 2\nat <here> \"and\nthere\""));
        let words: Vec<_> = all.iter().map(|case| case.status.as_str()).collect();
        assert_eq!(words, ["OK", "KO", "TODO", "KO", "TODO"]);
        assert_eq!((all[2].error.as_deref(), all[3].error.as_deref()), (Some("later"), Some("Boom")));
    }

    #[test]
    fn failure_wins_over_skip_and_all_failures_are_recorded() {
        let report = "<testsuite><testcase name='x'><skipped/><failure message='a'>1</failure><error message='b'/></testcase></testsuite>";
        assert_eq!(statuses(report), [("x".into(), TestcaseStatus::Ko, Some("a\n1\nb".into()))]);
        let none = "\u{feff}<testsuites/>";
        assert_eq!(statuses(none), []);
    }

    #[test]
    fn error_about_a_malformed_report_has_its_position() {
        let message = |report: &str| parse_cases(report).unwrap_err().to_string();
        assert_eq!(message("<html/>"), "not a JUnit report: the root element is <html>");
        assert_eq!(
            message("<testsuite>\n  <testcase name='a'>"),
            "the report is not well formed at line 2, column 22: the text ends inside <testcase>"
        );
        assert!(message("<testsuite>\n</testcase>").starts_with("the report is not well formed at line 2, column "));
        assert!(message("").ends_with("the text has no element"));
        assert!(message("hello").ends_with("there is text outside of the root element"));
        assert!(message("<testsuite/><testsuite/>").ends_with("a second root element, <testsuite>"));
        assert!(message("<testsuite>&nothing;</testsuite>").ends_with("unknown entity &nothing;"));
        assert!(message("<testsuite a='&nothing;'/>").contains("line 1, column 1: "));
        assert!(message("<testsuite a=/>").contains("line 1, column 1: "));
        assert!(message(&"<testsuite>".repeat(200)).ends_with("elements are nested more than 100 levels deep"));
        assert_eq!(message(&" ".repeat(REPORT_MAX + 1)), "the report has 20000001 bytes, the limit is 20000000");
    }

    #[test]
    fn rejects_entity_declarations() {
        let laughs = "<!DOCTYPE t [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><testsuite>&b;</testsuite>";
        assert!(parse_cases(laughs).unwrap_err().to_string().ends_with("a document type declaration is not allowed"));
    }

    proptest! {
        #[test]
        fn parsing_any_text_never_panics(text in "(<testsuite>)?(<testcase name='.{0,3}'>|<failure>|</failure>|</testcase>|&.{0,4};|<!\\[CDATA\\[|.{0,5}){0,8}") {
            let _ = parse_cases(&text);
        }
    }
}

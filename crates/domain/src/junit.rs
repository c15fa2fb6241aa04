//! Reports of test runners in the XML of `JUnit`, which has no standard: what runners agree on is read, the rest is
//! passed over.

use std::borrow::Cow;

use quick_xml::{
    Reader, XmlVersion,
    escape::resolve_xml_entity,
    events::{BytesStart, Event},
};

use crate::{Error, Result, text, words::TestcaseStatus};

/// Bytes of a report.
pub const REPORT_MAX: usize = 20_000_000;
/// Test cases of a report.
const CASES_MAX: usize = 100_000;
/// Elements inside each other.
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

/// The test cases of a report, in its order. All or none: one that is not well formed is refused.
pub fn cases(report: &str) -> Result<Vec<Case>> {
    if report.len() > REPORT_MAX {
        return Err(Error::usage(format!("the report has {} bytes, the limit is {REPORT_MAX}", report.len())));
    }
    let mut reading = Reading::of(report);
    while reading.step()? {}
    Ok(reading.cases)
}

/// An element that is open.
#[derive(Debug)]
struct Open {
    name: String,
    /// The file that a suite names for the cases in it.
    file: Option<String>,
}

#[derive(Debug)]
struct Reading<'a> {
    report: &'a str,
    reader: Reader<&'a [u8]>,
    open: Vec<Open>,
    began: bool,
    /// The test case that is open, and how deep.
    case: Option<(Case, usize)>,
    /// Whether what is read is the text of a failure.
    in_failure: bool,
    cases: Vec<Case>,
}

impl<'a> Reading<'a> {
    fn of(report: &'a str) -> Self {
        let mut reader = Reader::from_str(report);
        reader.config_mut().enable_all_checks(true);
        Self { report, reader, open: Vec::new(), began: false, case: None, in_failure: false, cases: Vec::new() }
    }

    /// Reads one event. Whether there may be more.
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
            Event::Text(said) => self.said(at, &said.xml10_content())?,
            Event::CData(said) => self.said(at, &said.xml10_content())?,
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|error| self.malformed(at, error))?;
                let name = reference.xml10_content();
                match (character, resolve_xml_entity(&name)) {
                    (Some(character), _) => self.said(at, character.encode_utf8(&mut [0; 4]))?,
                    (None, Some(said)) => self.said(at, said)?,
                    (None, None) => return Err(self.malformed(at, format!("the entity &{name}; is not known"))),
                }
            }
            Event::DocType(_) => {
                // Entities of one's own are of no use in a report, and of much use against who reads it.
                return Err(self.malformed(at, "a document type is not allowed"));
            }
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => {
                return match self.open.last() {
                    Some(open) => Err(self.malformed(at, format!("it ends inside <{}>", open.name))),
                    None if !self.began => Err(self.malformed(at, "there is no element in it")),
                    None => Ok(false),
                };
            }
        }
        Ok(true)
    }

    fn start(&mut self, at: u64, start: &BytesStart<'_>) -> Result<()> {
        let name = start.local_name().as_ref().to_owned();
        if self.open.is_empty() {
            if self.began {
                return Err(self.malformed(at, format!("a second document begins with <{name}>")));
            }
            if !matches!(name.as_str(), "testsuites" | "testsuite" | "testcase") {
                return Err(Error::usage(format!("this is no JUnit report: it begins with <{name}>"))
                    .hint("a report begins with <testsuites> or <testsuite>"));
            }
            self.began = true;
        }
        if self.open.len() == DEPTH_MAX {
            return Err(self.malformed(at, format!("elements stand more than {DEPTH_MAX} deep inside each other")));
        }
        let attributes = self.attributes(at, start)?;
        let given = |wanted: &str| {
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
                self.case = Some((case(given, suite_file), self.open.len()));
            }
            ("failure" | "error", Some((case, depth))) if self.open.len() == *depth + 1 => {
                case.status = TestcaseStatus::Ko;
                add_line(&mut case.error, given("message").or_else(|| given("type")).unwrap_or_default());
                self.in_failure = true;
            }
            ("skipped", Some((case, depth))) if self.open.len() == *depth + 1 && case.status == TestcaseStatus::Ok => {
                case.status = TestcaseStatus::Todo;
                add_line(&mut case.error, given("message").unwrap_or_default());
            }
            ("testsuites" | "testsuite", None) => file = given("file").or_else(|| given("filepath")).map(Into::into),
            _ => {}
        }
        self.open.push(Open { name, file });
        Ok(())
    }

    fn end(&mut self) {
        self.open.pop();
        match self.case.take() {
            Some((case, depth)) if self.open.len() == depth => self.cases.push(finished(case)),
            case => {
                self.in_failure &= case.as_ref().is_some_and(|(_, depth)| self.open.len() > *depth + 1);
                self.case = case;
            }
        }
    }

    fn said(&mut self, at: u64, said: &str) -> Result<()> {
        if self.open.is_empty() && !said.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err(self.malformed(at, "there is text outside of the document"));
        }
        if self.in_failure
            && let Some((case, _)) = &mut self.case
        {
            case.error.get_or_insert_default().push_str(said);
        }
        Ok(())
    }

    fn attributes<'s>(&self, at: u64, start: &'s BytesStart<'_>) -> Result<Vec<(&'s str, Cow<'s, str>)>> {
        let mut attributes = Vec::new();
        // Looking for doubles would take a time that grows with the square of their number.
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

fn case<'v>(given: impl Fn(&str) -> Option<&'v str>, suite_file: Option<&str>) -> Case {
    let name = given("name").unwrap_or("(no name)");
    let title = match given("classname") {
        Some(class) => format!("{class}.{name}"),
        None => name.to_owned(),
    };
    // As GoogleTest and others write it.
    let left_out = matches!(given("status"), Some("notrun" | "disabled" | "skipped"));
    Case {
        title,
        status: if left_out { TestcaseStatus::Todo } else { TestcaseStatus::Ok },
        error: None,
        file: given("file").or(suite_file).map(Into::into),
        line: given("line").and_then(|line| line.trim().parse().ok()).filter(|line| *line > 0),
        duration_ms: given("time").and_then(milliseconds),
    }
}

/// Seconds as runners write them, some with a comma after the thousands.
fn milliseconds(seconds: &str) -> Option<i64> {
    let seconds: f64 = seconds.trim().replace(',', "").parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "the range was looked at")]
    (0.0..1e12).contains(&seconds).then_some((seconds * 1_000.0).round() as i64)
}

/// What runners write may be longer than what people type: it is cut, not refused.
fn finished(case: Case) -> Case {
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
        cases(report).unwrap().into_iter().map(|case| (case.title, case.status, case.error)).collect()
    }

    #[test]
    fn what_runners_agree_on_is_read() {
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
        let all = cases(report).unwrap();
        let titles: Vec<_> = all.iter().map(|case| case.title.as_str()).collect();
        assert_eq!(titles, ["a.B.one", "two & <b>", "three", "four", "five"]);
        assert_eq!((all[0].duration_ms, all[0].file.as_deref(), all[0].line), (Some(250), Some("a.py"), None));
        assert_eq!((all[1].duration_ms, all[1].file.as_deref(), all[1].line), (Some(1_234_500), Some("c.rs"), Some(7)));
        assert_eq!(all[1].error.as_deref(), Some("1 ! 2\nat <here> \"and\nthere\""));
        let words: Vec<_> = all.iter().map(|case| case.status.word()).collect();
        assert_eq!(words, ["OK", "KO", "TODO", "KO", "TODO"]);
        assert_eq!((all[2].error.as_deref(), all[3].error.as_deref()), (Some("later"), Some("Boom")));
    }

    #[test]
    fn a_failure_weighs_more_than_a_skip_and_several_are_kept() {
        let report = "<testsuite><testcase name='x'><skipped/><failure message='a'>1</failure><error message='b'/></testcase></testsuite>";
        assert_eq!(statuses(report), [("x".into(), TestcaseStatus::Ko, Some("a\n1\nb".into()))]);
        let none = "\u{feff}<testsuites/>";
        assert_eq!(statuses(none), []);
    }

    #[test]
    fn what_is_not_well_formed_is_said_with_its_place() {
        let message = |report: &str| cases(report).unwrap_err().to_string();
        assert_eq!(message("<html/>"), "this is no JUnit report: it begins with <html>");
        assert_eq!(
            message("<testsuite>\n  <testcase name='a'>"),
            "the report is not well formed at line 2, column 22: it ends inside <testcase>"
        );
        assert!(message("<testsuite>\n</testcase>").starts_with("the report is not well formed at line 2, column "));
        assert!(message("").ends_with("there is no element in it"));
        assert!(message("hello").ends_with("there is text outside of the document"));
        assert!(message("<testsuite/><testsuite/>").ends_with("a second document begins with <testsuite>"));
        assert!(message("<testsuite>&nothing;</testsuite>").ends_with("the entity &nothing; is not known"));
        assert!(message("<testsuite a='&nothing;'/>").contains("line 1, column 1: "));
        assert!(message("<testsuite a=/>").contains("line 1, column 1: "));
        assert!(message(&"<testsuite>".repeat(200)).ends_with("elements stand more than 100 deep inside each other"));
        assert_eq!(message(&" ".repeat(REPORT_MAX + 1)), "the report has 20000001 bytes, the limit is 20000000");
    }

    #[test]
    fn entities_of_its_own_are_not_read() {
        let laughs = "<!DOCTYPE t [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><testsuite>&b;</testsuite>";
        assert!(cases(laughs).unwrap_err().to_string().ends_with("a document type is not allowed"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(<testsuite>)?(<testcase name='.{0,3}'>|<failure>|</failure>|</testcase>|&.{0,4};|<!\\[CDATA\\[|.{0,5}){0,8}") {
            let _ = cases(&text);
        }
    }
}

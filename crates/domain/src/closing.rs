//! The end-of-run prompt: what an agent is asked when it stops, and how its answer is read.

use serde_json::Value;

use crate::{
    report::{CONTENT_MAX, Report, TLDR_MAX},
    scratchpad::SCRATCHPAD_MAX,
    text,
};

/// What every end-of-run prompt begins with, so that it is known again in a transcript.
pub const MARK: &str = "[Trackway: end of run]";

/// How a block of JSON begins.
const FENCE: &str = "```json";
/// Places in an answer where an object is looked for.
const TRIES: usize = 20;

/// Asks an agent that stops in Claude Code for its scratchpad and report.
///
/// The client hands the last message of a subagent to whoever spawned it, so the agent is asked to say its answer again.
pub fn prompt(handle: &str, scratchpad: Option<&str>, is_subagent: bool) -> String {
    let present = match scratchpad.filter(|content| !content.trim().is_empty()) {
        Some(content) => format!("It now holds, between the lines:\n-----\n{content}\n-----"),
        None => "It is empty.".to_owned(),
    };
    let again = if is_subagent {
        "\nAfter the block, repeat your final answer in full: only this last message reaches the one who asked."
    } else {
        ""
    };
    format!(
        "{MARK} Before you stop: {handle} has a scratchpad, kept for its next run (at most {SCRATCHPAD_MAX} characters). {present}\n\
         A good update keeps key learnings, important context, work in progress and follow-ups, and preferences seen; it replaces the whole scratchpad.\n\
         Answer with one fenced json block, null where there is nothing to say:\n\
         ```json\n{{\"scratchpad\": \"...\", \"report\": {{\"one_liner\": \"...\", \"tldr\": \"...\", \"content\": \"...\"}}}}\n```{again}"
    )
}

/// The object in an answer: in a fenced json block, else the first balanced one.
pub fn object(answer: &str) -> Option<Value> {
    // The reader finds the end of an object itself, whatever fences its texts hold.
    let object_at = |start: usize| {
        let mut values = serde_json::Deserializer::from_str(&answer[start..]).into_iter::<Value>();
        values.next()?.ok().filter(Value::is_object)
    };
    let fenced = answer.match_indices(FENCE).take(TRIES).find_map(|(start, fence)| object_at(start + fence.len()));
    fenced.or_else(|| answer.match_indices('{').take(TRIES).find_map(|(start, _)| object_at(start)))
}

/// What an agent said besides the object: its answer to whoever asked.
pub fn beside(answer: &str) -> Option<String> {
    let start = answer.find(FENCE)?;
    let after = answer[start..].rfind("```").map(|end| answer[start + end + 3..].trim())?;
    (!after.is_empty()).then(|| after.to_owned())
}

/// The report in an answer: all three texts, none blank.
pub fn report(answer: &Value) -> Option<Report> {
    let report = answer.get("report")?;
    let said = |name: &str| {
        let cleaned = text::clean(report.get(name)?.as_str()?);
        (!cleaned.trim().is_empty()).then_some(cleaned)
    };
    Some(Report {
        one_liner: text::cut(&text::clean_line(&said("one_liner")?), text::LINE_MAX - 1),
        tldr: text::cut(&said("tldr")?, TLDR_MAX - 1),
        content: text::cut(&said("content")?, CONTENT_MAX - 1),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_found_in_a_fence_or_in_prose() {
        let fenced = "Sure.\n```json\n{\"scratchpad\": \"use ```sh``` here\"}\n```\nWrote it.";
        assert_eq!(object(fenced), Some(json!({"scratchpad": "use ```sh``` here"})));
        assert_eq!(beside(fenced).as_deref(), Some("Wrote it."));
        assert_eq!(object("so {not json} but {\"a\": {\"b\": 1}} and more"), Some(json!({"a": {"b": 1}})));
        assert_eq!(object("nothing here"), None);
        assert_eq!(object("```json\n[1]\n```"), None);
        assert_eq!(beside("no fence"), None);
    }

    #[test]
    fn a_report_needs_all_three() {
        let whole = json!({"report": {"one_liner": "a\nb", "tldr": "c", "content": "d"}});
        assert_eq!(report(&whole), Some(Report { one_liner: "a b".into(), tldr: "c".into(), content: "d".into() }));
        assert_eq!(report(&json!({"report": {"one_liner": "a", "tldr": " ", "content": "d"}})), None);
        assert_eq!(report(&json!({"report": null})), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_a_panic(answer in ".*") {
            let _ = (object(&answer), beside(&answer));
        }
    }
}

//! JSON with the place of every value in its text, so that a text can be changed here and there and stay what it was
//! everywhere else.
//!
//! Strict, as the client is: it drops a settings file with a comment or a trailing comma as a whole, so accepting one
//! would connect nothing.

use std::ops::Range;

use super::Refused;

/// Deeper than any settings file; a parser that calls itself must stop somewhere.
const DEPTH_MAX: usize = 128;

/// The mark some editors put before the first character.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

/// What a value is, as far as an edit needs to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Other,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub key: String,
    pub key_span: Range<usize>,
    pub value: Node,
}

impl Member {
    pub fn span(&self) -> Range<usize> {
        self.key_span.start..self.value.span.end
    }
}

impl Node {
    pub fn members(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Object(members) => Some(members),
            _ => None,
        }
    }

    pub fn elements(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Array(elements) => Some(elements),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The member that counts: of a key that stands there twice, the client reads the last.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.members()?.iter().rev().find(|member| member.key == key).map(|member| &member.value)
    }

    /// Where what is inside stands, in order.
    pub fn children(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(Member::span).collect(),
            Kind::Array(elements) => elements.iter().map(|element| element.span.clone()).collect(),
            Kind::Text(_) | Kind::Other => Vec::new(),
        }
    }

    /// Everything between the brackets.
    pub fn interior(&self) -> Range<usize> {
        self.span.start + 1..self.span.end - 1
    }

    /// What people call it.
    pub fn described(&self) -> &'static str {
        match self.kind {
            Kind::Object(_) => "an object",
            Kind::Array(_) => "an array",
            Kind::Text(_) => "a string",
            Kind::Other => "a plain value",
        }
    }
}

/// The value of a text, or none where nothing is written.
pub fn parse(text: &str) -> Result<Option<Node>, Refused> {
    let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let mut walker = Walker { text, at: start };
    walker.skip_blank();
    if walker.at == text.len() {
        return Ok(None);
    }
    let root = walker.value(0)?;
    walker.skip_blank();
    if walker.at < text.len() {
        return Err(walker.refuse(&format!("{} after the end of the document", walker.found())));
    }
    Ok(Some(root))
}

/// The refusal of a text because of what stands at a place in it.
pub fn refused_at(text: &str, at: usize, what: &str) -> Refused {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    let column = in_line.chars().filter(|character| *character != BYTE_ORDER_MARK).count() + 1;
    Refused { line, column, what: what.to_owned() }
}

struct Walker<'a> {
    text: &'a str,
    /// Always at the start of a character.
    at: usize,
}

impl Walker<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn skip_blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn refuse(&self, what: &str) -> Refused {
        refused_at(self.text, self.at, what)
    }

    /// What stands here, for a message.
    fn found(&self) -> String {
        match self.text[self.at..].chars().next() {
            None => "the end of the file".to_owned(),
            Some('/') => "a comment (Claude Code reads plain JSON)".to_owned(),
            Some(character) => format!("{character:?}"),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Refused> {
        if depth > DEPTH_MAX {
            return Err(self.refuse(&format!("values are nested more than {DEPTH_MAX} deep")));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object(self.object(depth)?),
            Some(b'[') => Kind::Array(self.array(depth)?),
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, Refused> {
        self.sequence(b'}', |walker| {
            if walker.peek() != Some(b'"') {
                return Err(walker.refuse(&format!("a key in double quotes should be here, not {}", walker.found())));
            }
            let start = walker.at;
            let key = walker.string()?;
            let key_span = start..walker.at;
            walker.skip_blank();
            if !walker.take(b':') {
                return Err(walker.refuse(&format!("a colon should follow the key {key:?}, not {}", walker.found())));
            }
            walker.skip_blank();
            Ok(Member { key, key_span, value: walker.value(depth + 1)? })
        })
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Node>, Refused> {
        self.sequence(b']', |walker| walker.value(depth + 1))
    }

    /// What stands between brackets, with commas between.
    fn sequence<T>(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blank();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            self.skip_blank();
            if self.take(close) {
                return Ok(items);
            }
            let comma = self.at;
            let close = char::from(close);
            if !self.take(b',') {
                return Err(self.refuse(&format!("a comma or {close:?} should be here, not {}", self.found())));
            }
            self.skip_blank();
            if self.text[self.at..].starts_with(close) {
                return Err(refused_at(
                    self.text,
                    comma,
                    &format!("there is a comma with nothing but {close:?} after it"),
                ));
            }
        }
    }

    fn string(&mut self) -> Result<String, Refused> {
        let open = self.at;
        self.at += 1;
        let mut decoded = String::new();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            let Some(length) = plain else {
                return Err(refused_at(self.text, open, "a string begins here and does not end"));
            };
            decoded.push_str(&self.text[self.at..self.at + length]);
            self.at += length;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(decoded);
                }
                Some(b'\\') => decoded.push(self.escape()?),
                Some(b'\n' | b'\r') => {
                    return Err(refused_at(self.text, open, "a string begins here and does not end in its line"));
                }
                _ => return Err(self.refuse(&format!("{} must be escaped in a string", self.found()))),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Refused> {
        let known = self.text.as_bytes().get(self.at + 1).and_then(|byte| match byte {
            b'"' | b'\\' | b'/' => Some(char::from(*byte)),
            b'b' => Some('\u{8}'),
            b'f' => Some('\u{c}'),
            b'n' => Some('\n'),
            b'r' => Some('\r'),
            b't' => Some('\t'),
            _ => None,
        });
        if let Some(character) = known {
            self.at += 2;
            return Ok(character);
        }
        let high = self.code_unit(self.at).ok_or_else(|| self.refuse("this is not an escape that JSON knows"))?;
        self.at += 6;
        let low = self.code_unit(self.at).filter(|low| (0xdc00..0xe000).contains(low));
        if let (0xd800..0xdc00, Some(low)) = (high, low) {
            self.at += 6;
            let code = 0x1_0000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        // Half of a pair alone is allowed in JSON; nothing that is looked for here has one.
        Ok(char::from_u32(u32::from(high)).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The number in `\uXXXX`.
    fn code_unit(&self, at: usize) -> Option<u16> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| all_hex)
    }

    fn number(&mut self) -> Result<Kind, Refused> {
        let start = self.at;
        self.take(b'-');
        let starts_with_zero = self.take(b'0');
        let mut whole = starts_with_zero || self.digits() > 0;
        if whole && self.take(b'.') {
            whole = self.digits() > 0;
        }
        if whole && (self.take(b'e') || self.take(b'E')) {
            let _ = self.take(b'+') || self.take(b'-');
            whole = self.digits() > 0;
        }
        let goes_on =
            self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-'));
        if whole && !goes_on {
            Ok(Kind::Other)
        } else {
            Err(refused_at(self.text, start, "this is not a number that JSON knows"))
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn word(&mut self) -> Result<Kind, Refused> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        if matches!(&rest[..length], "true" | "false" | "null") {
            self.at += length;
            return Ok(Kind::Other);
        }
        Err(self.refuse(&format!("a value should be here, not {}", self.found())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn knows_where_everything_stands() {
        let text = "\u{feff} {\"a\\u0062\": [1, \"\\ud83d\\ude00\\n\"], \"ab\": null}\n";
        let root = parse(text).unwrap().unwrap();
        let members = root.members().unwrap();
        assert_eq!(&text[members[0].span()], "\"a\\u0062\": [1, \"\\ud83d\\ude00\\n\"]");
        assert_eq!((members[0].key.as_str(), members[1].key.as_str()), ("ab", "ab"));
        assert_eq!(members[0].value.elements().unwrap()[1].text(), Some("😀\n"));
        assert_eq!(root.get("ab").unwrap().kind, Kind::Other);
        assert_eq!(&text[root.span.clone()], text.trim_start_matches('\u{feff}').trim());
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        assert_eq!(
            refusal("{\n  // mine\n}"),
            "line 2, column 3: a key in double quotes should be here, not a comment (Claude Code reads plain JSON)"
        );
        assert_eq!(refusal("{\"ä\": 1,\n}"), "line 1, column 8: there is a comma with nothing but '}' after it");
        assert_eq!(refusal("{\"a\" 1}"), "line 1, column 6: a colon should follow the key \"a\", not '1'");
        assert_eq!(refusal("{\"a\": 1 \"b\": 2}"), "line 1, column 9: a comma or '}' should be here, not '\"'");
        assert_eq!(refusal("{\"a\": \"x\n\"}"), "line 1, column 7: a string begins here and does not end in its line");
        assert_eq!(refusal("{\"a\": "), "line 1, column 7: a value should be here, not the end of the file");
        assert_eq!(refusal("{} x"), "line 1, column 4: 'x' after the end of the document");
        assert_eq!(refusal("[01]"), "line 1, column 2: this is not a number that JSON knows");
        assert_eq!(refusal("[\"\\x\"]"), "line 1, column 3: this is not an escape that JSON knows");
        assert_eq!(refusal("[\"\\u00é1\"]"), "line 1, column 3: this is not an escape that JSON knows");
        assert_eq!(refusal(&"[".repeat(100_000)), "line 1, column 130: values are nested more than 128 deep");
    }

    #[test]
    fn a_number_may_be_larger_than_any_machine_counts() {
        assert!(parse("[1e310]").is_ok());
        assert_eq!(refusal("1e310["), "line 1, column 6: '[' after the end of the document");
    }

    #[test]
    fn nothing_written_is_no_value() {
        for text in ["", " \r\n\t", "\u{feff}", "\u{feff}\n"] {
            assert_eq!(parse(text), Ok(None));
        }
    }

    proptest! {
        /// Texts that are nearly JSON: accepted and refused as the reference parser does.
        #[test]
        fn agrees_with_the_reference(text in r#"[\[\]{},:" 0-9.eE+\\\-ntrua]{0,24}"#) {
            let reference = serde_json::from_str::<Value>(&text);
            // Numbers out of range are a matter of the reference's types, not of the text, and it reads no further.
            prop_assume!(!reference.as_ref().is_err_and(|error| error.to_string().contains("out of range")));
            let blank = text.trim().is_empty();
            prop_assert_eq!(parse(&text).is_ok(), reference.is_ok() || blank, "{}", text);
        }

        #[test]
        fn never_panics(text in ".{0,64}") {
            let _ = parse(&text);
        }
    }
}

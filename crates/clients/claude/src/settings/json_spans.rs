//! Parses JSON and records the position of every value, so that a text can be edited without changing the rest.
//!
//! The parser is as strict as the client, which ignores a settings file with a comment or a trailing comma: hooks in
//! such a file would have no effect.

use std::ops::Range;

use super::SettingsError;

/// The deepest nesting to parse. The parser is recursive, so it needs a limit.
const DEPTH_MAX: usize = 128;

/// The byte order mark that some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

/// The kind of a value. Edits need the content of objects, arrays and strings only.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    Text(String),
    /// A number, `true`, `false` or `null`.
    Other,
}

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

    /// The value of a key. If the key occurs twice, the last value counts, as in the client.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.members()?.iter().rev().find(|member| member.key == key).map(|member| &member.value)
    }

    /// The positions of the members or elements, in order.
    pub fn children(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(Member::span).collect(),
            Kind::Array(elements) => elements.iter().map(|element| element.span.clone()).collect(),
            Kind::Text(_) | Kind::Other => Vec::new(),
        }
    }

    /// The range between the brackets.
    pub fn interior(&self) -> Range<usize> {
        self.span.start + 1..self.span.end - 1
    }

    /// The kind in words, for error messages.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Object(_) => "an object",
            Kind::Array(_) => "an array",
            Kind::Text(_) => "a string",
            Kind::Other => "a plain value",
        }
    }
}

/// Parses a text. A blank text has no value.
pub fn parse(text: &str) -> Result<Option<Node>, SettingsError> {
    let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let mut parser = Parser { text, at: start };
    parser.skip_blank();
    if parser.at == text.len() {
        return Ok(None);
    }
    let root = parser.value(0)?;
    parser.skip_blank();
    if parser.at < text.len() {
        return Err(parser.error(&format!("unexpected {} after the end of the document", parser.describe_next())));
    }
    Ok(Some(root))
}

/// An error at a position of a text.
pub fn error_at(text: &str, at: usize, what: &str) -> SettingsError {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    let column = in_line.chars().filter(|character| *character != BYTE_ORDER_MARK).count() + 1;
    SettingsError { line, column, problem: what.to_owned() }
}

struct Parser<'a> {
    text: &'a str,
    /// Always at a character boundary.
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn consume(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn error(&self, what: &str) -> SettingsError {
        error_at(self.text, self.at, what)
    }

    /// Describes the next character for an error message.
    fn describe_next(&self) -> String {
        match self.text[self.at..].chars().next() {
            None => "the end of the file".to_owned(),
            Some('/') => "a comment (Claude Code reads plain JSON)".to_owned(),
            Some(character) => format!("{character:?}"),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SettingsError> {
        if depth > DEPTH_MAX {
            return Err(self.error(&format!("values are nested more than {DEPTH_MAX} deep")));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => Kind::Object(self.object(depth)?),
            Some(b'[') => Kind::Array(self.array(depth)?),
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.literal()?,
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Vec<Member>, SettingsError> {
        self.sequence(b'}', |parser| {
            if parser.peek() != Some(b'"') {
                return Err(parser.error(&format!("expected a key in double quotes, found {}", parser.describe_next())));
            }
            let start = parser.at;
            let key = parser.string()?;
            let key_span = start..parser.at;
            parser.skip_blank();
            if !parser.consume(b':') {
                return Err(
                    parser.error(&format!("expected a colon after the key {key:?}, found {}", parser.describe_next()))
                );
            }
            parser.skip_blank();
            Ok(Member { key, key_span, value: parser.value(depth + 1)? })
        })
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Node>, SettingsError> {
        self.sequence(b']', |parser| parser.value(depth + 1))
    }

    /// Parses comma-separated items up to the closing bracket.
    fn sequence<T>(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<T, SettingsError>,
    ) -> Result<Vec<T>, SettingsError> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blank();
        if self.consume(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            self.skip_blank();
            if self.consume(close) {
                return Ok(items);
            }
            let comma = self.at;
            let close = char::from(close);
            if !self.consume(b',') {
                return Err(self.error(&format!("expected a comma or {close:?}, found {}", self.describe_next())));
            }
            self.skip_blank();
            if self.text[self.at..].starts_with(close) {
                return Err(error_at(self.text, comma, &format!("trailing comma before {close:?}")));
            }
        }
    }

    fn string(&mut self) -> Result<String, SettingsError> {
        let open = self.at;
        self.at += 1;
        let mut decoded = String::new();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            let Some(length) = plain else {
                return Err(error_at(self.text, open, "this string does not end"));
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
                    return Err(error_at(self.text, open, "this string does not end on its line"));
                }
                _ => return Err(self.error(&format!("{} must be escaped in a string", self.describe_next()))),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SettingsError> {
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
        let high = self.code_unit(self.at).ok_or_else(|| self.error("invalid escape sequence"))?;
        self.at += 6;
        let low = self.code_unit(self.at).filter(|low| (0xdc00..0xe000).contains(low));
        if let (0xd800..0xdc00, Some(low)) = (high, low) {
            self.at += 6;
            let code = 0x1_0000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(low) - 0xdc00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        // JSON allows a lone surrogate. No key or command that Trackway looks for contains one.
        Ok(char::from_u32(u32::from(high)).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The code unit of `\uXXXX`.
    fn code_unit(&self, at: usize) -> Option<u16> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| all_hex)
    }

    fn number(&mut self) -> Result<Kind, SettingsError> {
        let start = self.at;
        self.consume(b'-');
        let starts_with_zero = self.consume(b'0');
        let mut whole = starts_with_zero || self.digits() > 0;
        if whole && self.consume(b'.') {
            whole = self.digits() > 0;
        }
        if whole && (self.consume(b'e') || self.consume(b'E')) {
            let _ = self.consume(b'+') || self.consume(b'-');
            whole = self.digits() > 0;
        }
        let has_more_characters =
            self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-'));
        if whole && !has_more_characters { Ok(Kind::Other) } else { Err(error_at(self.text, start, "invalid number")) }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn literal(&mut self) -> Result<Kind, SettingsError> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        if matches!(&rest[..length], "true" | "false" | "null") {
            self.at += length;
            return Ok(Kind::Other);
        }
        Err(self.error(&format!("expected a value, found {}", self.describe_next())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn error_text(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn spans_cover_members_and_values() {
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
    fn errors_name_position_and_problem() {
        assert_eq!(
            error_text("{\n  // mine\n}"),
            "line 2, column 3: expected a key in double quotes, found a comment (Claude Code reads plain JSON)"
        );
        assert_eq!(error_text("{\"ä\": 1,\n}"), "line 1, column 8: trailing comma before '}'");
        assert_eq!(error_text("{\"a\" 1}"), "line 1, column 6: expected a colon after the key \"a\", found '1'");
        assert_eq!(error_text("{\"a\": 1 \"b\": 2}"), "line 1, column 9: expected a comma or '}', found '\"'");
        assert_eq!(error_text("{\"a\": \"x\n\"}"), "line 1, column 7: this string does not end on its line");
        assert_eq!(error_text("{\"a\": "), "line 1, column 7: expected a value, found the end of the file");
        assert_eq!(error_text("{} x"), "line 1, column 4: unexpected 'x' after the end of the document");
        assert_eq!(error_text("[01]"), "line 1, column 2: invalid number");
        assert_eq!(error_text("[\"\\x\"]"), "line 1, column 3: invalid escape sequence");
        assert_eq!(error_text("[\"\\u00é1\"]"), "line 1, column 3: invalid escape sequence");
        assert_eq!(error_text(&"[".repeat(100_000)), "line 1, column 130: values are nested more than 128 deep");
    }

    #[test]
    fn accepts_numbers_beyond_f64_range() {
        assert!(parse("[1e310]").is_ok());
        assert_eq!(error_text("1e310["), "line 1, column 6: unexpected '[' after the end of the document");
    }

    #[test]
    fn blank_text_has_no_value() {
        for text in ["", " \r\n\t", "\u{feff}", "\u{feff}\n"] {
            assert_eq!(parse(text), Ok(None));
        }
    }

    proptest! {
        /// Accepts and rejects almost-JSON texts like the reference parser.
        #[test]
        fn accepts_what_serde_json_accepts(text in r#"[\[\]{},:" 0-9.eE+\\\-ntrua]{0,24}"#) {
            let reference = serde_json::from_str::<Value>(&text);
            // The reference parser rejects numbers out of range and stops there. That is a limit of its types, not an
            // error in the text.
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

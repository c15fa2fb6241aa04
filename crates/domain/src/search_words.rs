//! The tokenizer of the search. It feeds the indexes of both database engines and parses the queries, so that both
//! engines find the same texts.
//!
//! A word is a run of letters and digits, with case and accents folded. Chinese, Japanese and Korean do not put spaces
//! between words. In these scripts each pair of neighbouring characters is a word, and so is the last character of a
//! run. So every character begins a word.

use std::{
    collections::HashSet,
    ops::{ControlFlow, Range},
};

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Maximum number of bytes of a folded word; longer words are cut. PostgreSQL limits lexemes to fewer than 2,048 bytes.
const WORD_BYTES_MAX: usize = 255;
/// Maximum number of characters of a body that are indexed.
const BODY_CHARS_MAX: usize = 1_000_000;
/// Maximum number of bytes of all distinct words of a body. With their positions they must fit into the 1 MiB of a
/// tsvector.
const WORDS_BYTES_MAX: usize = 900_000;
/// If a text has at most this many bytes, its words always fit, because folding lengthens a character at most
/// elevenfold.
const ALWAYS_FITS: usize = WORDS_BYTES_MAX / 11;

/// The form of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordForm {
    /// A run of letters and digits.
    Run,
    /// Two neighbouring characters of a script without spaces.
    Pair,
    /// The last character of a run in such a script.
    Ending,
}

/// A folded word, with its range of bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word<'a> {
    pub folded: &'a str,
    pub span: Range<usize>,
    pub form: WordForm,
}

/// Calls `found` with each indexed word of a body, in order, until `found` breaks.
pub fn each_indexed_word(body: &str, mut found: impl FnMut(Word<'_>) -> ControlFlow<()>) {
    let mut text = body;
    if body.len() > BODY_CHARS_MAX
        && let Some((end, _)) = body.char_indices().nth(BODY_CHARS_MAX)
    {
        text = &body[..end];
    }
    if text.len() <= ALWAYS_FITS {
        each_word(text, found);
        return;
    }
    let mut known: HashSet<Box<str>> = HashSet::new();
    let mut budget = WORDS_BYTES_MAX;
    each_word(text, |word| {
        if !known.contains(word.folded) {
            match budget.checked_sub(word.folded.len()) {
                Some(left) => budget = left,
                None => return ControlFlow::Break(()),
            }
            known.insert(word.folded.into());
        }
        found(word)
    });
}

/// Calls `found` with each word of a text, in order, until `found` breaks.
pub fn each_word(text: &str, mut found: impl FnMut(Word<'_>) -> ControlFlow<()>) {
    let mut folded = String::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if !first.is_alphanumeric() {
            at += first.len_utf8();
        } else if is_spaceless(first) {
            match spaceless_run(text, at, &mut folded, &mut found) {
                ControlFlow::Continue(end) => at = end,
                ControlFlow::Break(()) => return,
            }
        } else {
            let end = run_end(text, at);
            folded.clear();
            fold(&text[at..end], &mut folded);
            if !folded.is_empty() && found(Word { folded: &folded, span: at..end, form: WordForm::Run }).is_break() {
                return;
            }
            at = end;
        }
    }
}

/// The end of the run of letters and digits that begins at `start`.
fn run_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let ascii = bytes[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let end = start + ascii;
    if bytes.get(end).is_none_or(u8::is_ascii) {
        return end;
    }
    let is_in_run =
        |character: char| (character.is_alphanumeric() && !is_spaceless(character)) || extends_letter(character);
    text[end..].find(|character| !is_in_run(character)).map_or(text.len(), |length| end + length)
}

/// Calls `found` with the words of a run in a script without spaces, and returns the end of the run.
fn spaceless_run(
    text: &str,
    start: usize,
    folded: &mut String,
    found: &mut impl FnMut(Word<'_>) -> ControlFlow<()>,
) -> ControlFlow<(), usize> {
    let mut before: Option<(char, Range<usize>)> = None;
    let mut pair = String::new();
    let mut at = start;
    while let Some(first) = text[at..].chars().next().filter(|first| first.is_alphanumeric() && is_spaceless(*first)) {
        let rest = at + first.len_utf8();
        let joins = |character: char| extends_letter(character) || extends_syllable(character);
        let end = text[rest..].find(|character| !joins(character)).map_or(text.len(), |length| rest + length);
        folded.clear();
        fold(&text[at..end], folded);
        for character in folded.chars() {
            if let Some((previous, span)) = before.replace((character, at..end)) {
                pair.clear();
                pair.extend([previous, character]);
                found(Word { folded: &pair, span: span.start..end, form: WordForm::Pair })?;
            }
        }
        at = end;
    }
    if let Some((last, span)) = before {
        pair.clear();
        pair.push(last);
        found(Word { folded: &pair, span, form: WordForm::Ending })?;
    }
    ControlFlow::Continue(at)
}

/// Appends a run of letters with case and accents folded.
fn fold(run: &str, into: &mut String) {
    if run.is_ascii() {
        into.extend(run.bytes().take(WORD_BYTES_MAX).map(|byte| char::from(byte.to_ascii_lowercase())));
        return;
    }
    // NFC composes Korean syllables and voiced kana into one letter again, after the accents are removed. Converting to
    // upper case first turns ß into ss, and both small sigmas into one letter.
    let letters = run
        .nfkd()
        .filter(|letter| !is_accent(*letter) && !is_invisible(*letter))
        .nfc()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .filter(|letter| !is_accent(*letter) && (letter.is_alphanumeric() || is_combining_mark(*letter)));
    for letter in letters {
        let length = into.len();
        match letter {
            'æ' => into.push_str("ae"),
            'œ' => into.push_str("oe"),
            'þ' => into.push_str("th"),
            'ø' => into.push('o'),
            'ł' => into.push('l'),
            'đ' | 'ð' => into.push('d'),
            'ħ' => into.push('h'),
            'ŧ' => into.push('t'),
            other => into.push(other),
        }
        if into.len() > WORD_BYTES_MAX {
            into.truncate(length);
            return;
        }
    }
}

/// Whether the search ignores this mark, as people do who type without accents. Vowel signs, as in Hindi or Thai, and
/// the marks that turn the kana ha into ba change the word, so the search does not ignore them.
fn is_accent(mark: char) -> bool {
    matches!(mark,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}'
        | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}' | '\u{6df}'..='\u{6e8}'
        | '\u{6ea}'..='\u{6ed}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe20}'..='\u{fe2f}')
}

/// Soft hyphens, joiners, and variation selectors.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character belongs to the letter before it.
fn extends_letter(character: char) -> bool {
    !character.is_ascii() && (is_combining_mark(character) || is_invisible(character))
}

/// Whether a character is a later part of a decomposed Korean syllable, or a voicing mark of half-width kana.
fn extends_syllable(character: char) -> bool {
    matches!(character, '\u{1160}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}' | '\u{ff9e}' | '\u{ff9f}')
}

/// Whether a letter is Chinese, Japanese or Korean.
fn is_spaceless(letter: char) -> bool {
    matches!(letter,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{303c}'
        | '\u{3041}'..='\u{318f}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{a960}'..='\u{a97f}' | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}' | '\u{1aff0}'..='\u{1b16f}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        each_word(text, |word| {
            words.push(word.folded.to_owned());
            ControlFlow::Continue(())
        });
        words
    }

    #[test]
    fn case_and_accents_are_folded() {
        let same = [
            ("Crème BRÛLÉE", "creme brulee"),
            ("cre\u{300}me", "creme"),
            ("Straße STRASSE", "strasse strasse"),
            ("Łódź Ørsted Æsir œuvre", "lodz orsted aesir oeuvre"),
            ("ΣΊΣΥΦΟΣ σίσυφος", "σισυφοσ σισυφοσ"),
            ("Ёлка ЁЛКА", "елка елка"),
            ("İstanbul ısı", "istanbul isi"),
            ("ﬁnd Ｆｕｌｌ²", "find full2"),
            ("כָּתַב كَتَبَ", "כתב كتب"),
            ("Đặng Việt", "dang viet"),
            ("हिन्दी में", "हिन्दी में"),
            ("co\u{ad}operate", "cooperate"),
        ];
        for (text, folded) in same {
            assert_eq!(words(text).join(" "), folded, "{text}");
        }
    }

    #[test]
    fn other_characters_separate_words() {
        assert_eq!(
            words("don't foo_bar(a.b::c) x-1 — 🎉 $9.50"),
            ["don", "t", "foo", "bar", "a", "b", "c", "x", "1", "9", "50"]
        );
        assert_eq!(words(" \n\t.,;!?\"'()[]{}«»…"), Vec::<String>::new());
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(words("東京都"), ["東京", "京都", "都"]);
        assert_eq!(words("猫"), ["猫"]);
        assert_eq!(words("a猫b"), ["a", "猫", "b"]);
        assert_eq!(words("ﾊﾞﾅﾅ"), words("バナナ"));
        assert_eq!(words("バナナ"), ["バナ", "ナナ", "ナ"]);
        assert_eq!(words("は\u{3099}か"), ["ばか", "か"]);
        assert_eq!(words("한국어"), ["한국", "국어", "어"]);
        assert_eq!(words(&"한국어".nfd().collect::<String>()), words("한국어"));
        assert_eq!(words("葛\u{e0100}城"), words("葛城"));
    }

    #[test]
    fn spans_cover_the_original_text() {
        let text = "Ça va, 東京!";
        let mut spans = Vec::new();
        each_word(text, |word| {
            spans.push((text[word.span].to_owned(), word.form));
            ControlFlow::Continue(())
        });
        let expected =
            [("Ça", WordForm::Run), ("va", WordForm::Run), ("東京", WordForm::Pair), ("京", WordForm::Ending)];
        assert_eq!(spans, expected.map(|(text, form)| (text.to_owned(), form)));
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(words(&"A".repeat(10_000)), ["a".repeat(WORD_BYTES_MAX)]);
        assert_eq!(words(&"é€ж".repeat(1_000)).len(), 1_000 + 1);
        assert_eq!(words(&"ж".repeat(10_000)), ["ж".repeat(WORD_BYTES_MAX / 2)]);
    }

    #[test]
    fn indexed_words_of_a_body_are_limited() {
        fn indexed(body: &str) -> Vec<String> {
            let mut words = Vec::new();
            each_indexed_word(body, |word| {
                words.push(word.folded.to_owned());
                ControlFlow::Continue(())
            });
            words
        }
        let long = format!("{}end", "a ".repeat(BODY_CHARS_MAX / 2));
        assert_eq!(indexed(&long).len(), BODY_CHARS_MAX / 2);
        // All words are distinct, so the limit of bytes applies.
        let wide = (0..110_000).map(|number| format!("ﷺ{number}")).collect::<Vec<_>>().join(" ");
        assert!(wide.chars().count() < BODY_CHARS_MAX);
        assert_eq!(indexed(&wide).iter().map(String::len).sum::<usize>() / 100, WORDS_BYTES_MAX / 100 - 1);
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            ".*",
            "[a-zA-Zß-ÿĀ-ſΑ-ώА-я ]*",
            "[\u{3041}-\u{30ff}\u{4e00}-\u{4e20}\u{ac00}-\u{ac40}ｦ-ﾟa-c ]*",
            "[\u{600}-\u{6ff}\u{900}-\u{97f}\u{e00}-\u{e7f}\u{300}-\u{310}a-c ]*",
        ]
    }

    proptest! {
        #[test]
        fn words_are_safe_for_the_database_engines(text in any_text()) {
            let mut end = 0;
            each_word(&text, |word| {
                assert!(!word.folded.is_empty() && word.folded.len() <= WORD_BYTES_MAX);
                assert!(!word.folded.chars().any(|letter| letter.is_whitespace() || letter.is_control() || letter.is_ascii_uppercase()));
                assert!(word.folded.chars().all(|letter| !letter.is_ascii() || letter.is_ascii_alphanumeric()));
                assert!(text.get(word.span.clone()).is_some_and(|written| !written.is_empty()));
                assert!(word.span.end >= end);
                end = word.span.end;
                ControlFlow::Continue(())
            });
        }

        #[test]
        fn composed_and_decomposed_texts_have_the_same_words(text in any_text()) {
            let composed: String = text.nfc().collect();
            let decomposed: String = text.nfd().collect();
            prop_assert_eq!(words(&composed), words(&decomposed));
        }

        #[test]
        fn case_does_not_change_the_words(text in "[a-zA-Zß-öø-ÿĀ-ňŊ-ſΑ-Ρα-ώА-яa-c ]*") {
            prop_assert_eq!(words(&text.to_uppercase()), words(&text));
            prop_assert_eq!(words(&text.to_lowercase()), words(&text));
        }

        #[test]
        fn folding_folded_words_changes_nothing(text in "[a-zA-Zß-ÿĀ-ſΑ-ώА-я0-9 ]*") {
            prop_assert_eq!(words(&words(&text).join(" ")), words(&text));
        }
    }
}

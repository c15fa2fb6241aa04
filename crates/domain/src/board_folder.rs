//! A board as a folder of YAML files: the contents of the files, and their names.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

use crate::{
    Error, Patch, Result, Time,
    board::{BoardContent, StickieContent, StickieFields},
    enums::{Lifecycle, RelationType, StickiePriority},
    patch,
};

/// The file that describes the board.
pub const BOARD_FILE: &str = "blackboard.yaml";
/// The file that lists the relations between stickies.
pub const RELATIONS_FILE: &str = "relations.yaml";
/// The end of the name of a stickie's file.
pub const STICKIE_SUFFIX: &str = ".stickie.yaml";
/// Maximum number of bytes of a file name before its suffix. With the suffix, and one more for a temporary file, the
/// name stays within the 255 bytes that most file systems allow.
const STEM_MAX: usize = 200;

/// The contents of a board's folder. A field that a file omits stays unchanged; null or an empty value clears it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    pub board: Option<BoardFile>,
    #[serde(default)]
    pub stickies: Vec<StickieFile>,
    /// Relations between stickies. Without this file they stay unchanged
    pub relations: Option<Vec<RelationFile>>,
}

impl Folder {
    /// The time of the newest board change that the folder contains.
    pub fn synced_at(&self) -> Option<Time> {
        self.board.as_ref().and_then(|board| board.synced_at)
    }
}

/// The contents of `blackboard.yaml`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoardFile {
    pub id: Option<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub name: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub role: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub conversation: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub project: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub task: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub background: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub guidelines: Patch<String>,
    pub lifecycle: Option<Lifecycle>,
    pub edit_count: Option<i64>,
    /// Time of the newest board change that this folder contains
    pub synced_at: Option<Time>,
}

/// The contents of a stickie's file.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StickieFile {
    /// Name of the file
    #[serde(default)]
    pub file: String,
    pub id: Option<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub name: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub note: Patch<String>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub code: Patch<String>,
    #[serde(default, deserialize_with = "patch::list_or_null")]
    pub labels: Option<Vec<String>>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub priority: Patch<StickiePriority>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub score: Patch<f64>,
    #[serde(default, deserialize_with = "deserialize_field")]
    pub structured: Patch<Value>,
    pub archived: Option<bool>,
    /// Edit number of the stickie when this file was written
    pub edit_count: Option<i64>,
}

/// A relation between two stickies. `from` and `to` are names or ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationFile {
    pub from: String,
    #[serde(rename = "type")]
    pub relation_type: RelationType,
    pub to: String,
    #[serde(default)]
    pub labels: Vec<String>,
    /// Id of the stickie that `from` names. It identifies the stickie even after a rename
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_id: Option<String>,
    /// Id of the stickie that `to` names
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_id: Option<String>,
    /// Edit number of the relation when this line was written
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_count: Option<i64>,
}

/// Deserializes a present field directly as its own type. The `Deserialize` of `Patch` would first read an untyped
/// value, and so turn the text `1.50` into a number.
fn deserialize_field<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<Patch<T>, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.map_or(Patch::Clear, Patch::Set))
}

impl StickieFile {
    /// The content of the stickie after the changes in this file.
    pub fn applied_to(&self, content: &StickieContent) -> Result<StickieContent> {
        let fields = StickieFields {
            note: self.note.clone(),
            code: self.code.clone(),
            labels: self.labels.clone(),
            priority: self.priority.clone(),
            score: self.score.clone(),
            structured: self.structured.clone(),
        };
        let changed = content.with_changes(&self.name_patch(), &fields);
        let mut changed =
            changed.map_err(|error| Error { message: format!("{}: {error}", self.file).into(), ..error })?;
        changed.archived = self.archived.unwrap_or(changed.archived);
        Ok(changed)
    }

    /// The change to the stickie's name. If the file has neither an id nor a name, the stickie is named after the file.
    pub fn name_patch(&self) -> Patch<String> {
        match (&self.name, &self.id, self.file.strip_suffix(STICKIE_SUFFIX)) {
            (Patch::Unset, None, Some(stem)) => Patch::Set(stem.to_owned()),
            _ => self.name.clone(),
        }
    }
}

impl BoardFile {
    /// The content of the board after the changes in this file.
    pub fn applied_to(&self, content: &BoardContent) -> Result<BoardContent> {
        use crate::text::{LINE_MAX, TEXT_MAX};
        Ok(BoardContent {
            name: self.name.line("name", LINE_MAX)?.apply(content.name.clone()),
            role: self.role.line("role", LINE_MAX)?.apply(content.role.clone()),
            conversation: self.conversation.line("conversation", LINE_MAX)?.apply(content.conversation.clone()),
            project: self.project.line("project", LINE_MAX)?.apply(content.project.clone()),
            task: self.task.line("task", LINE_MAX)?.apply(content.task.clone()),
            background: self.background.body("background", TEXT_MAX)?.apply(content.background.clone()),
            guidelines: self.guidelines.body("guidelines", TEXT_MAX)?.apply(content.guidelines.clone()),
            lifecycle: self.lifecycle.unwrap_or(content.lifecycle),
        })
    }
}

/// Parses the YAML of one file.
pub fn parse<T: for<'de> Deserialize<'de>>(file: &str, yaml: &str) -> Result<T> {
    serde_saphyr::from_str(yaml).map_err(|error| {
        let error = error.to_string();
        Error::usage(format!("{file}: {}", error.lines().next().unwrap_or_default())).hint("nothing was changed")
    })
}

fn to_yaml<T: Serialize>(value: &T) -> Result<String> {
    // Do not wrap long lines: in a line-based diff, a changed word then changes only its own line.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Error::usage(format!("cannot write this as YAML: {error}")))
}

/// The text of `blackboard.yaml`.
pub fn board_yaml(id: Uuid, content: &BoardContent, edit_count: i64, synced_at: Option<Time>) -> Result<String> {
    #[derive(Serialize)]
    struct File<'a> {
        id: Uuid,
        #[serde(flatten)]
        content: &'a BoardContent,
        edit_count: i64,
        synced_at: Option<Time>,
    }
    to_yaml(&File { id, content, edit_count, synced_at })
}

/// The text of a stickie's file.
pub fn stickie_yaml(id: Uuid, content: &StickieContent, edit_count: i64) -> Result<String> {
    #[derive(Serialize)]
    struct File<'a> {
        id: Uuid,
        #[serde(flatten)]
        content: &'a StickieContent,
        edit_count: i64,
    }
    to_yaml(&File { id, content, edit_count })
}

/// The text of `relations.yaml`.
pub fn relations_yaml(relations: &[RelationFile]) -> Result<String> {
    to_yaml(&relations)
}

/// The name of a stickie in `relations.yaml` and in messages: its name, or its id if it has no name or the name looks
/// like an id.
pub fn stickie_display_name(id: Uuid, name: Option<&str>) -> String {
    match name {
        Some(name) if crate::ids::parse_suffix(name).is_none() => name.to_owned(),
        _ => id.to_string(),
    }
}

/// The file name of each stickie. It is the name of the stickie, if every file system accepts this name and
/// distinguishes it from the other names. Otherwise it is the id.
pub fn file_names(stickies: &[(Uuid, Option<&str>)]) -> HashMap<Uuid, String> {
    let mut name_counts: HashMap<String, usize> = HashMap::new();
    for name in stickies.iter().filter_map(|(_, name)| *name) {
        *name_counts.entry(fold_file_name(name)).or_default() += 1;
    }
    let stem = |(id, name): &(Uuid, Option<&str>)| match name {
        Some(name) if is_safe_stem(name) && name_counts.get(&fold_file_name(name)) == Some(&1) => (*name).to_owned(),
        _ => id.to_string(),
    };
    stickies.iter().map(|stickie| (stickie.0, format!("{}{STICKIE_SUFFIX}", stem(stickie)))).collect()
}

/// Folds case and Unicode forms. Names with equal results may be the same file on some file systems.
fn fold_file_name(name: &str) -> String {
    name.nfkd().flat_map(char::to_lowercase).collect::<String>().nfkc().collect()
}

/// Whether every file system accepts this name for a file.
fn is_safe_stem(name: &str) -> bool {
    let devices = ["con", "prn", "aux", "nul"];
    let before_dot = name.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let port = before_dot.strip_prefix("com").or_else(|| before_dot.strip_prefix("lpt"));
    let is_device = devices.contains(&before_dot.as_str()) || port.is_some_and(|rest| rest.chars().count() == 1);
    let is_odd = |character: char| !character.is_alphanumeric() && !" -_.,+@()'".contains(character);
    name.len() <= STEM_MAX
        && !name.starts_with(['.', ' ', '-'])
        && !name.ends_with(['.', ' '])
        && !name.is_empty()
        && !name.chars().any(is_odd)
        && !is_device
        && Uuid::parse_str(name).is_err()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::text;

    /// Texts made of pieces that have a special meaning in YAML.
    fn hostile() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "a",
            "-",
            "- ",
            ": ",
            ":",
            " #",
            " ",
            "  ",
            "\t",
            "\n",
            "\n\n",
            "\r\n",
            "---",
            "...",
            "null",
            "~",
            "yes",
            "true",
            "1",
            "1.5",
            "0x1f",
            "1e3",
            "'",
            "\"",
            "\\",
            "|",
            ">",
            "&a",
            "*a",
            "!t",
            "%",
            "@",
            "`",
            "{",
            "[",
            "]",
            ",",
            "? ",
            "é",
            "😀",
            "\u{2028}",
            "\u{feff}",
            "\u{85}",
            "\u{a0}",
            "=",
            "<<",
            "2026-01-01",
            "\n ",
            "\n\t",
            "words that go on ",
        ]);
        prop_oneof![
            prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat()),
            ".*",
            Just("word ".repeat(1_000)),
            Just("x".repeat(5_000)),
        ]
    }

    fn some(text: String) -> Option<String> {
        Some(text).filter(|text| !text.is_empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn written_stickie_is_read_back_unchanged(name in hostile(), note in hostile(), code in hostile(), label in hostile(), score in prop::option::of(-1e9..1e9), archived: bool) {
            let label = text::clean_line(&label).chars().take(200).collect::<String>().trim().to_owned();
            let content = StickieContent {
                name: some(text::clean_line(&name).chars().take(200).collect::<String>().trim().to_owned()),
                note: some(text::clean(&note)),
                code: some(text::clean(&code)),
                labels: some(label).into_iter().collect(),
                priority: Some(StickiePriority::Wont),
                score,
                structured: Some(json!({ "text": text::clean(&note), "list": [1, null, true, 1.5, "1", {}] })),
                archived,
            };
            let id = Uuid::from_u128(7);
            let yaml = stickie_yaml(id, &content, 3).unwrap();
            let read: StickieFile = parse("x", &yaml).unwrap();
            prop_assert_eq!(read.applied_to(&StickieContent::default()).unwrap(), content.with_changes(&Patch::Unset, &StickieFields::default()).unwrap());
            prop_assert_eq!((read.id, read.edit_count), (Some(id.to_string()), Some(3)));
            // The writer wraps no lines, so long lines in the texts do not add lines to the file.
            prop_assert!(yaml.split('\n').count() <= 30 + 3 * (note.split('\n').count() + code.split('\n').count()));
        }

        #[test]
        fn written_board_is_read_back_unchanged(background in hostile(), guidelines in hostile()) {
            let content = BoardContent {
                background: some(text::clean(&background)),
                guidelines: some(text::clean(&guidelines)),
                ..BoardContent::default()
            };
            let at = Time::from_micros(1_767_225_600_000_001);
            let read: BoardFile = parse("x", &board_yaml(Uuid::nil(), &content, 1, Some(at)).unwrap()).unwrap();
            prop_assert_eq!(read.applied_to(&BoardContent::default()).unwrap(), content);
            prop_assert_eq!(read.synced_at, Some(at));
        }

        #[test]
        fn parsing_any_file_never_panics(yaml in hostile()) {
            let _ = parse::<StickieFile>("x", &yaml);
            let _ = parse::<BoardFile>("x", &yaml);
            let _ = parse::<Vec<RelationFile>>("x", &yaml);
        }

        #[test]
        fn file_names_are_distinct_and_safe(names in prop::collection::vec(prop_oneof![hostile(), "[aAbB./ ]{1,3}", Just("..".to_owned()), Just("con".to_owned())], 0..12)) {
            let names: Vec<String> = names.iter().map(|name| text::clean_line(name)).collect();
            let stickies: Vec<(Uuid, Option<&str>)> =
                names.iter().zip(1..).map(|(name, number)| (Uuid::from_u128(number), Some(name.as_str()))).collect();
            let files = file_names(&stickies);
            let distinct: std::collections::HashSet<String> = files.values().map(|file| fold_file_name(file)).collect();
            prop_assert_eq!(distinct.len(), stickies.len());
            for file in files.values() {
                prop_assert!(!file.contains(['/', '\\', '\0']) && !file.starts_with('.') && file.len() <= 255, "{}", file);
            }
        }
    }

    #[test]
    fn handwritten_yaml_values_take_the_type_of_their_field() {
        let read: StickieFile =
            parse("a", "name: 1.50\nnote: yes\ncode: |\n  a\n   b\nlabels: [1, no]\nscore: 3\n").unwrap();
        assert_eq!(read.name, Patch::Set("1.50".into()));
        assert_eq!(read.note, Patch::Set("yes".into()));
        assert_eq!(read.code, Patch::Set("a\n b\n".into()));
        assert_eq!(read.labels, Some(vec!["1".into(), "no".into()]));
        assert_eq!((read.score, read.structured), (Patch::Set(3.0), Patch::Unset));
        let read: StickieFile = parse("a", "note:\nlabels:\npriority: null\n").unwrap();
        assert_eq!((read.note, read.labels, read.priority), (Patch::Clear, Some(Vec::new()), Patch::Clear));
        let crlf: StickieFile = parse("a", "note: |\r\n  one\r\n  two\r\n").unwrap();
        assert_eq!(crlf.note, Patch::Set("one\ntwo\n".into()));
    }

    #[test]
    fn error_about_an_invalid_stickie_names_the_file() {
        for yaml in ["colour: red\n", "priority: high\n", "- a\n", "note: [\n", "note: a\nnote: b\n", "score: high\n"] {
            let error = parse::<StickieFile>("a.stickie.yaml", yaml).unwrap_err();
            assert!(error.to_string().starts_with("a.stickie.yaml: "), "{yaml}: {error}");
        }
        assert!(parse::<Vec<RelationFile>>("r", "- from: a\n  to: b\n  type: LIKES\n").is_err());
    }

    #[test]
    fn stickie_name_becomes_file_name_if_every_file_system_accepts_it() {
        let id = Uuid::from_u128(9);
        for (name, is_file) in [
            ("plan", true),
            ("My plan (2)", true),
            ("größe", true),
            ("a/b", false),
            ("..", false),
            (".hidden", false),
            ("NUL", false),
            ("com1.txt", false),
            ("what?", false),
            ("00000000-0000-0000-0000-000000000001", false),
            (&"x".repeat(201), false),
        ] {
            let file = file_names(&[(id, Some(name))]).remove(&id).unwrap();
            let expected = if is_file { format!("{name}{STICKIE_SUFFIX}") } else { format!("{id}{STICKIE_SUFFIX}") };
            assert_eq!(file, expected);
        }
        let files = file_names(&[(id, Some("Plan")), (Uuid::nil(), Some("plan"))]);
        assert_eq!(files[&id], format!("{id}{STICKIE_SUFFIX}"));
    }
}

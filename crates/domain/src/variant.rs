//! Variants: the addresses of tasks, and the rule that derives a variant from a command and a selector.

use std::{fmt, str::FromStr};

use crate::{Error, Result, field, sentence};

/// The address of a task: segments of `[A-Za-z0-9._-]+`, joined by `/`. The segment `actions` is reserved, because
/// pages use it in their paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant(String);

/// Maximum number of characters in a variant.
pub const VARIANT_MAX: usize = 200;

impl Variant {
    /// Applies the selector rule. Without a variant, the result is the command. A variant without `/` is appended to
    /// the command. A variant with `/` is used as it is, and must start with the command, if there is one. Both texts
    /// are trimmed first.
    pub fn select(command: Option<&str>, variant: Option<&str>) -> Result<Self> {
        let command = command.map(str::trim).filter(|command| !command.is_empty());
        let variant = variant.map(str::trim).filter(|variant| !variant.is_empty());
        match (command, variant) {
            (None, None) => {
                let hint = sentence!["give ", field!(command), " C, ", field!(variant), " V, or both"];
                Err(Error::usage("a command or a variant is required").hint(hint))
            }
            (Some(command), None) => command.parse(),
            (None, Some(variant)) => variant.parse(),
            (Some(command), Some(variant)) if variant.contains('/') => {
                if variant.strip_prefix(command).is_some_and(|rest| rest.starts_with('/')) {
                    variant.parse()
                } else {
                    Err(Error::usage(format!("variant {variant:?} does not start with the command {command:?}"))
                        .hint(format!("write {command}/..., or omit the command or the variant")))
                }
            }
            (Some(command), Some(variant)) => format!("{command}/{variant}").parse(),
        }
    }

    /// The first segment.
    pub fn command(&self) -> &str {
        self.0.split('/').next().unwrap_or(&self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let invalid = |why: String| {
            Err(Error::usage(format!("variant {:?}: {why}", crate::text::cut(text, 80)))
                .hint("use segments of letters, digits, '.', '_' and '-', joined by '/'"))
        };
        if text.len() > VARIANT_MAX {
            return invalid(format!("{} characters, the limit is {VARIANT_MAX}", text.chars().count()));
        }
        for segment in text.split('/') {
            if segment.is_empty() {
                return invalid("a segment is empty".into());
            }
            if segment == "actions" {
                return invalid("the segment \"actions\" is reserved".into());
            }
            if let Some(odd) =
                segment.chars().find(|character| !character.is_ascii_alphanumeric() && !"._-".contains(*character))
            {
                return invalid(format!("{odd:?} is not allowed"));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl serde::Serialize for Variant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn select_combines_command_and_variant() {
        let select = |command, variant| Variant::select(command, variant).map(|v| v.0);
        assert_eq!(select(Some("unit"), None).unwrap(), "unit");
        assert_eq!(select(Some("unit"), Some("")).unwrap(), "unit");
        assert_eq!(select(Some("unit"), Some("go")).unwrap(), "unit/go");
        assert_eq!(select(Some("unit"), Some("unit/go")).unwrap(), "unit/go");
        assert_eq!(select(None, Some("unit/go")).unwrap(), "unit/go");
        assert_eq!(select(None, Some("go")).unwrap(), "go");
        assert_eq!(select(Some(" unit\t"), Some("  ")).unwrap(), "unit");
        assert_eq!(select(Some(" unit"), Some("go ")).unwrap(), "unit/go");
        assert_eq!(select(Some("unit "), Some(" unit/go\n")).unwrap(), "unit/go");
        assert_eq!(select(Some("  "), Some(" unit/go ")).unwrap(), "unit/go");
        for (command, variant) in [
            (Some("unit"), Some("lint/go")),
            (Some("unit"), Some("united/go")),
            (None, None),
            (Some(""), Some("")),
            (Some(" "), None),
        ] {
            assert_eq!(select(command, variant).unwrap_err().kind, crate::ErrorKind::Usage);
        }
    }

    #[test]
    fn rejects_invalid_variants() {
        for text in
            ["", "/", "a//b", "a/", "/a", "a b", "a/ b", "a/actions/b", " actions ", "ä", "a\nb", &"x".repeat(201)]
        {
            assert!(text.parse::<Variant>().is_err(), "{text:?}");
        }
        assert!("x".repeat(200).parse::<Variant>().is_ok());
    }

    proptest! {
        #[test]
        fn selected_variant_is_valid_and_ends_with_the_given_one(command in proptest::option::of(".{0,20}"), variant in proptest::option::of(".{0,20}")) {
            if let Ok(selected) = Variant::select(command.as_deref(), variant.as_deref()) {
                prop_assert_eq!(selected.as_str().parse::<Variant>().unwrap(), selected.clone());
                if let Some(variant) = variant.as_deref().map(str::trim).filter(|variant| !variant.is_empty()) {
                    prop_assert!(selected.as_str().ends_with(variant));
                }
            }
        }
    }
}

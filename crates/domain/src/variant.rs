//! Variants: how a task is addressed, and the rule that makes one from a command and a selector.

use std::{fmt, str::FromStr};

use crate::{Error, Result, field, sentence};

/// Segments of `[A-Za-z0-9._-]+` joined by `/`; the segment `actions` is reserved for pages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant(String);

/// Characters in a variant.
pub const VARIANT_MAX: usize = 200;

impl Variant {
    /// The selector rule: no variant, the command itself; one without `/`, below the command; one with `/`,
    /// as it is, and it must start with the command when one is given. Blanks around either are trimmed.
    pub fn select(command: Option<&str>, variant: Option<&str>) -> Result<Self> {
        let command = command.map(str::trim).filter(|command| !command.is_empty());
        let variant = variant.map(str::trim).filter(|variant| !variant.is_empty());
        match (command, variant) {
            (None, None) => {
                let hint = sentence!["give ", field!(command), " C, ", field!(variant), " V, or both"];
                Err(Error::usage("a command or a variant is needed").hint(hint))
            }
            (Some(command), None) => command.parse(),
            (None, Some(variant)) => variant.parse(),
            (Some(command), Some(variant)) if variant.contains('/') => {
                if variant.strip_prefix(command).is_some_and(|rest| rest.starts_with('/')) {
                    variant.parse()
                } else {
                    Err(Error::usage(format!("variant {variant:?} does not start with the command {command:?}"))
                        .hint(format!("write {command}/..., or leave one of the two out")))
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
        let refused = |why: String| {
            Err(Error::usage(format!("variant {:?}: {why}", crate::text::cut(text, 80)))
                .hint("segments of letters, digits, '.', '_' and '-', joined by '/'"))
        };
        if text.len() > VARIANT_MAX {
            return refused(format!("{} characters, the limit is {VARIANT_MAX}", text.chars().count()));
        }
        for segment in text.split('/') {
            if segment.is_empty() {
                return refused("a segment is empty".into());
            }
            if segment == "actions" {
                return refused("the segment \"actions\" is reserved".into());
            }
            if let Some(odd) =
                segment.chars().find(|character| !character.is_ascii_alphanumeric() && !"._-".contains(*character))
            {
                return refused(format!("{odd:?} is not allowed"));
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
    fn the_selector_rule() {
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
    fn refuses_what_is_not_a_variant() {
        for text in
            ["", "/", "a//b", "a/", "/a", "a b", "a/ b", "a/actions/b", " actions ", "ä", "a\nb", &"x".repeat(201)]
        {
            assert!(text.parse::<Variant>().is_err(), "{text:?}");
        }
        assert!("x".repeat(200).parse::<Variant>().is_ok());
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_kept_as_it_is(command in proptest::option::of(".{0,20}"), variant in proptest::option::of(".{0,20}")) {
            if let Ok(selected) = Variant::select(command.as_deref(), variant.as_deref()) {
                prop_assert_eq!(selected.as_str().parse::<Variant>().unwrap(), selected.clone());
                if let Some(variant) = variant.as_deref().map(str::trim).filter(|variant| !variant.is_empty()) {
                    prop_assert!(selected.as_str().ends_with(variant));
                }
            }
        }
    }
}

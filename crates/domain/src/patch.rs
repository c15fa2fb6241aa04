//! Fields of an upsert: an omitted field stays unchanged, and an empty value clears the field.

use std::str::FromStr;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::text;

/// A change to a field: none, clear it, or set it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    #[default]
    Unset,
    Clear,
    Set(T),
}

/// Default value of command-line flags that means "not given". Nobody can type it, because no argument can contain a
/// NUL.
pub const UNSET: &str = "\0";

impl<T> Patch<T> {
    /// The new value of a field with the value `present`.
    #[must_use]
    pub fn apply(self, present: Option<T>) -> Option<T> {
        match self {
            Self::Unset => present,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }

    /// Converts the value, if there is one.
    pub fn try_map<U, E>(self, map: impl FnOnce(T) -> Result<U, E>) -> Result<Patch<U>, E> {
        Ok(match self {
            Self::Unset => Patch::Unset,
            Self::Clear => Patch::Clear,
            Self::Set(value) => Patch::Set(map(value)?),
        })
    }
}

impl Patch<String> {
    /// Cleans a one-line field and checks its length. An empty text clears the field.
    pub fn line(&self, field: &str, max: usize) -> crate::Result<Self> {
        self.cleaned(|text| text::check_line(field, text, max))
    }

    /// Cleans a text of several lines and checks its length. An empty text clears the field.
    pub fn body(&self, field: &str, max: usize) -> crate::Result<Self> {
        self.cleaned(|text| text::check_body(field, text, max))
    }

    fn cleaned(&self, clean: impl FnOnce(&str) -> crate::Result<String>) -> crate::Result<Self> {
        Ok(match self {
            Self::Unset => Self::Unset,
            Self::Clear => Self::Clear,
            Self::Set(text) => match clean(text)? {
                empty if empty.is_empty() => Self::Clear,
                cleaned => Self::Set(cleaned),
            },
        })
    }
}

/// Cleans the entries of a list and removes duplicates. `None` means "not given". A single empty entry clears the list.
pub fn clean_list(field: &str, given: Option<&[String]>) -> crate::Result<Option<Vec<String>>> {
    let Some(given) = given else {
        return Ok(None);
    };
    if given.len() > LIST_MAX {
        return Err(crate::Error::usage(format!("{} {field}s given, the limit is {LIST_MAX}", given.len())));
    }
    let mut cleaned: Vec<String> = Vec::new();
    for entry in given {
        let entry = text::check_line(field, entry, text::LINE_MAX)?;
        if !entry.is_empty() && !cleaned.contains(&entry) {
            cleaned.push(entry);
        }
    }
    Ok(Some(cleaned))
}

/// Maximum number of entries in a list of tags, labels or capabilities.
const LIST_MAX: usize = 100;

/// Deserializes a list. Null clears the list, as an empty list does.
pub fn list_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or_default()))
}

impl<T: FromStr> FromStr for Patch<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        match text {
            UNSET => Ok(Self::Unset),
            "" => Ok(Self::Clear),
            _ => text.parse().map(Self::Set),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Patch<T> {
    /// Null and an empty text clear the field. Serde calls this only if the field is present; an omitted field gets the
    /// default, `Unset`.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::Clear),
            Value::String(text) if text.is_empty() => Ok(Self::Clear),
            value => serde_json::from_value(value).map(Self::Set).map_err(serde::de::Error::custom),
        }
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Patch<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Nullable_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = Option::<T>::json_schema(generator);
        // An empty text clears the field, whatever type its values have.
        if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
            alternatives.push(serde_json::json!({ "const": "" }));
        }
        schema.remove("minLength");
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Form {
        #[serde(default)]
        title: Patch<String>,
    }

    #[test]
    fn json_distinguishes_omitted_from_null() {
        let read = |json| serde_json::from_str::<Form>(json).unwrap().title;
        assert_eq!(read("{}"), Patch::Unset);
        assert_eq!(read(r#"{"title":null}"#), Patch::Clear);
        assert_eq!(read(r#"{"title":""}"#), Patch::Clear);
        assert_eq!(read(r#"{"title":"x"}"#), Patch::Set("x".into()));
    }

    #[test]
    fn omitted_field_stays_and_empty_field_clears() {
        assert_eq!(Patch::<i32>::Unset.apply(Some(1)), Some(1));
        assert_eq!("".parse::<Patch<String>>().unwrap().apply(Some("x".into())), None);
        assert_eq!("y".parse::<Patch<String>>().unwrap().apply(Some("x".into())), Some("y".into()));
    }
}

//! References: the texts by which callers name things, typed by the kind of thing.

use std::{convert::Infallible, fmt, marker::PhantomData, str::FromStr};

use crate::kind::Marker;

/// The name, handle, variant or id suffix of one `K`, as the caller wrote it. The store resolves it to an id.
pub struct Ref<K> {
    text: String,
    kind: PhantomData<fn() -> K>,
}

impl<K> Ref<K> {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: crate::text::clean_line(&text.into()), kind: PhantomData }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<K> From<crate::Id<K>> for Ref<K> {
    fn from(id: crate::Id<K>) -> Self {
        Self::new(id.to_string())
    }
}
impl<K> Clone for Ref<K> {
    fn clone(&self) -> Self {
        Self::new(self.text.clone())
    }
}
impl<K> PartialEq for Ref<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl<K> Eq for Ref<K> {}
impl<K> fmt::Debug for Ref<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(formatter)
    }
}
impl<K> fmt::Display for Ref<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(formatter)
    }
}
impl<K> FromStr for Ref<K> {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}
impl<'de, K> serde::Deserialize<'de> for Ref<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}
impl<K: Marker> schemars::JsonSchema for Ref<K> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}_reference", K::KIND).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1, "format": "reference" })
    }
}

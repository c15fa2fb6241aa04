//! "Did you mean": existing names that are similar to an unknown name.

/// At most three names that are similar to `wanted`, the most similar first.
pub fn close_matches<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name))
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_similar_name_comes_first() {
        assert_eq!(close_matches("coderr", ["writer", "coder", "Coders"]), ["coder", "Coders"]);
        assert_eq!(close_matches("xyz", ["writer", "coder"]), Vec::<&str>::new());
    }
}

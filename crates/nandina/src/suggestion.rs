//! "Did you mean …?": the known name that is nearest to a mistyped one.

/// The candidate nearest to `name`, if it is near enough to be the one meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let similarity = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
        // The same threshold as clap's, so that options, tables and columns behave alike.
        if similarity > 0.8 && best.is_none_or(|(other, _)| similarity > other) {
            best = Some((similarity, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `; did you mean 'x'?`, or nothing.
pub(crate) fn phrase<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|found| format!("; did you mean '{found}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_found_and_strangers_are_not() {
        assert_eq!(nearest("linitem", ["orders", "lineitem"]), Some("lineitem"));
        assert_eq!(nearest("Memory_Limt", ["memory_limit", "threads"]), Some("memory_limit"));
        assert_eq!(nearest("zebra", ["orders", "lineitem"]), None);
        assert_eq!(phrase("zebra", ["orders"]), "");
        assert_eq!(phrase("order", ["orders"]), "; did you mean 'orders'?");
    }
}

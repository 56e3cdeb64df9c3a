//! The nearest spelling of a misspelt name.

/// The candidate nearest to `found`, if it is near enough to be what was meant.
///
/// Near enough is a Damerau–Levenshtein distance of at most a third of the length, dashes, underscores
/// and capitals counting alike.
pub fn nearest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(found);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().max(wanted.chars().count()).div_ceil(3))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("group_sise", ["concurrency", "group_size"]), Some("group_size"));
        assert_eq!(nearest("grppo", ["gspo", "grpo", "rloo"]), Some("grpo"));
        assert_eq!(nearest("Dr-GRPO", ["grpo", "dr_grpo"]), Some("dr_grpo"));
        assert_eq!(nearest("banana", ["grpo", "rloo"]), None);
        assert_eq!(nearest("x", []), None);
    }
}

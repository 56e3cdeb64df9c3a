//! Every environment variable that `lego` reads, and the layer that they form.

/// Prefix of all of them. `LEGO_<SECTION>__<KEY>` sets one key of run.toml: `LEGO_TRAIN__LR=1e-5`.
pub const PREFIX: &str = "LEGO_";

/// Which log lines appear on stderr, as a filter: `LEGO_LOG=lego::proxy=debug`. Wins over `-v`.
pub const LOG: &str = "LEGO_LOG";

/// `auto`, `always` or `never`, as `--color`.
pub const COLOR: &str = "LEGO_COLOR";

/// Anything but empty: no progress bars, as `--no-progress`.
pub const NO_PROGRESS: &str = "LEGO_NO_PROGRESS";

/// Between the section and the key, and between deeper tables.
const SEPARATOR: &str = "__";

/// Variables that set keys, in the order of their names.
pub fn key_variables(variables: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found: Vec<_> = variables
        .into_iter()
        .filter(|(name, _)| dotted(name).is_some())
        .collect();
    found.sort();
    found
}

/// `LEGO_ROLLOUT__GROUP_SIZE` as `rollout.group_size`; absent for a variable that sets no key.
pub(super) fn dotted(name: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.contains(SEPARATOR).then(|| {
        rest.split(SEPARATOR)
            .map(str::to_lowercase)
            .collect::<Vec<_>>()
            .join(".")
    })
}

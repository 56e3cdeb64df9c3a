//! Keys and values that the documentation names and no part uses yet.
//!
//! They are refused as such, so that a run never ignores what its file asks for. A part that is built
//! moves its keys from here into the section's struct.

/// Sections and keys.
const KEYS: &[&str] = &["scaffold.mix", "sandbox.mounts", "train.backend", "eval.timeout"];

/// Values of keys that exist.
const VALUES: &[(&str, &[&str])] = &[
    (
        "scaffold.name",
        &["terminus", "aider", "qwen-code", "pi", "cline", "gemini-cli"],
    ),
    ("engine.weight_sync", &["lora"]),
    ("capture.builder", &["tree"]),
];

/// Whether the key is documented and not used yet.
pub(super) fn key(path: &str) -> bool {
    KEYS.contains(&path)
}

/// Whether the value is documented for this key and not used yet.
pub(super) fn value(path: &str, found: &str) -> bool {
    VALUES
        .iter()
        .any(|(key, values)| *key == path && values.contains(&found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;

    #[test]
    fn what_is_listed_is_not_built_and_every_parent_exists() {
        for path in KEYS {
            let (parent, _) = path.rsplit_once('.').unwrap_or(("", path));
            assert!(schema::lookup(path).is_none(), "{path} is built: take it off the list");
            assert!(
                parent.is_empty() || schema::lookup(parent).is_some(),
                "{path} has no parent"
            );
        }
        for (path, values) in VALUES {
            let built = schema::choices(&schema::lookup(path).unwrap()).unwrap();
            for value in *values {
                assert!(
                    !built.contains(&(*value).to_owned()),
                    "{path} = {value} is built: take it off the list"
                );
            }
        }
    }
}

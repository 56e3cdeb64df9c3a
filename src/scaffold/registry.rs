//! From the name in run.toml to the scaffold.

use std::sync::Arc;

use crate::config::ScaffoldSection;

use super::{Builtin, Nop, Oracle, Scaffold};

const SUPPORTED: [&str; 3] = ["builtin", "oracle", "nop"];
const NOT_YET: [&str; 12] = [
    "claude-code",
    "opencode",
    "codex",
    "openhands",
    "terminus-2",
    "mini-swe-agent",
    "aider",
    "qwen-code",
    "pi",
    "cline",
    "gemini-cli",
    "custom",
];

/// `[scaffold] name` names no scaffold that can run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnknownScaffold {
    /// It is planned.
    #[error("scaffold `{0}` is not supported yet; supported: builtin, oracle, nop")]
    NotYet(String),
    /// It is nothing we know.
    #[error("there is no scaffold `{name}`; supported: builtin, oracle, nop{}", hint(.nearest.as_deref()))]
    Unknown {
        /// As written.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// The scaffold that `[scaffold]` asks for.
///
/// # Errors
/// When the name is not one of `builtin`, `oracle` and `nop`.
pub fn by_name(section: &ScaffoldSection) -> Result<Arc<dyn Scaffold>, UnknownScaffold> {
    match section.name.as_str() {
        "builtin" => Ok(Arc::new(Builtin::new(section.env.clone()))),
        "oracle" => Ok(Arc::new(Oracle)),
        "nop" => Ok(Arc::new(Nop)),
        name if NOT_YET.contains(&name) => Err(UnknownScaffold::NotYet(name.to_owned())),
        name => Err(UnknownScaffold::Unknown {
            name: name.to_owned(),
            nearest: nearest(name),
        }),
    }
}

fn nearest(name: &str) -> Option<String> {
    SUPPORTED
        .iter()
        .chain(&NOT_YET)
        .map(|known| (strsim::damerau_levenshtein(name, known), *known))
        .min()
        .filter(|(distance, _)| *distance <= 2)
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str) -> ScaffoldSection {
        ScaffoldSection {
            name: name.to_owned(),
            ..ScaffoldSection::default()
        }
    }

    fn refusal(name: &str) -> String {
        by_name(&section(name))
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn the_three_of_ours_are_there() {
        for name in SUPPORTED {
            assert_eq!(by_name(&section(name)).unwrap().name(), name);
        }
    }

    #[test]
    fn planned_agents_say_so_and_typos_get_the_nearest_name() {
        assert!(refusal("claude-code").contains("`claude-code` is not supported yet"));
        assert!(refusal("biultin").contains("did you mean `builtin`?"));
        assert_eq!(
            refusal("zebra"),
            "there is no scaffold `zebra`; supported: builtin, oracle, nop"
        );
    }
}

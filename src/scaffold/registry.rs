//! From the name in run.toml to the scaffold.

use std::sync::Arc;

use super::process::{ClaudeCode, Codex, Custom, MiniSweAgent, OpenCode, OpenHands, ProcessAgent, Terminus2};
use super::{Builtin, Nop, Oracle, Patch, Scaffold};
use crate::config::{Dialect, ScaffoldSection};

const SUPPORTED: [&str; 11] = [
    "builtin",
    "claude-code",
    "opencode",
    "codex",
    "mini-swe-agent",
    "openhands",
    "terminus-2",
    "custom",
    "oracle",
    "nop",
    "patch",
];
const NOT_YET: [&str; 5] = ["aider", "qwen-code", "pi", "cline", "gemini-cli"];

/// `[scaffold] name` names no scaffold that can run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnknownScaffold {
    /// It is planned.
    #[error("scaffold `{0}` is not supported yet; supported: {known}", known = SUPPORTED.join(", "))]
    NotYet(String),
    /// `custom` without a program.
    #[error("scaffold `custom` without scaffold.command: write `command = [\"<program>\", \"<argument>\", …]`")]
    NoCommand,
    /// `patch` without the folder of its trials.
    #[error("scaffold `patch` without its trials: write `args = [\"<folder with the folders of trials>\"]`")]
    NoPatches,
    /// It speaks one API only.
    #[error("scaffold.dialect: `{0}` speaks one API only; take the key out")]
    OneDialect(String),
    /// It does not speak this one.
    #[error("scaffold.dialect: `openhands` speaks `chat` or `anthropic`")]
    OtherDialect,
    /// It is nothing we know.
    #[error("there is no scaffold `{name}`; supported: {}{}", SUPPORTED.join(", "), hint(.nearest.as_deref()))]
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
/// When the name is none that can run, or its keys do not fit it.
pub fn by_name(section: &ScaffoldSection) -> Result<Arc<dyn Scaffold>, UnknownScaffold> {
    let name = section.name.as_str();
    if section.dialect.is_some() && !["opencode", "openhands"].contains(&name) {
        return Err(UnknownScaffold::OneDialect(name.to_owned()));
    }
    match name {
        "claude-code" => Ok(Arc::new(ProcessAgent::new(ClaudeCode, section))),
        "opencode" => {
            let dialect = section.dialect.unwrap_or(Dialect::Chat);
            Ok(Arc::new(ProcessAgent::new(OpenCode { dialect }, section)))
        }
        "codex" => Ok(Arc::new(ProcessAgent::new(Codex, section))),
        "mini-swe-agent" => Ok(Arc::new(ProcessAgent::new(MiniSweAgent, section))),
        "openhands" => match section.dialect.unwrap_or(Dialect::Chat) {
            Dialect::Responses => Err(UnknownScaffold::OtherDialect),
            dialect => Ok(Arc::new(ProcessAgent::new(OpenHands { dialect }, section))),
        },
        "terminus-2" => Ok(Arc::new(ProcessAgent::new(Terminus2, section))),
        "custom" => {
            let custom = Custom::new(&section.command).ok_or(UnknownScaffold::NoCommand)?;
            Ok(Arc::new(ProcessAgent::new(custom, section)))
        }
        "builtin" => Ok(Arc::new(Builtin::new(section.env.clone()))),
        "oracle" => Ok(Arc::new(Oracle)),
        "nop" => Ok(Arc::new(Nop)),
        "patch" => match section.args.as_slice() {
            [folder] => Ok(Arc::new(Patch::new(folder.into()))),
            _ => Err(UnknownScaffold::NoPatches),
        },
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
    fn every_supported_name_is_a_scaffold_of_that_name() {
        for name in SUPPORTED {
            let section = ScaffoldSection {
                command: vec!["agent".to_owned()],
                args: vec!["trials".to_owned()],
                ..section(name)
            };
            assert_eq!(by_name(&section).unwrap().name(), name);
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        assert!(refusal("custom").contains("scaffold.command"));
        let section = ScaffoldSection {
            dialect: Some(Dialect::Chat),
            ..section("codex")
        };
        assert_eq!(
            by_name(&section).err(),
            Some(UnknownScaffold::OneDialect("codex".to_owned()))
        );
    }

    #[test]
    fn an_agent_is_not_asked_for_an_api_that_it_does_not_speak() {
        let section = ScaffoldSection {
            dialect: Some(Dialect::Responses),
            ..section("openhands")
        };
        assert_eq!(by_name(&section).err(), Some(UnknownScaffold::OtherDialect));
    }

    #[test]
    fn planned_agents_say_so_and_typos_get_the_nearest_name() {
        assert!(refusal("qwen-code").contains("`qwen-code` is not supported yet"));
        assert!(refusal("biultin").contains("did you mean `builtin`?"));
        assert_eq!(
            refusal("zebra"),
            format!("there is no scaffold `zebra`; supported: {}", SUPPORTED.join(", "))
        );
    }
}

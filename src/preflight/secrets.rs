//! `secrets`: keys stay in the environment, out of files that are copied into every run.

use super::{Check, Context, Finding};
use crate::config::is_secret;

pub(super) struct Secrets;

impl Check for Secrets {
    fn id(&self) -> &'static str {
        "secrets"
    }

    fn title(&self) -> &'static str {
        "no key is written in run.toml"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let entries = run.config.scaffold.env.iter();
        entries
            .filter(|(name, value)| is_secret(name, value))
            .map(|(name, _)| {
                let key = format!("scaffold.env.{name}");
                let mut finding = Finding::fatal(
                    self.id(),
                    format!("{key} looks like a secret, and run.toml is copied into every run directory"),
                )
                .at(run, &key)
                .help(format!(
                    "take `{name}` out of run.toml and change the key if the file was shared"
                ));
                // The line would show it.
                finding.line = None;
                finding
            })
            .collect()
    }
}

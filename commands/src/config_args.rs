//! The arguments of every command that takes a run config.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use lego::config::{ConfigFile, Layers, Loaded, Override, load};

use crate::failure::Failure;

const DEFAULT: &str = "run.toml";

/// Which run config, and what is set above it.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Run config, or `-` for stdin
    #[arg(value_name = "RUN.TOML", default_value = DEFAULT)]
    pub(crate) file: PathBuf,

    /// Set a key above all files, such as `--set rollout.group_size=16`; can be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    /// This file, and nothing above it.
    pub(crate) fn of(file: PathBuf) -> Self {
        Self { file, set: Vec::new() }
    }

    /// As `load`; where no file is named and none is there, without one.
    pub(crate) fn load_or_default(&self, flags: Vec<Override>) -> Result<Loaded, Failure> {
        if self.file == Path::new(DEFAULT) && !self.file.exists() {
            let file = ConfigFile::Text {
                name: DEFAULT.to_owned(),
                text: String::new(),
            };
            return self.load_from(file, flags);
        }
        self.load(flags)
    }

    /// Reads all layers; `flags` are the command's own that stand for one key, above `--set`.
    pub(crate) fn load(&self, flags: Vec<Override>) -> Result<Loaded, Failure> {
        let file = if self.file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::usage("cannot read the run config from stdin").source(error))?;
            ConfigFile::Text {
                name: "<stdin>".to_owned(),
                text,
            }
        } else {
            ConfigFile::Path(self.file.clone())
        };
        self.load_from(file, flags)
    }

    fn load_from(&self, file: ConfigFile, flags: Vec<Override>) -> Result<Loaded, Failure> {
        load_layers(file, &self.set, flags)
    }
}

/// Reads all layers: a file, the environment, `--set`, and the command's own flags.
pub(crate) fn load_layers(file: ConfigFile, set: &[String], flags: Vec<Override>) -> Result<Loaded, Failure> {
    let path = match &file {
        ConfigFile::Path(path) => path.clone(),
        ConfigFile::Text { name, .. } => PathBuf::from(name),
    };
    // A variable that is no text cannot set a key.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let overrides = set.iter().map(Override::set).chain(flags).collect();
    load(&Layers {
        file,
        environment,
        overrides,
    })
    .map_err(|error| {
        let missing = matches!(&error, lego::config::ConfigError::Unreadable { source, wanted_by: None, .. }
            if source.kind() == std::io::ErrorKind::NotFound);
        let failure = Failure::from(error);
        if missing {
            failure.hint(format!("`lego preflight --init {}` writes a starter", path.display()))
        } else {
            failure
        }
    })
}

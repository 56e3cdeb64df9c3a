//! Reads the layers of a run config and lays them over each other; the only place that knows the
//! precedence: defaults < `extends` < run.toml < environment < flags.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::check;
use super::error::{ConfigError, Fault, Problem};
use super::loaded::{Loaded, ModelNames, origins};
use super::source::{Location, Source, SourceKind};
use super::tree::{Node, Tree, merge, nest, override_with, parse, parse_value};
use super::{RunConfig, env};

/// Base files may have bases; deeper than this is a mistake.
const MAX_DEPTH: usize = 16;

/// What a run config is read from.
#[derive(Debug, Clone)]
pub struct Layers {
    /// run.toml itself.
    pub file: ConfigFile,
    /// Environment variables; those that set no key are left alone.
    pub environment: Vec<(String, String)>,
    /// Flags, in the order given; later ones win.
    pub overrides: Vec<Override>,
}

/// run.toml itself.
#[derive(Debug, Clone)]
pub enum ConfigFile {
    /// A file.
    Path(PathBuf),
    /// A text from elsewhere, with what people call it; its relative paths start from the current folder.
    Text {
        /// What people call it: `<stdin>`.
        name: String,
        /// TOML.
        text: String,
    },
}

/// One key that a flag sets.
#[derive(Debug, Clone)]
pub struct Override {
    flag: String,
    assignment: String,
}

impl Override {
    /// `--set section.key=value`.
    pub fn set(assignment: impl Into<String>) -> Self {
        Self {
            flag: "--set".to_owned(),
            assignment: assignment.into(),
        }
    }

    /// A flag that stands for one key: `--steps 5` is `train.steps=5`.
    pub fn flag(flag: &str, key: &str, value: impl std::fmt::Display) -> Self {
        Self {
            flag: flag.to_owned(),
            assignment: format!("{key}={value}"),
        }
    }
}

impl Layers {
    /// A file alone.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            file: ConfigFile::Path(path.into()),
            environment: Vec::new(),
            overrides: Vec::new(),
        }
    }

    /// A text alone, called `run.toml`: for tests and starters.
    pub fn text(text: impl Into<String>) -> Self {
        let file = ConfigFile::Text {
            name: "run.toml".to_owned(),
            text: text.into(),
        };
        Self {
            file,
            environment: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

/// Reads and merges all layers and checks every key.
///
/// # Errors
/// A file that cannot be read; every key that is unknown, not supported yet, of the wrong type or out of
/// range, with its place and the nearest spelling.
pub fn load(layers: &Layers) -> Result<Loaded, ConfigError> {
    let mut tree = match &layers.file {
        ConfigFile::Path(path) => read_file(path, None, &mut Vec::new())?,
        ConfigFile::Text { name, text } => {
            let source = Source {
                name: name.clone(),
                text: text.clone(),
                base: here()?,
                kind: SourceKind::File,
            };
            read_text(&Arc::new(source), &mut Vec::new())?
        }
    };
    for (name, value) in env::key_variables(layers.environment.iter().cloned()) {
        override_with(&mut tree, variable(&name, &value)?);
    }
    for item in &layers.overrides {
        override_with(&mut tree, assignment(item)?);
    }
    if let Tree::Table(entries) = &mut tree.value {
        entries.remove("extends");
    }
    let mut faults = check(&mut tree);
    // As they are met from the top of the file to the last flag.
    faults.sort_by_key(|fault| {
        fault
            .at
            .as_ref()
            .map(|at| (at.source.kind, at.source.name.clone(), at.span.start))
    });
    if !faults.is_empty() {
        return Err(ConfigError::Invalid { faults });
    }
    let origins = origins(&tree);
    let mut config: RunConfig = tree.into_value().try_into().map_err(|error: toml::de::Error| Fault {
        key: String::new(),
        problem: Problem::Syntax(error.message().to_owned()),
        at: None,
        help: None,
    })?;
    if config.run.name.is_empty() {
        config.run.name = folder_name(&layers.file)?;
    }
    Ok(Loaded {
        config,
        origins,
        names: ModelNames::default(),
    })
}

fn read_file(path: &Path, wanted_by: Option<&Location>, open: &mut Vec<PathBuf>) -> Result<Node, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        wanted_by: wanted_by.cloned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let real = std::fs::canonicalize(path).map_err(unreadable)?;
    if open.contains(&real) || open.len() >= MAX_DEPTH {
        return Err(Fault {
            key: "extends".to_owned(),
            problem: Problem::Conflict(format!("`{}` extends itself, by way of its bases", path.display())),
            at: wanted_by.cloned(),
            help: Some("take one `extends` of the circle out".to_owned()),
        }
        .into());
    }
    let base = real.parent().map_or_else(PathBuf::new, Path::to_owned);
    let name = path.display().to_string();
    open.push(real);
    let source = Arc::new(Source {
        name,
        text,
        base,
        kind: SourceKind::File,
    });
    let tree = read_text(&source, open)?;
    open.pop();
    Ok(tree)
}

/// Reads a document and puts its bases below it.
fn read_text(source: &Arc<Source>, open: &mut Vec<PathBuf>) -> Result<Node, ConfigError> {
    let own = parse(source).map_err(|(message, at)| Fault {
        key: String::new(),
        help: quotes_forgotten(&at),
        problem: Problem::Syntax(message),
        at: Some(at),
    })?;
    let mut tree = Node {
        value: Tree::Table(std::collections::BTreeMap::new()),
        at: own.at.clone(),
    };
    for (path, at) in bases(&own)? {
        merge(&mut tree, read_file(&source.base.join(path), Some(&at), open)?);
    }
    merge(&mut tree, own);
    Ok(tree)
}

/// What to do about a bare word where a value should be.
fn quotes_forgotten(at: &Location) -> Option<String> {
    let line = at.source.text.get(at.span.start..)?.lines().next()?;
    let after_equals = at
        .source
        .text
        .get(..at.span.start)?
        .trim_end_matches([' ', '\t'])
        .ends_with('=');
    let word = line.split(['#', ',', ']']).next()?.trim();
    (after_equals && word.starts_with(|c: char| c.is_alphabetic() || "/.~".contains(c)))
        .then(|| format!("a text stands in quotes: `\"{word}\"`"))
}

fn bases(own: &Node) -> Result<Vec<(String, Location)>, ConfigError> {
    let Tree::Table(entries) = &own.value else {
        return Ok(Vec::new());
    };
    let Some((_, list)) = entries.get("extends") else {
        return Ok(Vec::new());
    };
    let wrong = |at: &Location| Fault {
        key: "extends".to_owned(),
        problem: Problem::WrongValue {
            expected: "a list of files such as `[\"base.toml\"]`".to_owned(),
            found: at.source.text.get(at.span.clone()).unwrap_or_default().to_owned(),
        },
        at: Some(at.clone()),
        help: None,
    };
    let Tree::List(items) = &list.value else {
        return Err(wrong(&list.at).into());
    };
    items
        .iter()
        .map(|item| match &item.value {
            Tree::Scalar(toml::Value::String(path)) => Ok((path.clone(), item.at.clone())),
            _ => Err(wrong(&item.at).into()),
        })
        .collect()
}

fn variable(name: &str, value: &str) -> Result<Node, ConfigError> {
    let key = env::dotted(name).unwrap_or_default();
    let text = format!("{name}={value}");
    let source = Source {
        name: name.to_owned(),
        text,
        base: here()?,
        kind: SourceKind::Environment,
    };
    Ok(placed(Arc::new(source), &key, name.len()))
}

fn assignment(item: &Override) -> Result<Node, ConfigError> {
    let equals = item.assignment.find('=');
    let key = item.assignment[..equals.unwrap_or(item.assignment.len())]
        .trim()
        .to_owned();
    let name = if item.flag == "--set" {
        format!("--set {key}")
    } else {
        item.flag.clone()
    };
    let source = Arc::new(Source {
        name,
        text: item.assignment.clone(),
        base: here()?,
        kind: SourceKind::Flag,
    });
    match equals {
        Some(equals) if !key.is_empty() => Ok(placed(source, &key, equals)),
        _ => Err(Fault {
            key: String::new(),
            problem: Problem::WrongValue {
                expected: "`section.key=value`".to_owned(),
                found: format!("`{}`", item.assignment),
            },
            at: Some(Location {
                span: 0..item.assignment.len(),
                source,
            }),
            help: Some("such as `--set rollout.group_size=16`".to_owned()),
        }
        .into()),
    }
}

/// A value behind the `=` at byte `equals`, below its dotted key.
fn placed(source: Arc<Source>, key: &str, equals: usize) -> Node {
    let value = parse_value(&source, equals + 1..source.text.len());
    let key_at = Location {
        source,
        span: 0..equals,
    };
    nest(&key.split('.').collect::<Vec<_>>(), &key_at, value)
}

fn here() -> Result<PathBuf, ConfigError> {
    std::env::current_dir().map_err(|source| ConfigError::Unreadable {
        path: PathBuf::from("."),
        wanted_by: None,
        source,
    })
}

/// Name of the folder that holds run.toml.
fn folder_name(file: &ConfigFile) -> Result<String, ConfigError> {
    let folder = match file {
        ConfigFile::Path(path) => std::path::absolute(path)
            .ok()
            .and_then(|full| full.parent().map(Path::to_owned)),
        ConfigFile::Text { .. } => Some(here()?),
    };
    let name = folder
        .as_deref()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    Ok(name.unwrap_or_else(|| "run".to_owned()))
}

//! Values with the place that wrote them, and how layers of them merge.
//!
//! Nothing here knows which keys exist.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use super::source::{Location, Source};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Tree,
    pub(super) at: Location,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    /// A TOML scalar.
    Scalar(Value),
    /// Text of an environment variable or a flag, whose type the key decides.
    Loose(String),
    /// A list.
    List(Vec<Node>),
    /// A table: its keys, with where each key stands.
    Table(BTreeMap<String, (Location, Node)>),
}

/// Reads a TOML document.
///
/// # Errors
/// The parser's message and where it stopped.
pub(super) fn parse(source: &Arc<Source>) -> Result<Node, (String, Location)> {
    match DeTable::parse(&source.text) {
        Ok(document) => {
            let span = document.span();
            Ok(table(source, 0, span, document.into_inner()))
        }
        Err(error) => {
            let span = error.span().unwrap_or(0..source.text.len());
            Err((
                error.message().to_owned(),
                Location {
                    source: Arc::clone(source),
                    span,
                },
            ))
        }
    }
}

/// Reads one value of a variable or a flag, which covers `span` of its source.
///
/// What is bracketed or quoted is read as TOML; all else stays text until the key gives it a type.
pub(super) fn parse_value(source: &Arc<Source>, span: Range<usize>) -> Node {
    let text = source.text.get(span.clone()).unwrap_or_default();
    let at = Location {
        source: Arc::clone(source),
        span: span.clone(),
    };
    if text.starts_with(['[', '{', '"', '\'']) {
        let document = format!("v = {text}");
        if let Ok(parsed) = DeTable::parse(&document).map(Spanned::into_inner)
            && parsed.len() == 1
            && let Some((_, value)) = parsed.into_iter().next()
        {
            // Positions in `document` are shifted back to those in the source, modulo the prefix.
            return node(source, span.start.wrapping_sub("v = ".len()), value);
        }
    }
    Node {
        value: Tree::Loose(text.to_owned()),
        at,
    }
}

/// Puts a value below a path of keys, each of which stands at `key_at`.
pub(super) fn nest(path: &[&str], key_at: &Location, leaf: Node) -> Node {
    path.iter().rev().fold(leaf, |inner, key| Node {
        at: key_at.clone(),
        value: Tree::Table(BTreeMap::from([((*key).to_owned(), (key_at.clone(), inner))])),
    })
}

/// Lays `upper` over `lower`: tables merge key by key, all else is replaced.
pub(super) fn merge(lower: &mut Node, upper: Node) {
    lay(lower, upper, false);
}

/// The same for the one value of a variable or a flag: an empty table empties what is there, where merging would change
/// nothing.
pub(super) fn override_with(lower: &mut Node, upper: Node) {
    lay(lower, upper, true);
}

fn lay(lower: &mut Node, upper: Node, empties: bool) {
    match (&mut lower.value, upper.value) {
        (Tree::Table(below), Tree::Table(above)) if !(empties && above.is_empty()) => {
            for (key, (key_at, value)) in above {
                match below.get_mut(&key) {
                    Some((place, existing)) => {
                        *place = key_at;
                        lay(existing, value, empties);
                    }
                    None => {
                        below.insert(key, (key_at, value));
                    }
                }
            }
        }
        (_, value) => *lower = Node { value, at: upper.at },
    }
}

impl Node {
    /// The value without its places; loose text becomes a string.
    pub(super) fn into_value(self) -> Value {
        match self.value {
            Tree::Scalar(value) => value,
            Tree::Loose(text) => Value::String(text),
            Tree::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Tree::Table(entries) => Value::Table(
                entries
                    .into_iter()
                    .map(|(key, (_, node))| (key, node.into_value()))
                    .collect(),
            ),
        }
    }
}

fn node(source: &Arc<Source>, shift: usize, spanned: Spanned<DeValue<'_>>) -> Node {
    let span = spanned.span();
    let at = location(source, shift, span.clone());
    let value = match spanned.into_inner() {
        DeValue::String(text) => Tree::Scalar(Value::String(text.into_owned())),
        // A number that fits no i64 or f64 keeps its spelling, and is then of the wrong type.
        DeValue::Integer(integer) => Tree::Scalar(
            i64::from_str_radix(integer.as_str(), integer.radix())
                .map_or_else(|_| Value::String(integer.to_string()), Value::Integer),
        ),
        DeValue::Float(float) => Tree::Scalar(
            float
                .as_str()
                .parse()
                .map_or_else(|_| Value::String(float.as_str().to_owned()), Value::Float),
        ),
        DeValue::Boolean(flag) => Tree::Scalar(Value::Boolean(flag)),
        DeValue::Datetime(time) => Tree::Scalar(Value::Datetime(time)),
        DeValue::Array(items) => Tree::List(items.into_iter().map(|item| node(source, shift, item)).collect()),
        DeValue::Table(entries) => return table(source, shift, span, entries),
    };
    Node { value, at }
}

fn table(source: &Arc<Source>, shift: usize, span: Range<usize>, entries: DeTable<'_>) -> Node {
    let entries = entries
        .into_iter()
        .map(|(key, value)| {
            let key_at = location(source, shift, key.span());
            (key.into_inner().into_owned(), (key_at, node(source, shift, value)))
        })
        .collect();
    Node {
        value: Tree::Table(entries),
        at: location(source, shift, span),
    }
}

fn location(source: &Arc<Source>, shift: usize, span: Range<usize>) -> Location {
    let moved = |offset: usize| offset.wrapping_add(shift).min(source.text.len());
    Location {
        source: Arc::clone(source),
        span: moved(span.start)..moved(span.end),
    }
}

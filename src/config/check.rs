//! Holds a merged tree against the schema: keys, types, choices, ranges; makes paths absolute.
//!
//! Finds every fault, not only the first. What goes beyond a single key is preflight's.

use std::path::Path;

use serde_json::Value as Json;
use toml::Value;

use super::error::{Fault, Problem};
use super::schema::{KeySchema, choices};
use super::source::Location;
use super::spelling::nearest;
use super::tree::{Node, Tree};
use super::value::{ByteSize, HumanDuration, RatioBounds};
use super::{DeviceName, unsupported};

/// What is wrong with a text, if anything.
type Refuse = fn(&str) -> Option<String>;

/// Texts with a form of their own: the type's name and what refuses a wrong one.
const FORMS: [(&str, Refuse); 4] = [
    ("HumanDuration", |text| text.parse::<HumanDuration>().err()),
    ("ByteSize", |text| text.parse::<ByteSize>().err()),
    ("DeviceName", |text| text.parse::<DeviceName>().err()),
    ("RatioBounds", |text| text.parse::<RatioBounds>().err()),
];

/// Checks a whole file's tree, types its loose texts and makes its paths absolute.
pub(super) fn check(root: &mut Node) -> Vec<Fault> {
    let mut faults = Vec::new();
    visit(root, &KeySchema::root(), "", &mut faults);
    faults
}

fn visit(node: &mut Node, schema: &KeySchema, path: &str, faults: &mut Vec<Fault>) {
    let expected = schema.text("type").unwrap_or_default();
    let at = node.at.clone();
    if let Tree::Loose(text) = &node.value {
        node.value = match expected {
            // One value on the command line is a list of one.
            "array" => Tree::List(vec![Node {
                value: Tree::Loose(text.clone()),
                at: at.clone(),
            }]),
            _ => Tree::Scalar(typed(text, expected)),
        };
    }
    let wrong = |expected: String, found: String| Fault {
        key: path.to_owned(),
        problem: Problem::WrongValue { expected, found },
        at: Some(at.clone()),
        help: None,
    };
    match (&mut node.value, expected) {
        (Tree::Table(entries), "object") => {
            for (key, (key_at, value)) in entries {
                let inner = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match schema.child(key) {
                    Some(child) => visit(value, &child, &inner, faults),
                    None => faults.push(unknown_key(key, inner, key_at, schema)),
                }
            }
        }
        (Tree::List(items), "array") => {
            let Some(item_schema) = schema.items() else { return };
            for item in items {
                visit(item, &item_schema, path, faults);
                if schema.text("format") == Some("path") {
                    absolute(item);
                }
            }
        }
        (Tree::Scalar(Value::Integer(number)), "integer") => {
            if let Some(expected) = out_of_range(*number as f64, schema) {
                faults.push(wrong(expected, number.to_string()));
            }
        }
        (Tree::Scalar(Value::Integer(number)), "number") => {
            if let Some(expected) = out_of_range(*number as f64, schema) {
                faults.push(wrong(expected, number.to_string()));
            }
            node.value = Tree::Scalar(Value::Float(*number as f64));
        }
        (Tree::Scalar(Value::Float(number)), "number") => {
            if !number.is_finite() {
                faults.push(wrong("a finite number".to_owned(), number.to_string()));
            } else if let Some(expected) = out_of_range(*number, schema) {
                faults.push(wrong(expected, number.to_string()));
            }
        }
        (Tree::Scalar(Value::Boolean(_)), "boolean") => {}
        // An enumeration whose variants are documented has no type of its own.
        (Tree::Scalar(Value::String(text)), "string" | "") => {
            if let Some(fault) = wrong_text(text, schema, path, &at) {
                faults.push(fault);
            } else if schema.text("format") == Some("path") {
                absolute(node);
            }
        }
        (found, _) => faults.push(wrong(in_words(schema), describe(found))),
    }
}

/// A text of a variable or flag as the type that its key wants, or still as text.
fn typed(text: &str, expected: &str) -> Value {
    match expected {
        "integer" => text.replace('_', "").parse().ok().map(Value::Integer),
        "number" => text.replace('_', "").parse().ok().map(Value::Float),
        "boolean" => text.parse().ok().map(Value::Boolean),
        _ => None,
    }
    .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn unknown_key(key: &str, path: String, at: &Location, schema: &KeySchema) -> Fault {
    let expected = schema.keys().unwrap_or_default();
    let (problem, help) = if unsupported::key(&path) {
        (
            Problem::NotSupportedYet(path.clone()),
            Some(format!("take `{path}` out")),
        )
    } else {
        let near = nearest(key, expected.iter().map(String::as_str));
        let help = near
            .map(|name| format!("did you mean `{name}`?"))
            .or_else(|| elsewhere(key).map(|place| format!("`{key}` belongs to `[{place}]`")));
        (
            Problem::UnknownKey {
                found: key.to_owned(),
                expected,
            },
            help,
        )
    };
    Fault {
        key: path,
        problem,
        at: Some(at.clone()),
        help,
    }
}

/// The section that has this key, where exactly one has.
fn elsewhere(key: &str) -> Option<String> {
    let root = KeySchema::root();
    let mut owners = root.keys().unwrap_or_default().into_iter().filter(|section| {
        root.child(section)
            .and_then(|schema| schema.keys())
            .is_some_and(|keys| keys.iter().any(|name| name == key))
    });
    let first = owners.next();
    if owners.next().is_some() { None } else { first }
}

fn wrong_text(text: &str, schema: &KeySchema, path: &str, at: &Location) -> Option<Fault> {
    let fault = |problem, help| Fault {
        key: path.to_owned(),
        problem,
        at: Some(at.clone()),
        help,
    };
    if let Some(expected) = choices(schema) {
        if expected.iter().any(|choice| choice == text) {
            return None;
        }
        if unsupported::value(path, text) {
            let built = expected
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ");
            return Some(fault(
                Problem::NotSupportedYet(format!("{path} = \"{text}\"")),
                Some(format!("supported: {built}")),
            ));
        }
        let help = nearest(text, expected.iter().map(String::as_str)).map(|name| format!("did you mean `{name}`?"));
        return Some(fault(
            Problem::UnknownValue {
                found: text.to_owned(),
                expected,
            },
            help,
        ));
    }
    let name = schema.type_name.as_deref()?;
    let refuse = FORMS.iter().find(|(form, _)| *form == name)?.1;
    refuse(text).map(|message| {
        let (expected, found) = message
            .strip_prefix("expected ")
            .and_then(|rest| rest.split_once(", found "))
            .map_or((message.clone(), format!("`{text}`")), |(a, b)| {
                (a.to_owned(), b.to_owned())
            });
        fault(Problem::WrongValue { expected, found }, None)
    })
}

/// What was expected instead, if the number is out of range.
fn out_of_range(number: f64, schema: &KeySchema) -> Option<String> {
    let bound = |entry: &str| schema.get(entry).and_then(Json::as_f64);
    let (format_low, format_high) = match schema.text("format") {
        Some("uint32") => (Some(0.0), Some(f64::from(u32::MAX))),
        Some("int32") => (Some(f64::from(i32::MIN)), Some(f64::from(i32::MAX))),
        Some("uint64") => (Some(0.0), None),
        _ => (None, None),
    };
    let low = bound("minimum").or(format_low);
    let high = bound("maximum").or(format_high);
    let strictly = bound("exclusiveMinimum");
    if low.is_some_and(|low| number < low) || high.is_some_and(|high| number > high) {
        return Some(match (low, bound("maximum")) {
            (Some(low), Some(high)) => format!("{} from {low} to {high}", in_words(schema)),
            (Some(low), None) if number < low => format!("{} of at least {low}", in_words(schema)),
            _ => format!("{} of at most {}", in_words(schema), high.unwrap_or(number)),
        });
    }
    strictly
        .filter(|bound| number <= *bound)
        .map(|bound| format!("{} above {bound}", in_words(schema)))
}

/// What a key takes, in words.
pub(super) fn in_words(schema: &KeySchema) -> String {
    match (schema.text("type").unwrap_or_default(), schema.text("format")) {
        ("integer", _) => "a whole number".to_owned(),
        ("number", _) => "a number".to_owned(),
        ("boolean", _) => "true or false".to_owned(),
        ("array", Some("path")) => "a list of paths".to_owned(),
        ("array", _) => "a list".to_owned(),
        ("object", _) => "a table".to_owned(),
        (_, Some("path")) => "a path".to_owned(),
        _ => match schema.type_name.as_deref() {
            Some("RatioBounds") => "bounds such as \"2.0\" or \"0.5_2.0\"".to_owned(),
            Some("HumanDuration") => "a duration such as `90s`, `15m` or `2h`".to_owned(),
            Some("ByteSize") => "a size such as `512MiB` or `8GiB`".to_owned(),
            _ => choices(schema).map_or_else(
                || "a text in quotes".to_owned(),
                |names| {
                    format!(
                        "one of {}",
                        names
                            .iter()
                            .map(|name| format!("`{name}`"))
                            .collect::<Vec<_>>()
                            .join(", ")
                    )
                },
            ),
        },
    }
}

fn describe(found: &Tree) -> String {
    match found {
        Tree::Scalar(Value::String(text)) | Tree::Loose(text) => format!("the text `{text}`"),
        Tree::Scalar(Value::Boolean(flag)) => format!("`{flag}`"),
        Tree::Scalar(Value::Datetime(time)) => format!("the date `{time}`"),
        Tree::Scalar(number) => format!("the number `{number}`"),
        Tree::List(_) => "a list".to_owned(),
        Tree::Table(_) => "a table".to_owned(),
    }
}

/// A path starts from the folder of the file that wrote it. URLs and names of models stay as they are.
fn absolute(node: &mut Node) {
    let Tree::Scalar(Value::String(text)) = &mut node.value else {
        return;
    };
    if text.is_empty() || text.contains("://") || text.starts_with("hf:") {
        return;
    }
    let joined = node.at.source.base.join(Path::new(text.as_str()));
    *text = std::path::absolute(&joined)
        .unwrap_or(joined)
        .to_string_lossy()
        .into_owned();
}

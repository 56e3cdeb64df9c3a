//! Filter expressions, the same everywhere: `pass_rate > 0 && pass_rate < 1`, `data_source == 'a' || !flaky`.
//!
//! Names stand for a row's fields. A comparison with a field that has no value is false, but for `== null`.

use std::fmt;

use serde_json::{Map, Value};

/// An expression that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    root: Node,
    text: String,
}

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`, character {at}: {reason}")]
pub struct ExpressionError {
    /// The whole of it.
    pub text: String,
    /// From 1.
    pub at: usize,
    /// What was expected and what was found.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Or(Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Compare(Box<Self>, Comparison, Box<Self>),
    Field(String),
    Constant(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// Longest signs first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::MoreOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

/// Expressions within each other.
const DEEPEST: usize = 64;

impl Expression {
    /// Reads an expression over these fields.
    ///
    /// # Errors
    /// Where it breaks the grammar or names another field.
    pub fn parse(text: &str, fields: &[&str]) -> Result<Self, ExpressionError> {
        let mut parser = Parser {
            text,
            at: 0,
            fields,
            depth: 0,
        };
        let root = parser.either()?;
        parser.blanks();
        if parser.at < text.len() {
            return Err(parser.wrong("expected `&&`, `||` or the end"));
        }
        Ok(Self {
            root,
            text: text.to_owned(),
        })
    }

    /// Whether a row fits.
    pub fn fits(&self, row: &Map<String, Value>) -> bool {
        truth(&self.root, row)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn truth(node: &Node, row: &Map<String, Value>) -> bool {
    match node {
        Node::Or(left, right) => truth(left, row) || truth(right, row),
        Node::And(left, right) => truth(left, row) && truth(right, row),
        Node::Not(inner) => !truth(inner, row),
        Node::Compare(left, comparison, right) => {
            let asks_for_null = [left, right]
                .into_iter()
                .any(|side| **side == Node::Constant(Value::Null));
            compare(value(left, row), *comparison, value(right, row), asks_for_null)
        }
        node => matches!(value(node, row), Some(Value::Bool(true))),
    }
}

fn value<'a>(node: &'a Node, row: &'a Map<String, Value>) -> Option<&'a Value> {
    match node {
        Node::Field(name) => row.get(name),
        Node::Constant(constant) => Some(constant),
        _ => None,
    }
}

fn compare(left: Option<&Value>, comparison: Comparison, right: Option<&Value>, asks_for_null: bool) -> bool {
    use std::cmp::Ordering;
    let null = Value::Null;
    let (left, right) = (left.unwrap_or(&null), right.unwrap_or(&null));
    if left.is_null() || right.is_null() {
        return asks_for_null
            && match comparison {
                Comparison::Equal => left == right,
                Comparison::Unequal => left != right,
                _ => false,
            };
    }
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => return comparison == Comparison::Unequal,
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::Unequal => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::More => order == Some(Ordering::Greater),
        Comparison::MoreOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    fields: &'a [&'a str],
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn wrong(&self, expected: &str) -> ExpressionError {
        let found = self.rest().split_whitespace().next();
        let found = found.map_or_else(|| "its end".to_owned(), |word| format!("`{word}`"));
        ExpressionError {
            text: self.text.to_owned(),
            at: self.text[..self.at].chars().count() + 1,
            reason: format!("{expected}, found {found}"),
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        self.blanks();
        let fits = self.rest().starts_with(sign);
        if fits {
            self.at += sign.len();
        }
        fits
    }

    fn either(&mut self) -> Result<Node, ExpressionError> {
        let mut left = self.both()?;
        while self.takes("||") {
            left = Node::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Node, ExpressionError> {
        let mut left = self.one()?;
        while self.takes("&&") {
            left = Node::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong("expected an expression of at most 64 within each other"));
        }
        let node = self.comparison()?;
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, ExpressionError> {
        self.blanks();
        if self.rest().starts_with('!') && !self.rest().starts_with("!=") {
            self.at += 1;
            return Ok(Node::Not(Box::new(self.one()?)));
        }
        if self.takes("(") {
            let inner = self.either()?;
            return if self.takes(")") {
                Ok(inner)
            } else {
                Err(self.wrong("expected `)`"))
            };
        }
        let left = self.operand()?;
        for (sign, comparison) in COMPARISONS {
            if self.takes(sign) {
                return Ok(Node::Compare(Box::new(left), comparison, Box::new(self.operand()?)));
            }
        }
        match left {
            Node::Constant(Value::Bool(_)) | Node::Field(_) => Ok(left),
            _ => Err(self.wrong("expected a comparison (`==`, `!=`, `<`, `<=`, `>`, `>=`)")),
        }
    }

    fn operand(&mut self) -> Result<Node, ExpressionError> {
        self.blanks();
        let Some(first) = self.rest().chars().next() else {
            return Err(self.wrong("expected a field or a value"));
        };
        if matches!(first, '\'' | '"') {
            let inner = &self.text[self.at + 1..];
            let Some(length) = inner.find(first) else {
                return Err(self.wrong(&format!("expected a text that ends with {first}")));
            };
            let text = inner[..length].to_owned();
            self.at += length + 2;
            return Ok(Node::Constant(Value::String(text)));
        }
        let of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let signed = usize::from(matches!(first, '-' | '+'));
        let length = self.rest()[signed..]
            .find(|c| !of_word(c))
            .map_or(self.rest().len(), |end| end + signed);
        let word = self.rest()[..length].to_owned();
        let node = match word.as_str() {
            "true" => Node::Constant(Value::Bool(true)),
            "false" => Node::Constant(Value::Bool(false)),
            "null" => Node::Constant(Value::Null),
            _ if first.is_ascii_digit() || signed == 1 || first == '.' => {
                let number = word.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                Node::Constant(Value::Number(number.ok_or_else(|| self.wrong("expected a number"))?))
            }
            _ if self.fields.contains(&word.as_str()) => Node::Field(word.clone()),
            _ => {
                let known = self.fields.join(", ");
                return Err(self.wrong(&format!("expected a field ({known}) or a value")));
            }
        };
        self.at += length;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FIELDS: [&str; 4] = ["pass_rate", "data_source", "flaky", "n"];

    fn fits(text: &str, row: &Value) -> bool {
        Expression::parse(text, &FIELDS).unwrap().fits(row.as_object().unwrap())
    }

    #[test]
    fn rows_fit_or_do_not() {
        let row = json!({"pass_rate": 0.25, "data_source": "a b", "flaky": false, "n": null});
        for (text, expected) in [
            ("pass_rate > 0 && pass_rate < 1", true),
            ("pass_rate >= 0.2&&pass_rate<=.25", true),
            ("pass_rate > .25 || data_source == 'a b'", true),
            ("!flaky && (data_source != \"a b\" || pass_rate == 0.25)", true),
            ("flaky == false", true),
            ("flaky", false),
            ("n > 0", false),
            ("n <= 0", false),
            ("!(n > 0)", true),
            ("n == null", true),
            ("n != null", false),
            ("n != 5", false),
            ("pass_rate != null", true),
            ("pass_rate == 'x'", false),
            ("pass_rate != -1", true),
            // `&&` before `||`.
            ("true || false && false", true),
        ] {
            assert_eq!(fits(text, &row), expected, "{text}");
        }
    }

    #[test]
    fn what_breaks_the_grammar_is_told_with_its_place() {
        let said = |text: &str| Expression::parse(text, &FIELDS).unwrap_err().to_string();
        assert_eq!(
            said("pass_rat > 0"),
            "`pass_rat > 0`, character 1: expected a field (pass_rate, data_source, flaky, n) or a value, found `pass_rat`"
        );
        assert_eq!(
            said("flaky && "),
            "`flaky && `, character 10: expected a field or a value, found its end"
        );
        assert_eq!(said("(flaky"), "`(flaky`, character 7: expected `)`, found its end");
        for text in [
            "",
            "1",
            "pass_rate = 1",
            "'x",
            "pass_rate > 1 2",
            "&&",
            "pass_rate > 1e999x",
        ] {
            assert!(Expression::parse(text, &FIELDS).is_err(), "{text}");
        }
        assert!(Expression::parse(&"(".repeat(10_000), &FIELDS).is_err());
        assert!(Expression::parse(&"!".repeat(10_000), &FIELDS).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[()!&|<>= a-z_0-9.'\"é]{0,60}") {
            if let Ok(expression) = Expression::parse(&text, &FIELDS) {
                expression.fits(&Map::new());
            }
        }
    }
}

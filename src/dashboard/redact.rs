//! Takes secrets out of text before it leaves the machine's files: keys by their look, and values that are given to
//! names which say that they are secret.

use std::sync::OnceLock;

use regex::{Captures, Regex};

/// What stands in a secret's place.
const STARS: &str = "***";

fn patterns() -> Option<&'static (Regex, Regex)> {
    static ONCE: OnceLock<Option<(Regex, Regex)>> = OnceLock::new();
    ONCE.get_or_init(|| {
        let looks = r"(?x)
            \b(?: sk-[A-Za-z0-9_\-]{12,} | hf_[A-Za-z0-9]{12,} | gh[opsu]_[A-Za-z0-9]{12,} | github_pat_[A-Za-z0-9_]{12,}
              | glpat-[A-Za-z0-9_\-]{12,} | (?:AKIA|ASIA)[A-Z0-9]{12,} | xox[abp]-[A-Za-z0-9\-]{10,} )
            | -----BEGIN[^-]*PRIVATE\ KEY-----(?s:.*?)(?:-----END[^-]*-----|\z)";
        let named = r#"(?i)\b([A-Z0-9_\-]*(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS))(\\?["']?\s*[=:]\s*(?:Bearer\s+)?\\?["']?)([^\s"'\\,;&]{6,})"#;
        let bearer = r"(?i)\bBearer\s+[A-Za-z0-9._\-]{12,}";
        Some((
            Regex::new(&format!("{looks}|{bearer}")).ok()?,
            Regex::new(named).ok()?,
        ))
    })
    .as_ref()
}

/// The text without what looks like a secret.
pub(super) fn redact(text: &str) -> String {
    let Some((looks, named)) = patterns() else {
        return STARS.to_owned();
    };
    let text = looks.replace_all(text, STARS);
    let stars = |found: &Captures<'_>| {
        // Counts of tokens are no secrets: `max_tokens = 4096` has another ending, `token: 31999` a number.
        if found[3].chars().all(|c| c.is_ascii_digit() || c == '.') || found[3].starts_with(STARS) {
            found[0].to_owned()
        } else {
            format!("{}{}{STARS}", &found[1], &found[2])
        }
    };
    named.replace_all(&text, stars).into_owned()
}

/// The same for all texts of a JSON value.
pub(super) fn redact_json(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = redact(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(redact_json),
        serde_json::Value::Object(entries) => {
            for (name, value) in entries.iter_mut() {
                match value {
                    serde_json::Value::String(text) if crate::config::is_secret(name, text) => STARS.clone_into(text),
                    value => redact_json(value),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_and_numbers_stay() {
        for (text, expected) in [
            (
                "curl -H 'Authorization: Bearer abcdefghijklmnop'",
                "curl -H 'Authorization: ***'",
            ),
            (
                "export OPENAI_API_KEY=sk-abcdefghijklmnopqrst; ls",
                "export OPENAI_API_KEY=***; ls",
            ),
            ("HF_TOKEN: \"abcdefgh\"", "HF_TOKEN: \"***\""),
            (r#"{\"api_key\": \"abcdefgh\"}"#, r#"{\"api_key\": \"***\"}"#),
            ("max_tokens = 4096, token: 319999", "max_tokens = 4096, token: 319999"),
            ("see hf_ and sk-learn", "see hf_ and sk-learn"),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nxx\n-----END RSA PRIVATE KEY----- b",
                "a *** b",
            ),
        ] {
            assert_eq!(redact(text), expected);
        }
        let mut value = serde_json::json!({"MY_SECRET": "short", "list": ["ghp_abcdefghijklmnop"], "n": 3});
        redact_json(&mut value);
        assert_eq!(value, serde_json::json!({"MY_SECRET": "***", "list": ["***"], "n": 3}));
    }
}

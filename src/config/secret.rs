//! What looks like a secret: such a value is refused by preflight and never shown.

/// Endings of names whose values are secret.
const NAMES: [&str; 7] = [
    "API_KEY",
    "APIKEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIALS",
];

/// Beginnings of well-known keys and tokens.
const VALUES: [&str; 10] = [
    "sk-",
    "hf_",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "xoxb-",
    "-----BEGIN",
];

/// Shorter texts are no keys.
const SHORTEST: usize = 12;

/// Whether a value is a secret, by its own look or by the name it is given.
pub fn is_secret(name: &str, value: &str) -> bool {
    let upper = name.to_uppercase().replace('-', "_");
    let named = NAMES.iter().any(|ending| upper.ends_with(ending));
    let looks = value.len() >= SHORTEST && VALUES.iter().any(|start| value.starts_with(start));
    looks || (named && !value.is_empty())
}

/// A line of a config with its secrets starred out, as long as it was: the values of keys that say so, and what looks like one.
pub fn starred(line: &str) -> String {
    let stars = |text: &str| "*".repeat(text.chars().count());
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, value) = rest.split_at(at + 1);
        out += before;
        let end = value.find(&before[at..]).unwrap_or(value.len());
        let name = before.rsplit_once('=').map_or("", |(name, _)| name.trim());
        let name = name
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
            .next();
        let (value, behind) = value.split_at(end);
        out += &if is_secret(name.unwrap_or_default(), value) {
            stars(value)
        } else {
            value.to_owned()
        };
        let closing = behind.chars().next().map_or(0, char::len_utf8);
        out += &behind[..closing];
        rest = &behind[closing..];
    }
    // What a flag or a variable holds has no quotes.
    for (n, word) in rest.split(' ').enumerate() {
        if n > 0 {
            out.push(' ');
        }
        out += &if is_secret("", word) {
            stars(word)
        } else {
            word.to_owned()
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_without_their_secrets() {
        for (line, shown) in [
            ("api_key = \"abc\" # no", "api_key = \"***\" # no"),
            (
                "x = { HF_TOKEN = 'hf_é', a = \"b\" }",
                "x = { HF_TOKEN = '****', a = \"b\" }",
            ),
            ("name=\"sk-abcdefghij\"", "name=\"*************\""),
            ("token = \"open", "token = \"****"),
            ("sk-abcdefghij", "*************"),
            ("max_tokens = 4096", "max_tokens = 4096"),
            ("path = \"/usr/bin\"", "path = \"/usr/bin\""),
        ] {
            assert_eq!(starred(line), shown);
        }
    }

    #[test]
    fn keys_are_known_by_name_or_by_look() {
        assert!(is_secret("ANTHROPIC_API_KEY", "abc"));
        assert!(is_secret("anything", "sk-ant-0123456789"));
        assert!(!is_secret("API_KEY", ""));
        assert!(!is_secret("PATH", "/usr/bin"));
        assert!(!is_secret("max_tokens", "4096"));
        assert!(!is_secret("name", "sk-run"));
    }
}

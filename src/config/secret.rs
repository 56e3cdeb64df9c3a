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

#[cfg(test)]
mod tests {
    use super::*;

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

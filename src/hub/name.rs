//! `hf:org/name@revision`: how run.toml names a model of a hub.

use std::fmt;
use std::str::FromStr;

/// What such names begin with.
pub const PREFIX: &str = "hf:";

/// A model of a hub, and which revision of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// `org/name`, or a name alone.
    pub repo: String,
    /// Branch, tag or commit.
    pub revision: String,
}

impl ModelName {
    /// The same model at a commit.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self {
            repo: self.repo.clone(),
            revision: commit.to_owned(),
        }
    }

    /// Whether the revision is a commit, which always means the same files.
    pub fn is_pinned(&self) -> bool {
        is_commit(&self.revision)
    }
}

/// Whether a text is a commit's hash in full.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}@{}", self.repo, self.revision)
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected `hf:org/name` or `hf:org/name@revision`, found `{text}`");
        let name = text.strip_prefix(PREFIX).ok_or_else(wrong)?;
        let (repo, revision) = name.split_once('@').unwrap_or((name, "main"));
        // Both become parts of paths and of URLs.
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && !part.contains("..")
                && !part.contains("--")
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let is_reference = |part: &str| is_part(&part.replace("--", "-"));
        if repo.split('/').count() > 2 || !repo.split('/').all(is_part) || !revision.split('/').all(is_reference) {
            return Err(wrong());
        }
        Ok(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form_and_lead_nowhere_else() {
        let name: ModelName = "hf:Qwen/Qwen3-0.6B@refs/pr/1".parse().unwrap();
        assert_eq!(
            (name.repo.as_str(), name.revision.as_str()),
            ("Qwen/Qwen3-0.6B", "refs/pr/1")
        );
        assert_eq!("hf:gpt2".parse::<ModelName>().unwrap().to_string(), "hf:gpt2@main");
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert!(name.at(commit).is_pinned() && !name.is_pinned());
        assert_eq!(
            name.at(commit).to_string().parse::<ModelName>().unwrap(),
            name.at(commit)
        );
        for wrong in [
            "org/name",
            "hf:",
            "hf:a/b/c",
            "hf:../x",
            "hf:a/..",
            "hf:a/b@",
            "hf:a/b@../x",
            "hf:a/b@x/../y",
            "hf:a b/c",
            "hf:a/b?x",
            "hf:a/b@m#n",
            "hf:a--b/c",
        ] {
            let error = wrong.parse::<ModelName>().unwrap_err();
            assert!(
                error.contains("hf:org/name@revision") && error.contains(wrong),
                "{error}"
            );
        }
    }
}

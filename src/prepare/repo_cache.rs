//! Repositories from a folder of mirrors, clones or bundles: nothing is fetched. Needs git on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fs_err as fs;
use tempfile::TempDir;

use super::PrepareError;
use super::record::{Fault, fault};

/// A folder with repositories: `owner__name`, `owner/name` or `name`, each also with `.git` or as `.bundle`.
#[derive(Debug)]
pub(super) struct RepoCache {
    folder: PathBuf,
    /// Git folders by the repository's name, where they were found.
    found: BTreeMap<String, Option<PathBuf>>,
    /// What bundles were unpacked to.
    unpacked: Option<TempDir>,
}

/// A commit of a repository on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    pub(super) git_dir: PathBuf,
    pub(super) commit: String,
    /// Paths of submodules, and theirs.
    pub(super) submodules: Vec<(String, Self)>,
}

fn git(git_dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg(format!("--git-dir={}", git_dir.display()))
        .stdin(Stdio::null())
        .env("GIT_LFS_SKIP_SMUDGE", "1")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("LC_ALL", "C");
    command
}

/// Runs git to its end; `None` where it says no.
fn said(command: &mut Command) -> Result<Option<String>, PrepareError> {
    let output = command.output().map_err(|source| {
        std::io::Error::new(
            source.kind(),
            format!("git cannot be run ({source}); --repo-cache needs it on this machine"),
        )
    })?;
    let text = output.status.success().then_some(output.stdout);
    Ok(text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

impl RepoCache {
    /// Opens the folder.
    pub(super) fn open(folder: &Path) -> Result<Self, PrepareError> {
        fs::read_dir(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            found: BTreeMap::new(),
            unpacked: None,
        })
    }

    fn git_dir(&mut self, repo: &str) -> Result<Option<PathBuf>, PrepareError> {
        if let Some(known) = self.found.get(repo) {
            return Ok(known.clone());
        }
        let name = repo.rsplit('/').next().unwrap_or(repo);
        let mut found = None;
        for stem in [repo.replace('/', "__"), repo.to_owned(), name.to_owned()] {
            let plain = self.folder.join(&stem);
            let bare = self.folder.join(format!("{stem}.git"));
            let bundle = self.folder.join(format!("{stem}.bundle"));
            found = if plain.join(".git").is_dir() {
                Some(plain.join(".git"))
            } else if plain.join("objects").is_dir() {
                Some(plain)
            } else if bare.join("objects").is_dir() {
                Some(bare)
            } else if bundle.is_file() {
                Some(self.unpack(&bundle)?)
            } else {
                None
            };
            if found.is_some() {
                break;
            }
        }
        self.found.insert(repo.to_owned(), found.clone());
        Ok(found)
    }

    fn unpack(&mut self, bundle: &Path) -> Result<PathBuf, PrepareError> {
        let folder = match self.unpacked.take() {
            Some(folder) => folder,
            None => tempfile::tempdir()?,
        };
        let to = folder.path().join(self.found.len().to_string());
        self.unpacked = Some(folder);
        let mut command = Command::new("git");
        command
            .args(["clone", "-q", "--mirror"])
            .arg(bundle)
            .arg(&to)
            .stdin(Stdio::null());
        match said(&mut command)? {
            Some(_) => Ok(to),
            None => Err(std::io::Error::other(format!("{}: git cannot read this bundle", bundle.display())).into()),
        }
    }

    /// A commit, where the cache has it.
    pub(super) fn checkout(&mut self, repo: &str, commit: &str) -> Result<Result<Checkout, Fault>, PrepareError> {
        let Some(git_dir) = self.git_dir(repo)? else {
            let folder = self.folder.display();
            return Ok(Err(fault(
                "repo_not_in_cache",
                format!(
                    "{folder} has no repository `{repo}`: expected `{}`, also with `.git` or `.bundle`",
                    repo.replace('/', "__")
                ),
            )));
        };
        let full = said(
            git(&git_dir)
                .args(["rev-parse", "-q", "--verify"])
                .arg(format!("{commit}^{{commit}}")),
        )?;
        let Some(full) = full else {
            return Ok(Err(fault(
                "commit_not_in_cache",
                format!("{} has no commit `{commit}`", git_dir.display()),
            )));
        };
        let mut checkout = Checkout {
            commit: full.trim().to_owned(),
            git_dir,
            submodules: Vec::new(),
        };
        match self.submodules(&checkout)? {
            Ok(submodules) => checkout.submodules = submodules,
            Err(fault) => return Ok(Err(fault)),
        }
        Ok(Ok(checkout))
    }

    fn submodules(&mut self, checkout: &Checkout) -> Result<Result<Vec<(String, Checkout)>, Fault>, PrepareError> {
        let modules = format!("{}:.gitmodules", checkout.commit);
        let urls = said(git(&checkout.git_dir).args([
            "config",
            "--blob",
            &modules,
            "--get-regexp",
            r"^submodule\..*\.(path|url)$",
        ]))?;
        let Some(urls) = urls else { return Ok(Ok(Vec::new())) };
        let mut url_of: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        for (key, value) in urls.lines().filter_map(|line| line.split_once(' ')) {
            let (name, what) = key.rsplit_once('.').unwrap_or((key, ""));
            let entry = url_of.entry(name).or_default();
            if what == "path" {
                entry.0 = value;
            } else {
                entry.1 = value;
            }
        }
        let mut found = Vec::new();
        for (path, url) in url_of.into_values() {
            let tree =
                said(git(&checkout.git_dir).args(["ls-tree", &checkout.commit, "--", path]))?.unwrap_or_default();
            let Some(commit) = tree
                .strip_prefix("160000 commit ")
                .and_then(|rest| rest.split('\t').next())
            else {
                continue;
            };
            let mut parts = url.trim_end_matches('/').trim_end_matches(".git").rsplit(['/', ':']);
            let name = parts.next().unwrap_or_default();
            let repo = parts
                .next()
                .map_or_else(|| name.to_owned(), |owner| format!("{owner}/{name}"));
            match self.checkout(&repo, commit)? {
                Ok(inner) => found.push((path.to_owned(), inner)),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(found))
    }

    /// The change that a commit makes, with the commit before it.
    pub(super) fn change(
        &mut self,
        repo: &str,
        base: Option<&str>,
        fix: &str,
        is_merge: bool,
    ) -> Result<Result<(String, String), Fault>, PrepareError> {
        let at = match self.checkout(repo, fix)? {
            Ok(at) => at,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut ask = git(&at.git_dir);
        match base.filter(|_| !is_merge) {
            Some(base) => ask.args(["merge-base", base, &at.commit]),
            None => ask
                .args(["rev-parse", "-q", "--verify"])
                .arg(format!("{}^1", at.commit)),
        };
        let Some(before) = said(&mut ask)? else {
            return Ok(Err(fault(
                "commit_not_in_cache",
                format!("{} has nothing before `{fix}`", at.git_dir.display()),
            )));
        };
        let before = before.trim().to_owned();
        let diff =
            said(git(&at.git_dir).args(["diff", "--binary", "--no-color", "--no-ext-diff", &before, &at.commit]))?;
        Ok(Ok((before, diff.unwrap_or_default())))
    }
}

impl Checkout {
    /// Writes the commit's files below a folder, which is made.
    pub(super) fn write(&self, to: &Path) -> Result<(), PrepareError> {
        fs::create_dir_all(to)?;
        let index = tempfile::tempdir()?;
        let index = index.path().join("index");
        let failed = |what: &str| {
            std::io::Error::other(format!(
                "{}: git could not {what} {}",
                self.git_dir.display(),
                self.commit
            ))
        };
        let absolute = fs::canonicalize(to)?;
        let git = || {
            let mut command = git(&self.git_dir);
            command
                .arg(format!("--work-tree={}", absolute.display()))
                .env("GIT_INDEX_FILE", &index);
            command
        };
        said(git().args(["read-tree", &self.commit]))?.ok_or_else(|| failed("read"))?;
        said(git().args(["checkout-index", "-a", "-q"]))?.ok_or_else(|| failed("check out"))?;
        for (path, inner) in &self.submodules {
            inner.write(&to.join(path))?;
        }
        Ok(())
    }
}

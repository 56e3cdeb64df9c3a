//! A repair as a Harbor task folder.

use serde_json::json;

use super::instruction::instruction;
use super::language::{self, Language, quoted};
use super::options::ConvertOptions;
use super::patch::{self, FilePatch};
use super::record::{Fault, fault};
use super::repo_cache::{Checkout, RepoCache};
use super::stage::{StagedCheckout, StagedFile, StagedFolder};
use super::swe::Repair;
use super::{PrepareError, dockerfile};
use crate::verifier::{grade_awk, log_rules};

const TEST_SH: &str = include_str!("templates/test.sh");
const SOLVE_SH: &str = include_str!("templates/solve.sh");
/// Where the repository is, where no image says otherwise.
pub(super) const WORKDIR: &str = "/testbed";
/// Time for the tests, in seconds.
const TESTS_SEC: f64 = 1800.0;
/// Time for the agent, in seconds.
const AGENT_SEC: f64 = 3600.0;

/// A repair that can be written.
pub(super) struct Checked {
    repair: Repair,
    checkout: Option<Checkout>,
    tests: Vec<FilePatch>,
    language: &'static Language,
    format: String,
}

impl Checked {
    /// Looks over the patches and the repository of a repair.
    pub(super) fn of(
        mut repair: Repair,
        options: &ConvertOptions,
        cache: Option<&mut RepoCache>,
    ) -> Result<Result<Self, Fault>, PrepareError> {
        let mut checkout = None;
        if let Some(cache) = cache {
            if let (true, Some(fix)) = (
                repair.patch.trim().is_empty() && repair.bug.is_none(),
                repair.fix_commit.clone(),
            ) {
                match cache.change(&repair.repo, repair.base_commit.as_deref(), &fix, repair.fix_is_merge)? {
                    Ok((base, patch)) => {
                        repair.base_commit = Some(base);
                        repair.patch = patch;
                    }
                    Err(fault) => return Ok(Err(fault)),
                }
            }
            if let Some(base) = repair.base_commit.clone() {
                match cache.checkout(&repair.repo, &base)? {
                    Ok(found) => checkout = Some(found),
                    // An image holds the repository then.
                    Err(_) if repair.image.is_some() => {}
                    Err(fault) => return Ok(Err(fault)),
                }
            }
        }
        Ok(Self::looked_over(repair, checkout, options))
    }

    fn looked_over(mut repair: Repair, checkout: Option<Checkout>, options: &ConvertOptions) -> Result<Self, Fault> {
        let made = !repair.fixed_files.is_empty();
        let source = match &repair.bug {
            Some(bug) => patch::files("patch", bug, "bad_patch")?,
            None if made => Vec::new(),
            None if repair.patch.trim().is_empty() => {
                return Err(fault("empty_patch", "there is no patch: nothing is known to solve it"));
            }
            None => patch::files("patch", &repair.patch, "bad_patch")?,
        };
        if repair.test_patch.trim().is_empty() && repair.bug.is_none() && repair.test_files.is_empty() {
            let (program, tests) = patch::split(&source);
            if tests.is_empty() {
                return Err(fault(
                    "no_test_patch",
                    "no test is changed: nothing tells a solution from none",
                ));
            }
            repair.patch = program;
            repair.test_patch = tests;
        }
        let tests = match repair.test_patch.trim() {
            "" => Vec::new(),
            _ => patch::files("test_patch", &repair.test_patch, "bad_test_patch")?,
        };
        let source = match (&repair.bug, repair.patch.trim()) {
            (Some(_), _) => source,
            (None, "") if made => source,
            (None, "") => return Err(fault("tests_only", "only tests are changed: there is nothing to solve")),
            (None, _) => patch::files("patch", &repair.patch, "bad_patch")?,
        };
        let of_tests = patch::paths(&tests);
        if let Some(path) = patch::paths(&source).into_iter().find(|path| of_tests.contains(path)) {
            return Err(fault(
                "overlapping_patches",
                format!("`{path}` is changed by the solution and by its tests"),
            ));
        }
        let language = match &repair.language {
            Some(name) => language::named(name).ok_or_else(|| {
                fault(
                    "unknown_language",
                    format!(
                        "expected one of {}, found `{}`",
                        language::names().join(", "),
                        name.escape_debug()
                    ),
                )
            })?,
            None => language::of_files(&source)
                .or_else(|| language::of_files(&tests))
                .or_else(|| language::named("python").filter(|_| made))
                .ok_or_else(|| {
                    fault(
                        "unknown_language",
                        "no changed file tells the language; name it by the field `language`",
                    )
                })?,
        };
        let format = match &repair.log_parser {
            Some(parser) => language::format_of_parser(parser).ok_or_else(|| {
                fault(
                    "unknown_parser",
                    format!(
                        "field `log_parser`: no format of logs is called `{}`",
                        parser.escape_debug()
                    ),
                )
            })?,
            None => known_format(&repair, language),
        };
        if repair.image.is_none() && checkout.is_none() && options.offline {
            return Err(fault(
                "repo_not_in_cache",
                "no image holds the repository, and --offline allows no clone",
            ));
        }
        Ok(Self {
            repair,
            checkout,
            tests,
            language,
            format: format.to_owned(),
        })
    }

    /// The folder, not written yet.
    pub(super) fn folder(self, options: &ConvertOptions) -> Result<StagedFolder, Fault> {
        let repair = &self.repair;
        let workdir = repair.workdir.clone().unwrap_or_else(|| WORKDIR.to_owned());
        let instruction = instruction(repair, &workdir, &options.template, options.hints, options.allowed)?;
        let (mut before, mut new): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for file in &self.tests {
            if file.existed {
                before.push(file.old_path.as_deref().unwrap_or(&file.path));
            } else {
                new.push(&file.path);
            }
            if file.old_path.is_some() {
                new.push(&file.path);
            }
        }
        // Tests that no patch brings are there already, and are the verifier's too.
        let lists = || repair.fail_to_pass.iter().flatten().chain(&repair.pass_to_pass);
        let named = lists().filter_map(|test| test.split_once("::")).map(|(file, _)| file);
        before.extend(named.filter(|file| super::record::is_safe_path(file) && !new.contains(file)));
        before.sort_unstable();
        before.dedup();
        let commands = self.commands();
        let config = json!({
            "instance_id": repair.id,
            "repo": repair.repo,
            "base_commit": repair.base_commit,
            "version": repair.version,
            "language": self.language.name,
            "log_format": self.format,
            "test_command": commands,
            "FAIL_TO_PASS": repair.fail_to_pass,
            "PASS_TO_PASS": repair.pass_to_pass,
            "test_patch": repair.test_patch,
        });
        let lines = |items: &mut dyn Iterator<Item = &str>| items.flat_map(|item| [item, "\n"]).collect::<String>();
        let at = |text: &str| text.replace("@FOLDER@", &workdir);
        let mut files = vec![
            StagedFile::plain("task.toml", self.manifest(&workdir, options, &before, &new)),
            StagedFile::plain("instruction.md", instruction),
            StagedFile::plain(
                "environment/Dockerfile",
                dockerfile::text(repair, self.language, self.checkout.is_some(), &workdir, options),
            ),
            StagedFile::script("tests/test.sh", at(TEST_SH)),
            StagedFile::script(
                "tests/run.sh",
                format!("{}{}\n", activation(repair), commands.join("\n")),
            ),
            StagedFile::plain("tests/config.json", pretty(&config)),
            StagedFile::plain("tests/grade.awk", grade_awk().to_owned()),
            StagedFile::plain("tests/rules.tsv", log_rules(&self.format).unwrap_or_default()),
            StagedFile::plain(
                "tests/fail_to_pass.txt",
                lines(&mut repair.fail_to_pass.iter().flatten().map(String::as_str)),
            ),
            StagedFile::plain(
                "tests/pass_to_pass.txt",
                lines(&mut repair.pass_to_pass.iter().map(String::as_str)),
            ),
            StagedFile::plain("tests/files_before.txt", lines(&mut before.iter().copied())),
            StagedFile::plain("tests/files_new.txt", lines(&mut new.iter().copied())),
            StagedFile::plain("tests/test.patch", repair.test_patch.clone()),
            StagedFile::plain(
                "solution/solution.patch",
                repair.bug.as_ref().unwrap_or(&repair.patch).clone(),
            ),
            StagedFile::script(
                "solution/solve.sh",
                at(SOLVE_SH).replace("@REVERSE@", if repair.bug.is_some() { "-R " } else { "" }),
            ),
        ];
        files.extend(
            dockerfile::install_script(repair, activation(repair))
                .map(|text| StagedFile::plain("environment/install.sh", text)),
        );
        if let Some(bug) = &repair.bug {
            files.push(StagedFile::plain("environment/bug.patch", bug.clone()));
        }
        for (folder, contents) in [
            ("tests/files", &repair.test_files),
            ("solution/files", &repair.fixed_files),
        ] {
            files.extend(
                contents
                    .iter()
                    .map(|(path, content)| StagedFile::plain(&format!("{folder}/{path}"), content.clone())),
            );
        }
        let checkout = self.checkout.map(|checkout| StagedCheckout {
            checkout,
            to: "environment/files",
            copies: before.iter().map(|file| (*file).to_owned()).collect(),
            copies_to: "tests/base",
        });
        Ok(StagedFolder {
            name: repair.id.clone(),
            folders: &["tests"],
            files,
            checkout,
        })
    }

    fn commands(&self) -> Vec<String> {
        if !self.repair.test_commands.is_empty() {
            return self.repair.test_commands.clone();
        }
        let mut tests: Vec<&str> = self.tests.iter().map(|file| file.path.as_str()).collect();
        tests.extend(self.repair.test_files.keys().map(String::as_str));
        let lists = || {
            self.repair
                .fail_to_pass
                .iter()
                .flatten()
                .chain(&self.repair.pass_to_pass)
        };
        if self.tests.is_empty() {
            tests.extend(lists().filter_map(|test| test.split_once("::")).map(|(file, _)| file));
            tests.sort_unstable();
            tests.dedup();
        }
        vec![match (self.repair.repo.as_str(), self.format.as_str()) {
            ("django/django", _) => format!(
                "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {}",
                modules(&tests, "tests/").join(" ")
            ),
            ("sympy/sympy", _) => format!("bin/test -C --verbose {}", quoted_all(&tests)),
            (_, "unittest") => format!("python3 -m unittest -v {}", modules(&tests, "").join(" ")),
            (_, "jest") if self.repair.log_parser.as_deref() == Some("tap") => {
                format!("node --test --test-reporter=tap {}", quoted_all(&tests))
            }
            _ => self.language.command(&tests),
        }]
    }

    fn manifest(&self, workdir: &str, options: &ConvertOptions, before: &[&str], new: &[&str]) -> String {
        let repair = &self.repair;
        let mut metadata = toml::Table::new();
        let mut say = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                metadata.insert(key.to_owned(), value.into());
            }
        };
        say("data_source", Some(&repair.data_source));
        say("split", repair.split.as_deref());
        say("repo", Some(&repair.repo));
        say("base_commit", repair.base_commit.as_deref());
        say("language", Some(self.language.name));
        // The verifier's files are put back by who runs the task; the tests need no commit.
        metadata.insert("git_history".to_owned(), false.into());
        let mut owned: Vec<String> = before.iter().chain(new).map(|path| (*path).to_owned()).collect();
        owned.extend(repair.test_files.keys().cloned());
        owned.sort();
        owned.dedup();
        metadata.insert("verifier_files".to_owned(), owned.into());
        let section = |pairs: &[(&str, toml::Value)]| {
            toml::Value::Table(
                pairs
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), value.clone()))
                    .collect(),
            )
        };
        let table = toml::Table::from_iter([
            ("schema_version".to_owned(), "1.4".into()),
            (
                "task".to_owned(),
                section(&[("name", format!("lego/{}", repair.id).into())]),
            ),
            ("metadata".to_owned(), metadata.into()),
            ("agent".to_owned(), section(&[("timeout_sec", AGENT_SEC.into())])),
            ("verifier".to_owned(), section(&[("timeout_sec", TESTS_SEC.into())])),
            (
                "environment".to_owned(),
                section(&[
                    ("build_timeout_sec", TESTS_SEC.into()),
                    ("network_mode", options.network.name().into()),
                    ("workdir", workdir.into()),
                ]),
            ),
        ]);
        // A table of texts, numbers and truth values always has a form.
        toml::to_string(&table).unwrap_or_default()
    }
}

/// The format of the logs of a repository that is known by its name, else the language's own.
fn known_format(repair: &Repair, language: &Language) -> &'static str {
    match repair.repo.as_str() {
        "django/django" => "unittest",
        "sympy/sympy" => "sympy",
        _ if repair.test_commands.iter().any(|command| command.contains("unittest")) => "unittest",
        _ => language.format,
    }
}

/// Images of data sets keep their Python in an environment that has to be entered.
fn activation(repair: &Repair) -> &'static str {
    if repair.image.is_none() {
        return "";
    }
    "if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate && conda activate testbed; fi\n\
     if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi\n"
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn quoted_all(paths: &[&str]) -> String {
    paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" ")
}

/// Python modules of test files.
fn modules(paths: &[&str], below: &str) -> Vec<String> {
    let mut found: Vec<String> = paths
        .iter()
        .filter_map(|path| path.strip_suffix(".py"))
        .map(|path| path.strip_prefix(below).unwrap_or(path))
        .map(|path| quoted(&path.trim_end_matches("/__init__").replace('/', ".")))
        .collect();
    found.sort();
    found.dedup();
    found
}

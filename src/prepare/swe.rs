//! A repair: what every family of repository tasks comes down to. Fields of each family by name; nothing is written.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::family::Family;
use super::fields::Fields;
use super::record::{Fault, fault, safe_id, safe_paths};

/// A change to a repository that a task asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Repair {
    pub(super) id: String,
    /// `owner/name`.
    pub(super) repo: String,
    /// Where it is cloned from, if that is not the usual host.
    pub(super) clone_url: Option<String>,
    pub(super) base_commit: Option<String>,
    /// Commit that holds the change, where only a repository has it.
    pub(super) fix_commit: Option<String>,
    /// Whether that commit is on the main branch, so that its first parent is the base.
    pub(super) fix_is_merge: bool,
    pub(super) statement: String,
    pub(super) hints: Option<String>,
    /// What solves it; tests may be among it.
    pub(super) patch: String,
    pub(super) test_patch: String,
    /// What breaks the image's repository first: the bug is then made by it, and `patch` is empty.
    pub(super) bug: Option<String>,
    /// `None` where the record does not know: then every test of the command counts.
    pub(super) fail_to_pass: Option<Vec<String>>,
    pub(super) pass_to_pass: Vec<String>,
    pub(super) version: Option<String>,
    pub(super) image: Option<String>,
    pub(super) workdir: Option<String>,
    /// Commands that set the repository up in its image.
    pub(super) install: Vec<String>,
    /// Commands that run the tests.
    pub(super) test_commands: Vec<String>,
    pub(super) log_parser: Option<String>,
    pub(super) language: Option<String>,
    pub(super) language_version: Option<String>,
    /// Files of tests that come as they are, by their path in the repository.
    pub(super) test_files: BTreeMap<String, String>,
    /// Files of the solution that come as they are.
    pub(super) fixed_files: BTreeMap<String, String>,
    pub(super) data_source: String,
    pub(super) split: Option<String>,
}

impl Repair {
    /// Reads a record of a family; also gives the fields that are not read.
    pub(super) fn of(family: Family, object: Map<String, Value>) -> Result<(Self, Vec<String>), Fault> {
        let mut fields = Fields::of(object);
        let mut repair = match family {
            Family::MultiSweBench => multi(&mut fields)?,
            Family::R2e => r2e(&mut fields)?,
            _ => usual(family, &mut fields)?,
        };
        repair.data_source = fields
            .text(&["data_source", "dataset"])?
            .unwrap_or_else(|| family.name().to_owned());
        repair.split = fields.text(&["split"])?;
        repair.check()?;
        Ok((repair, fields.ignored()))
    }

    /// What is wrong with it whatever its family.
    pub(super) fn check(&self) -> Result<(), Fault> {
        safe_id(&self.id)?;
        check_repo(&self.repo)?;
        for (field, commit) in [
            ("base_commit", &self.base_commit),
            ("merge_commit_sha", &self.fix_commit),
        ] {
            if let Some(commit) = commit.as_ref().filter(|commit| !is_commit(commit)) {
                return Err(fault(
                    "bad_commit",
                    format!(
                        "field `{field}`: expected 7 to 64 hexadecimal digits, found `{}`",
                        commit.escape_debug()
                    ),
                ));
            }
        }
        if self.base_commit.is_none() && self.image.is_none() {
            return Err(fault(
                "missing_field",
                "field `base_commit` is missing, and no image is named that holds the repository",
            ));
        }
        if let Some(image) = self.image.as_ref().filter(|image| !is_image(image)) {
            return Err(fault(
                "bad_image",
                format!("`{}` is no name of an image", image.escape_debug()),
            ));
        }
        if let Some(folder) = self.workdir.as_ref().filter(|folder| !is_folder(folder)) {
            return Err(fault(
                "bad_workdir",
                format!("`{}` is no absolute path", folder.escape_debug()),
            ));
        }
        if self.statement.contains('\0') {
            return Err(fault("nul_in_text", "field `problem_statement` holds a NUL"));
        }
        if let Some(version) = self.language_version.as_ref().filter(|version| !is_tag(version)) {
            return Err(fault(
                "bad_version",
                format!("`{}` is no version", version.escape_debug()),
            ));
        }
        safe_paths("test_files", &self.test_files)?;
        safe_paths("file_diffs", &self.fixed_files)?;
        self.check_lists()
    }

    fn check_lists(&self) -> Result<(), Fault> {
        let Some(fail_to_pass) = &self.fail_to_pass else {
            return Ok(());
        };
        if fail_to_pass.is_empty() {
            return Err(fault(
                "no_failing_test",
                "`FAIL_TO_PASS` is empty: nothing tells a solution from none",
            ));
        }
        let all = || fail_to_pass.iter().chain(&self.pass_to_pass);
        if let Some(name) = all().find(|name| name.trim().is_empty() || name.contains(['\n', '\r', '\0'])) {
            return Err(fault(
                "bad_test_name",
                format!("`{}` is no name of a test", name.escape_debug()),
            ));
        }
        let pass: std::collections::HashSet<&String> = self.pass_to_pass.iter().collect();
        if let Some(name) = fail_to_pass.iter().find(|name| pass.contains(name)) {
            return Err(fault(
                "contradictory_lists",
                format!("the test `{name}` is in FAIL_TO_PASS and in PASS_TO_PASS"),
            ));
        }
        Ok(())
    }
}

/// SWE-bench and the families that add to its fields.
fn usual(family: Family, fields: &mut Fields) -> Result<Repair, Fault> {
    let id = fields.needed(&["instance_id"])?;
    let config = fields.table(&["install_config"])?.unwrap_or_default();
    let mut config = Fields::of(config);
    let patch = fields.needed(&["patch", "gold_patch", "golden_patch"])?;
    let smith = family == Family::SweSmith;
    let mut install = Vec::new();
    for names in [["pre_install", "pre_install"], ["install", "rebuild_cmds"]] {
        install.extend(config.list(&names, true)?.unwrap_or_default());
    }
    let packages = config.list(&["pip_packages"], true)?.unwrap_or_default();
    if !packages.is_empty() {
        let packages: Vec<String> = packages
            .iter()
            .map(|package| super::language::quoted(package))
            .collect();
        install.push(format!("python3 -m pip install {}", packages.join(" ")));
    }
    install.extend(
        fields
            .list(&["install", "rebuild_cmds", "before_repo_set_cmd"], true)?
            .unwrap_or_default(),
    );
    let test_commands = match config.list(&["test_cmd", "test_cmds"], true)? {
        Some(commands) => commands,
        None => fields
            .list(&["test_cmd", "test_cmds", "test_command"], true)?
            .unwrap_or_default(),
    };
    let pass_to_pass = fields
        .list(&["PASS_TO_PASS", "pass_to_pass"], false)?
        .unwrap_or_default();
    let fail_to_pass = fields.list(&["FAIL_TO_PASS", "fail_to_pass"], false)?;
    let fail_to_pass = match (fail_to_pass, smith || family == Family::SweBench) {
        (None, true) => {
            return Err(fault("missing_field", "field `FAIL_TO_PASS` is missing"));
        }
        (tests, _) => tests,
    };
    let log_parser = match config.text(&["log_parser"])? {
        Some(name) => Some(name),
        None => fields.text(&["log_parser"])?,
    };
    let mut repair = Repair {
        repo: fields.needed(&["repo"])?,
        clone_url: fields.text(&["clone_url", "repo_url"])?,
        base_commit: fields.text(&["base_commit"])?,
        statement: fields.needed(&["problem_statement"])?,
        hints: fields.text(&["hints_text"])?,
        test_patch: fields.text(&["test_patch"])?.unwrap_or_default(),
        image: given_image(family, fields, &mut config, &id)?,
        version: fields.text(&["version"])?,
        language: match fields.text(&["language", "repo_language"])? {
            Some(language) => Some(language),
            None => config.text(&["language"])?,
        },
        language_version: config.text(&["python"])?,
        workdir: fields.text(&["workdir"])?,
        fail_to_pass,
        pass_to_pass,
        install,
        test_commands,
        log_parser,
        id,
        ..Repair::default()
    };
    fields.skip(&["created_at"]);
    if family == Family::SweBenchPro {
        for extra in ["requirements", "interface"] {
            if let Some(text) = fields.text(&[extra])?.filter(|text| !text.trim().is_empty()) {
                repair.statement = format!("{}\n\n{}", repair.statement.trim_end(), text.trim());
            }
        }
    }
    if smith {
        repair.bug = Some(patch);
    } else {
        repair.patch = patch;
    }
    if repair.workdir.is_none() && repair.image.is_some() {
        repair.workdir = match family {
            Family::SweBenchPro => Some("/app".to_owned()),
            _ => Some("/testbed".to_owned()),
        };
    }
    Ok(repair)
}

/// The image that the record names, or its family's own for it.
fn given_image(family: Family, fields: &mut Fields, config: &mut Fields, id: &str) -> Result<Option<String>, Fault> {
    let named = match fields.text(&["image_name", "docker_image", "image"])? {
        Some(image) => Some(image),
        None => config.text(&["image_name", "docker_image"])?,
    };
    let tag = fields.text(&["dockerhub_tag"])?;
    if named.as_ref().is_some_and(|name| !name.trim().is_empty()) {
        return Ok(named);
    }
    let known = |name: &str| format!("{name}.{}", id.to_lowercase().replace("__", "_1776_"));
    // Only the benchmark's own records name it: they have images, and commands that are not in the record.
    let own = fields
        .text(&["environment_setup_commit"])?
        .is_some_and(|commit| !commit.is_empty());
    Ok(match family {
        Family::SweBench if own => Some(known("swebench/sweb.eval.x86_64")),
        Family::SweBenchLive => Some(known("starryzhang/sweb.eval.x86_64")),
        Family::SweBenchPro => tag.map(|tag| format!("jefzda/sweap-images:{tag}")),
        _ => None,
    })
}

/// Multi-SWE-bench: a pull request with its issues.
fn multi(fields: &mut Fields) -> Result<Repair, Fault> {
    let (org, repo) = (fields.needed(&["org"])?, fields.needed(&["repo"])?);
    let number = fields.needed(&["number"])?;
    let base = fields.table(&["base"])?.unwrap_or_default();
    let mut issues = Vec::new();
    for issue in fields.objects("resolved_issues")? {
        let mut issue = Fields::of(issue);
        let title = issue.text(&["title"])?.unwrap_or_default();
        let body = issue.text(&["body"])?.unwrap_or_default();
        issues.push(format!("{}\n\n{}", title.trim(), body.trim()).trim().to_owned());
    }
    if issues.iter().all(String::is_empty) {
        return Err(fault(
            "no_issue",
            "field `resolved_issues` holds no text: there is nothing to tell an agent",
        ));
    }
    let mut fail_to_pass = Vec::new();
    for names in [["f2p_tests"], ["s2p_tests"], ["n2p_tests"]] {
        fail_to_pass.extend(fields.list(&names, false)?.unwrap_or_default());
    }
    let lower = format!("{}_m_{}", org.to_lowercase(), repo.to_lowercase());
    let id = fields
        .text(&["instance_id"])?
        .unwrap_or_else(|| format!("{org}__{repo}-{number}"));
    Ok(Repair {
        id: id.replace([':', '/'], "__"),
        statement: issues.join("\n\n"),
        patch: fields.needed(&["fix_patch"])?,
        test_patch: fields.text(&["test_patch"])?.unwrap_or_default(),
        base_commit: base.get("sha").and_then(Value::as_str).map(str::to_owned),
        image: Some(format!("mswebench/{lower}:pr-{number}")),
        workdir: Some(format!("/home/{repo}")),
        pass_to_pass: fields.list(&["p2p_tests"], false)?.unwrap_or_default(),
        fail_to_pass: Some(fail_to_pass),
        language: fields.text(&["language"])?,
        test_commands: fields.list(&["test_cmd"], true)?.unwrap_or_default(),
        repo: format!("{org}/{repo}"),
        ..Repair::default()
    })
}

/// R2E-Gym: an image, files of tests, and how each of their tests is to end.
fn r2e(fields: &mut Fields) -> Result<Repair, Fault> {
    let name = fields.needed(&["repo_name", "repo"])?;
    let commit = fields.needed(&["commit_hash", "new_commit_hash"])?;
    let expected = fields.table(&["expected_output_json"])?.unwrap_or_default();
    let passing = expected.iter().filter(|(_, status)| status.as_str() == Some("PASSED"));
    let mut repair = Repair {
        id: fields
            .text(&["instance_id"])?
            .unwrap_or_else(|| format!("{name}-{}", commit.get(..12).unwrap_or(&commit))),
        repo: if name.contains('/') {
            name.clone()
        } else {
            format!("r2e/{name}")
        },
        statement: fields.needed(&["problem_statement"])?,
        image: Some(fields.needed(&["docker_image"])?),
        workdir: Some("/testbed".to_owned()),
        language: Some("python".to_owned()),
        fail_to_pass: Some(passing.map(|(name, _)| name.clone()).collect()),
        test_commands: vec!["python3 -m pytest -rA r2e_tests".to_owned()],
        ..Repair::default()
    };
    let result = fields.table(&["execution_result_content"])?.unwrap_or_default();
    let mut result = Fields::of(result);
    let names = result.list(&["test_file_names"], true)?.unwrap_or_default();
    let codes = result.list(&["test_file_codes"], true)?.unwrap_or_default();
    if names.is_empty() || names.len() != codes.len() {
        return Err(fault(
            "no_tests",
            format!(
                "`execution_result_content` names {} test files and holds {}",
                names.len(),
                codes.len()
            ),
        ));
    }
    let placed = names.into_iter().map(|name| format!("r2e_tests/{name}"));
    repair.test_files = placed.zip(codes).collect();
    let parsed = fields.table(&["parsed_commit_content"])?.unwrap_or_default();
    for file in Fields::of(parsed).objects("file_diffs")? {
        let path = file.get("header").and_then(|header| header["file"]["path"].as_str());
        let content = file.get("new_file_content").and_then(Value::as_str);
        if let (Some(path), Some(content)) = (path, content)
            && !super::patch::is_test_path(path)
        {
            repair.fixed_files.insert(path.to_owned(), content.to_owned());
        }
    }
    if repair.fixed_files.is_empty() {
        return Err(fault(
            "empty_patch",
            "`parsed_commit_content` changes no file of the program",
        ));
    }
    Ok(repair)
}

pub(super) fn check_repo(repo: &str) -> Result<(), Fault> {
    let fits = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    match repo.split_once('/') {
        Some((owner, name)) if fits(owner) && fits(name) => Ok(()),
        _ => Err(fault(
            "bad_repo",
            format!("field `repo`: expected `owner/name`, found `{}`", repo.escape_debug()),
        )),
    }
}

pub(super) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn is_image(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    !name.is_empty()
        && name.len() <= 500
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(fits)
}

fn is_tag(version: &str) -> bool {
    !version.is_empty()
        && version
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn is_folder(path: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    path.starts_with('/') && path.len() > 1 && path.chars().all(fits) && !path.split('/').any(|part| part == "..")
}

//! Plain exports of issues and pull requests: in one record, or in records of their own that name each other.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::fields::Fields;
use super::record::{Fault, fault};
use super::swe::Repair;

/// Issues and pull requests of a source, until all of them are known.
#[derive(Debug, Default)]
pub(super) struct Exports {
    issues: BTreeMap<(String, u64), Issue>,
    pulls: Vec<(usize, Pull)>,
}

#[derive(Debug)]
struct Issue {
    line: usize,
    title: String,
    body: String,
    hints: String,
    closed: bool,
}

#[derive(Debug)]
struct Pull {
    repo: String,
    number: u64,
    links: Vec<u64>,
    repair: Repair,
}

/// What became of one record of an export: its line, its id, and a repair or why there is none.
pub(super) type Paired = (usize, Option<String>, Result<Repair, Fault>);

impl Exports {
    /// Takes a record.
    pub(super) fn take(&mut self, line: usize, object: Map<String, Value>) -> Result<(), Fault> {
        let nested = |name: &str| object.get(name).and_then(Value::as_object).cloned();
        let pull = nested("pull_request").filter(|pull| pull.contains_key("base"));
        if let Some(pull) = pull {
            let issue = nested("issue").unwrap_or_else(|| object.clone());
            // What stands beside both belongs to the pull request.
            let mut whole = pull;
            for (key, value) in &object {
                whole.entry(key.clone()).or_insert_with(|| value.clone());
            }
            let mut pull = read_pull(whole)?;
            let (repo, number, issue) = read_issue(line, issue, Some(&pull.repo))?;
            pull.links = vec![number];
            self.issues.insert((repo, number), issue);
            self.pulls.push((line, pull));
        } else if object.get("base").is_some_and(Value::is_object) {
            self.pulls.push((line, read_pull(object)?));
        } else if object.get("pull_request").is_some_and(Value::is_object) {
            // Lists of issues hold pull requests too, without what makes them one.
            return Err(fault(
                "no_base",
                "a pull request without `base`: export it from the list of pull requests",
            ));
        } else {
            let (repo, number, issue) = read_issue(line, object, None)?;
            self.issues.insert((repo, number), issue);
        }
        Ok(())
    }

    /// Pairs what was taken, in the order of the lines.
    pub(super) fn pairs(self) -> Vec<Paired> {
        let Self { mut issues, pulls } = self;
        let mut paired: Vec<Paired> = Vec::new();
        for (line, pull) in pulls {
            let id = format!("{}-{}", pull.repo.replace('/', "__"), pull.number);
            let mut texts = Vec::new();
            let mut hints = Vec::new();
            for number in &pull.links {
                if let Some(issue) = issues.get_mut(&(pull.repo.clone(), *number)) {
                    issue.closed = true;
                    texts.push(format!("{}\n\n{}", issue.title, issue.body).trim().to_owned());
                    hints.push(issue.hints.clone());
                }
            }
            let repair = if texts.is_empty() {
                let links = pull
                    .links
                    .iter()
                    .map(|number| format!("#{number}"))
                    .collect::<Vec<_>>()
                    .join(", ");
                let what = if links.is_empty() {
                    "names no issue that it closes".to_owned()
                } else {
                    format!("closes {links}, which the export does not hold")
                };
                Err(fault(
                    "no_issue",
                    format!(
                        "pull request {} of {} {what}: there is nothing to tell an agent",
                        pull.number, pull.repo
                    ),
                ))
            } else {
                hints.retain(|hint| !hint.is_empty());
                Ok(Repair {
                    id: id.clone(),
                    statement: texts.join("\n\n"),
                    hints: (!hints.is_empty()).then(|| hints.join("\n\n")),
                    data_source: "github".to_owned(),
                    ..pull.repair
                })
            };
            paired.push((
                line,
                Some(id),
                repair.and_then(|repair| repair.check().map(|()| repair)),
            ));
        }
        for ((repo, number), issue) in issues {
            if !issue.closed {
                let why = fault(
                    "no_pull_request",
                    format!("no pull request of the export closes issue {number} of {repo}"),
                );
                paired.push((
                    issue.line,
                    Some(format!("{}-{number}", repo.replace('/', "__"))),
                    Err(why),
                ));
            }
        }
        paired.sort_by_key(|(line, _, _)| *line);
        paired
    }
}

static CLOSES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(?:https?://\S+/issues/|[\w.-]+/[\w.-]+#|#|gh-)(\d+)",
    )
    .ok()
});

/// Numbers of issues that a text says it closes.
fn closes(text: &str) -> Vec<u64> {
    let Some(pattern) = CLOSES.as_ref() else {
        return Vec::new();
    };
    let mut found: Vec<u64> = pattern
        .captures_iter(text)
        .filter_map(|found| found[1].parse().ok())
        .collect();
    found.dedup();
    found
}

fn number(fields: &mut Fields) -> Result<u64, Fault> {
    let text = fields.needed(&["number"])?;
    text.parse().map_err(|_| {
        fault(
            "wrong_type",
            format!(
                "field `number`: expected a whole number, found `{}`",
                text.escape_debug()
            ),
        )
    })
}

/// `owner/name` out of an address of an issue or of a repository.
fn repo_of_url(url: &str) -> Option<String> {
    let rest = url
        .split("/repos/")
        .nth(1)
        .or_else(|| url.split("://").nth(1)?.split_once('/').map(|(_, path)| path))?;
    let mut parts = rest.split('/');
    Some(format!("{}/{}", parts.next()?, parts.next()?))
}

fn read_issue(line: usize, object: Map<String, Value>, repo: Option<&str>) -> Result<(String, u64, Issue), Fault> {
    let mut fields = Fields::of(object);
    let number = number(&mut fields)?;
    let full = fields
        .table(&["repository"])
        .ok()
        .flatten()
        .and_then(|table| table.get("full_name")?.as_str().map(str::to_owned));
    let url = fields.text(&["repository_url", "html_url", "url"])?;
    let repo = match repo {
        Some(repo) => repo.to_owned(),
        None => match fields.text(&["repo"]).ok().flatten().or(full) {
            Some(repo) => repo,
            None => url.as_deref().and_then(repo_of_url).ok_or_else(|| {
                fault(
                    "missing_field",
                    "an issue without `repo`, `repository_url` or `html_url`",
                )
            })?,
        },
    };
    let title = fields.needed(&["title"])?;
    let body = fields.text(&["body"])?.unwrap_or_default();
    let comments = fields.objects("comments").unwrap_or_default();
    let hints: Vec<String> = comments
        .iter()
        .filter_map(|comment| comment.get("body")?.as_str().map(|text| text.trim().to_owned()))
        .collect();
    let issue = Issue {
        line,
        title: title.trim().to_owned(),
        body: body.trim().to_owned(),
        hints: hints.join("\n\n"),
        closed: false,
    };
    Ok((repo, number, issue))
}

fn read_pull(object: Map<String, Value>) -> Result<Pull, Fault> {
    let merged = object.get("merged_at").is_some_and(Value::is_string)
        || object.get("merged").is_some_and(|merged| *merged == Value::Bool(true));
    let says = object.contains_key("merged_at") || object.contains_key("merged");
    let mut fields = Fields::of(object);
    let number = number(&mut fields)?;
    if says && !merged {
        return Err(fault("not_merged", format!("pull request {number} was not merged")));
    }
    let base = fields.table(&["base"])?.unwrap_or_default();
    let head = fields.table(&["head"])?.unwrap_or_default();
    let of = |table: &Map<String, Value>, path: &[&str]| {
        let mut value = table.get(path[0])?;
        for key in &path[1..] {
            value = value.get(key)?;
        }
        value.as_str().map(str::to_owned)
    };
    let url = fields.text(&["html_url", "url"])?;
    let repo = fields
        .text(&["repo"])
        .ok()
        .flatten()
        .or_else(|| of(&base, &["repo", "full_name"]))
        .or_else(|| url.as_deref().and_then(repo_of_url))
        .ok_or_else(|| {
            fault(
                "missing_field",
                "a pull request without `repo`, `base.repo.full_name` or `html_url`",
            )
        })?;
    let text = format!(
        "{}\n{}",
        fields.text(&["title"])?.unwrap_or_default(),
        fields.text(&["body"])?.unwrap_or_default()
    );
    let linked = fields
        .list(&["linked_issues", "closing_issues"], false)
        .ok()
        .flatten()
        .unwrap_or_default();
    let mut links: Vec<u64> = linked
        .iter()
        .filter_map(|number| number.trim_start_matches('#').parse().ok())
        .collect();
    links.extend(closes(&text));
    let mut test_commands = fields.list(&["test_cmd", "test_cmds"], true)?.unwrap_or_default();
    test_commands.retain(|command| !command.trim().is_empty());
    let merge = fields.text(&["merge_commit_sha"])?;
    let repair = Repair {
        repo: repo.clone(),
        clone_url: fields
            .text(&["clone_url"])?
            .or_else(|| of(&base, &["repo", "clone_url"])),
        base_commit: of(&base, &["sha"]),
        fix_commit: merge.clone().or_else(|| of(&head, &["sha"])),
        fix_is_merge: merge.is_some(),
        patch: fields
            .text(&["diff", "patch", "diff_text", "fix_patch"])?
            .unwrap_or_default(),
        language: fields.text(&["language"])?,
        language_version: fields.text(&["language_version"])?,
        image: fields.text(&["image_name", "docker_image"])?,
        install: fields.list(&["install"], true)?.unwrap_or_default(),
        log_parser: fields.text(&["log_parser"])?,
        test_commands,
        ..Repair::default()
    };
    Ok(Pull {
        repo,
        number,
        links,
        repair,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn take(exports: &mut Exports, line: usize, value: &Value) -> Result<(), &'static str> {
        exports
            .take(line, value.as_object().unwrap().clone())
            .map_err(|fault| fault.reason)
    }

    #[test]
    fn issues_meet_the_pull_requests_that_close_them() {
        let mut exports = Exports::default();
        let issue = |number: u64| json!({"number": number, "title": "Adds wrongly", "body": "2+2=5", "repository_url": "https://api.host/repos/o/n"});
        let sha = "0123456789012345678901234567890123456789";
        let pull = |number: u64, body: &str| {
            json!({"number": number, "title": "Mend", "body": body, "base": {"sha": sha, "repo": {"full_name": "o/n"}},
                   "head": {"sha": sha}, "diff": "d", "merged_at": "2026-01-01T00:00:00Z"})
        };
        take(&mut exports, 1, &issue(3)).unwrap();
        take(&mut exports, 2, &issue(4)).unwrap();
        take(&mut exports, 3, &pull(7, "Fixes #3, and prefixes #4")).unwrap();
        take(&mut exports, 4, &pull(8, "No issue")).unwrap();
        let mut open = pull(9, "closes #4");
        open["merged_at"] = Value::Null;
        assert_eq!(take(&mut exports, 5, &open), Err("not_merged"));
        let paired = exports.pairs();
        let said: Vec<_> = paired
            .iter()
            .map(|(line, id, repair)| {
                (
                    *line,
                    id.clone().unwrap(),
                    repair
                        .as_ref()
                        .map_err(|fault| fault.reason)
                        .map(|r| r.statement.clone()),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                (2, "o__n-4".to_owned(), Err("no_pull_request")),
                (3, "o__n-7".to_owned(), Ok("Adds wrongly\n\n2+2=5".to_owned())),
                (4, "o__n-8".to_owned(), Err("no_issue")),
            ]
        );
    }

    #[test]
    fn words_that_close_an_issue() {
        assert_eq!(
            closes("Fixes #12. resolves o/n#13; closed https://h/o/n/issues/14"),
            [12, 13, 14]
        );
        assert_eq!(closes("see #12, prefix #13"), Vec::<u64>::new());
    }
}

//! The arguments of `lego prepare`, and what they mean to the library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lego::prepare::{
    Allowed, Combine, ConvertOptions, Family, IndexOptions, Split, TEMPLATE, TaskNetwork, index_fields,
};
use lego::task::Expression;

use crate::failure::Failure;
use crate::output::FormatArg;

const EXAMPLES: &str = "\
Examples:
  lego prepare issues.jsonl
  lego prepare issues.jsonl -o data/tasks --index data/train.parquet --strict
  lego prepare export.jsonl --repo-cache repos --stage convert,index,validate --backend docker
  lego prepare -o data/tasks --stage build --backend docker --jobs 8 --push registry.example.com:5000/team
  lego prepare -o data/tasks --stage filter --attempts 4 --where 'pass_rate > 0 && pass_rate < 1' --policy http://host:8000/v1
  lego prepare issues.jsonl | jq -r 'select(.status==\"rejected\").reason' | sort | uniq -c
  lego prepare index tasks -o tasks.parquet --split val=0.1 --exclude-index eval.parquet";

/// Turn issues and datasets into task folders and an index
///
/// Reads records of repositories (SWE-bench and its kin, SWE-smith, SWE-rebench, Multi-SWE-bench, R2E, exports of issues and
/// pull requests) and records with their files inline. One that cannot be used is listed with its line and reason in
/// `rejected.jsonl` and the others go on. Folders that are there stay as they are.
///
/// `--stage build` makes the images of all tasks, under the names that trials ask for; what does not build is listed like that,
/// too. With `--push` it brings what was built to a registry, for clusters, which build nothing. `--stage validate` tries every task without its solution and with it: those that are no tasks are listed with what was
/// seen in `invalid.jsonl`. `--stage filter` has a policy try them, and keeps those that `--where` describes. All go on
/// where they were stopped.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct PrepareArgs {
    #[command(subcommand)]
    pub(super) only: Option<Only>,
    /// Records: JSON lines, a JSON array, Parquet, or `-` for stdin; none where no stage converts
    #[arg(value_name = "SOURCE")]
    pub(crate) source: Option<PathBuf>,
    /// Folder for the tasks
    #[arg(short, long, value_name = "DIR", default_value = "tasks")]
    pub(crate) out: PathBuf,
    /// The index of all tasks in the folder; absent: `index.parquet` in it
    #[arg(long, value_name = "FILE")]
    pub(super) index: Option<PathBuf>,
    /// What is done, in this order
    #[arg(long = "stage", value_enum, value_delimiter = ',', value_name = "STAGE,…", default_values = ["convert", "index"])]
    pub(crate) stages: Vec<StageName>,
    /// Write over task folders that exist
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Exit with 1 if any record was rejected, or any task is none
    #[arg(long)]
    pub(super) strict: bool,
    #[command(flatten)]
    pub(super) convert: ConvertArgs,
    #[command(flatten)]
    pub(super) select: SelectArgs,
    #[command(flatten)]
    pub(crate) build: BuildArgs,
    #[command(flatten)]
    pub(crate) trials: TrialArgs,
    #[command(flatten)]
    pub(crate) format: FormatArg,
}

/// A stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StageName {
    /// Records to task folders
    Convert,
    /// Task folders to an index
    Index,
    /// Makes the images of all tasks
    Build,
    /// Tries every task without its solution and with it
    Validate,
    /// Has a policy try every task
    Filter,
}

/// How records are converted.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Records")]
pub(super) struct ConvertArgs {
    /// Read all records as this family, whatever their fields
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Show agents the hints of the records
    #[arg(long)]
    hints: bool,
    #[expect(clippy::doc_markdown, reason = "the fields as they are written in the file")]
    /// What agents are told: a file with {problem_statement}, {hints}, {repo}, {workdir} and {version}
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// What the text of a record may give away of its solution: `patch`, `commit`, `tests`
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,…")]
    allow_leaks: Vec<Leak>,
    /// Folder with repositories (mirrors, clones, bundles): tasks then hold their files, and nothing is cloned
    #[arg(long, value_name = "DIR")]
    repo_cache: Option<PathBuf>,
    /// Reject records whose repository neither the cache nor an image holds
    #[arg(long)]
    offline: bool,
    /// Base image for a language, in place of the usual and of the records' own; can be repeated
    #[arg(long, value_name = "LANGUAGE=IMAGE")]
    base_image: Vec<String>,
    /// What the tasks reach while they are worked on and judged
    #[arg(long, value_enum, value_name = "WHAT", default_value = "none")]
    network: NetworkArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Leak {
    /// Lines of the solution
    Patch,
    /// The commit that holds it
    Commit,
    /// Names of tests that are to pass
    Tests,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum NetworkArg {
    /// Nothing but the model
    None,
    /// Everything
    Public,
}

/// Which tasks the index holds.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Index")]
pub(crate) struct SelectArgs {
    /// Keep tasks that fit, such as `pass_rate > 0 && pass_rate < 1`
    #[arg(long = "where", value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Leave out tasks of these ids, one a line
    #[arg(long, value_name = "FILE")]
    exclude: Vec<PathBuf>,
    /// Leave out tasks of this index, and those that resemble one of it
    #[arg(long, value_name = "INDEX")]
    exclude_index: Vec<PathBuf>,
    /// Share of common word sequences from which tasks resemble each other
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    resemblance: f64,
    /// A split of a share of the tasks, by whole repositories, or of the ids in a file; the rest is `train`; can be repeated
    #[arg(long, value_name = "NAME=SHARE|FILE")]
    split: Vec<String>,
    /// Decides which repositories a share takes
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Keep tasks that validation refused
    #[arg(long)]
    keep_invalid: bool,
}

/// What becomes of images.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Images")]
pub(crate) struct BuildArgs {
    /// Push what `build` builds to this registry, as `REGISTRY/<task id, lower-cased>`: `sandbox.registry = "REGISTRY/"` finds it
    #[arg(long, value_name = "REGISTRY")]
    pub(crate) push: Option<String>,
}

/// How tasks are tried.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Trials")]
pub(crate) struct TrialArgs {
    /// Run config with sandboxes, agent and policy
    #[arg(long, value_name = "RUN.TOML")]
    pub(crate) run: Option<PathBuf>,
    /// Set a key above it, such as `--set sandbox.timeouts.verifier=5m`; can be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// What provides the sandboxes (`sandbox.backend`)
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Trials at a time (`sandbox.concurrency`); tasks whose images `build` makes at a time, 4 where it is absent
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Times that `validate` tries a task without its solution, and with it
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    /// Times that `filter` has the policy try a task
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
    /// The policy that `filter` asks: the address of an API, a folder, or `hf:org/name`; absent: what the run config says
    #[arg(long, value_name = "URL|DIR")]
    pub(crate) policy: Option<String>,
}

/// One stage alone.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Only {
    Index(IndexArgs),
}

/// Write an index of task folders and of other indexes
#[derive(Debug, clap::Args)]
pub(super) struct IndexArgs {
    /// Task folders, folders of them, or indexes
    #[arg(value_name = "DIR|INDEX", required = true)]
    pub(super) folders: Vec<PathBuf>,
    /// The index
    #[arg(short, long, value_name = "FILE", default_value = "tasks.parquet")]
    pub(super) out: PathBuf,
    /// How several become one
    #[arg(long, value_enum, value_name = "HOW", default_value = "union")]
    pub(super) combine: CombineArg,
    #[command(flatten)]
    pub(super) select: SelectArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CombineArg {
    /// Tasks of any
    Union,
    /// Tasks of all
    Intersection,
}

impl PrepareArgs {
    pub(super) fn has(&self, stage: StageName) -> bool {
        self.stages.contains(&stage)
    }

    pub(super) fn convert_options(&self) -> Result<ConvertOptions, Failure> {
        let args = &self.convert;
        let family = args.family.as_deref().map(|name| {
            Family::by_name(name).ok_or_else(|| {
                Failure::usage(format!(
                    "--family: expected one of {}, found `{name}`",
                    Family::names().join(", ")
                ))
            })
        });
        let mut base_images = BTreeMap::new();
        for pair in &args.base_image {
            let known = ConvertOptions::languages();
            match pair.split_once('=') {
                Some((language, image)) if known.contains(&language) && !image.is_empty() => {
                    base_images.insert(language.to_owned(), image.to_owned());
                }
                _ => {
                    return Err(Failure::usage(format!(
                        "--base-image: expected LANGUAGE=IMAGE with a language of {}, found `{pair}`",
                        known.join(", ")
                    )));
                }
            }
        }
        let template = match &args.template {
            Some(path) => fs_err::read_to_string(path)
                .map_err(|error| Failure::usage("the template cannot be read").source(error))?,
            None => TEMPLATE.to_owned(),
        };
        if !template.contains("{problem_statement}") {
            return Err(Failure::usage(
                "the template does not hold {problem_statement}: agents would not be told the issue",
            ));
        }
        Ok(ConvertOptions {
            overwrite: self.overwrite,
            family: family.transpose()?,
            template,
            hints: args.hints,
            allowed: Allowed {
                patch: args.allow_leaks.contains(&Leak::Patch),
                commit: args.allow_leaks.contains(&Leak::Commit),
                tests: args.allow_leaks.contains(&Leak::Tests),
            },
            repo_cache: args.repo_cache.clone(),
            offline: args.offline,
            base_images,
            network: match args.network {
                NetworkArg::None => TaskNetwork::None,
                NetworkArg::Public => TaskNetwork::Public,
            },
        })
    }
}

impl SelectArgs {
    pub(super) fn options(&self, combine: Combine) -> Result<IndexOptions, Failure> {
        let wrong = |error: lego::task::ExpressionError| Failure::usage(format!("--where: {error}"));
        let mut exclude = Vec::new();
        for path in &self.exclude {
            exclude.extend(ids(path)?);
        }
        Ok(IndexOptions {
            filter: self
                .filter
                .as_deref()
                .map(|text| Expression::parse(text, &index_fields()).map_err(wrong))
                .transpose()?,
            exclude,
            exclude_indexes: self.exclude_index.clone(),
            resemblance: self.resemblance,
            splits: self.split.iter().map(|text| split(text)).collect::<Result<_, _>>()?,
            seed: self.seed,
            combine,
            keep_invalid: self.keep_invalid,
        })
    }
}

fn ids(path: &std::path::Path) -> Result<Vec<String>, Failure> {
    let text =
        fs_err::read_to_string(path).map_err(|error| Failure::usage("cannot read the list of ids").source(error))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

fn split(text: &str) -> Result<Split, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "--split: expected NAME=SHARE with a share between 0 and 1, or NAME=FILE, found `{text}`"
        ))
    };
    let (name, what) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(wrong)?;
    match what.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(Split::Share(name.to_owned(), share)),
        Ok(_) => Err(wrong()),
        Err(_) => Ok(Split::Ids(name.to_owned(), ids(std::path::Path::new(what))?)),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| *number > 0.0 && *number <= 1.0)
        .ok_or_else(|| format!("expected a share above 0 and up to 1, found `{text}`"))
}

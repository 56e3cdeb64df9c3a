//! `oracle`: runs the task's own solution. A task whose tests fail after it is broken.

use async_trait::async_trait;

use crate::sandbox::{ExecOutput, ExecRequest};
use crate::task::resolve_env;

use super::{AgentEnd, AgentJob, AgentReport, Scaffold, ScaffoldError};

/// Where the solution lies inside.
const SOLUTION: &str = "/solution";
const OUTPUT_LIMIT: usize = 256 * 1024;
const DETAIL_CHARS: usize = 400;

/// Uploads `solution/` to `/solution` and runs `solve.sh` with `[solution] env` of the task.
#[derive(Debug, Clone, Copy)]
pub struct Oracle;

#[async_trait]
impl Scaffold for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    async fn run(&self, job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        let solved = tokio::select! {
            biased;
            () = job.cancel.cancelled() => return Err(ScaffoldError::Cancelled),
            solved = solve(&job) => solved?,
        };
        let log = job.logs().join("oracle.log");
        fs_err::write(log, &solved.output).map_err(|error| setup(error.to_string()))?;
        Ok(AgentReport {
            tool_s: solved.duration.as_secs_f32(),
            ..AgentReport::uncounted(end(&solved))
        })
    }
}

async fn solve(job: &AgentJob) -> Result<ExecOutput, ScaffoldError> {
    let solution = job.solution.clone();
    if !solution.join("solve.sh").is_file() {
        return Err(setup(format!(
            "task `{}` has no {}",
            job.task.id,
            solution.join("solve.sh").display()
        )));
    }
    let manifest = job.task.dir.join("task.toml");
    let env = resolve_env(&manifest, &job.task.config.solution.env, |name| {
        std::env::var(name).ok()
    })
    .map_err(|error| setup(error.to_string()))?;
    // The sandbox's root is read-only: the folder has to be made first.
    job.sandbox.reset_dir(SOLUTION).await?;
    job.sandbox.upload(&solution, SOLUTION).await?;
    // Run as the file itself, so that its shebang counts; the bit may not have survived the way here.
    job.sandbox
        .exec(ExecRequest::as_root("chmod +x /solution/solve.sh"))
        .await?;
    let mut request = ExecRequest::shell("exec /solution/solve.sh");
    request.env = env;
    request.user = job.user.clone();
    request.timeout = job.timeout;
    request.output_limit = OUTPUT_LIMIT;
    Ok(job.sandbox.exec(request).await?)
}

fn end(solved: &ExecOutput) -> AgentEnd {
    if solved.timed_out {
        AgentEnd::Timeout
    } else if solved.exit_code == 0 {
        AgentEnd::Completed
    } else {
        let skipped = solved.output.chars().count().saturating_sub(DETAIL_CHARS);
        let detail = solved
            .output
            .chars()
            .skip(skipped)
            .collect::<String>()
            .trim()
            .to_owned();
        AgentEnd::Failed {
            exit_code: Some(solved.exit_code),
            detail,
        }
    }
}

fn setup(reason: String) -> ScaffoldError {
    ScaffoldError::Setup {
        agent: "oracle".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaffold::testing::job;

    async fn solve_with(script: Option<&str>) -> (Result<AgentReport, ScaffoldError>, tempfile::TempDir) {
        let root = tempfile::tempdir().unwrap();
        let job = job(root.path(), "http://unused");
        if let Some(script) = script {
            fs_err::create_dir_all(job.task.dir.join("solution")).unwrap();
            fs_err::write(job.task.dir.join("solution/solve.sh"), script).unwrap();
        }
        (Oracle.run(job).await, root)
    }

    #[tokio::test]
    async fn the_solution_runs_in_the_working_folder() {
        let (report, root) = solve_with(Some("#!/bin/sh\necho mended > f; echo said\n")).await;
        assert_eq!(report.unwrap().end, AgentEnd::Completed);
        assert_eq!(fs_err::read_to_string(root.path().join("work/f")).unwrap(), "mended\n");
        assert_eq!(
            fs_err::read_to_string(root.path().join("logs/oracle.log")).unwrap(),
            "said\n"
        );
    }

    #[tokio::test]
    async fn the_solution_sees_its_own_environment() {
        let root = tempfile::tempdir().unwrap();
        let mut job = job(root.path(), "http://unused");
        fs_err::create_dir_all(job.task.dir.join("solution")).unwrap();
        let script = "#!/bin/sh\necho \"$KIND\"\n";
        fs_err::write(job.task.dir.join("solution/solve.sh"), script).unwrap();
        let manifest = "[solution]\nenv = { KIND = \"${LEGO_NO_SUCH_VARIABLE:-plain}\" }\n";
        fs_err::write(job.task.dir.join("task.toml"), manifest).unwrap();
        job.task = std::sync::Arc::new(crate::task::Task::load(&job.task.dir).unwrap());
        assert_eq!(Oracle.run(job).await.unwrap().end, AgentEnd::Completed);
        let said = fs_err::read_to_string(root.path().join("logs/oracle.log")).unwrap();
        assert_eq!(said, "plain\n");
    }

    #[tokio::test]
    async fn a_failing_solution_says_how() {
        let (report, _root) = solve_with(Some("#!/bin/sh\necho no awk here >&2; exit 7\n")).await;
        let end = AgentEnd::Failed {
            exit_code: Some(7),
            detail: "no awk here".to_owned(),
        };
        assert_eq!(report.unwrap().end, end);
    }

    #[tokio::test]
    async fn a_task_without_a_solution_is_named() {
        let (report, _root) = solve_with(None).await;
        let error = report.unwrap_err().to_string();
        assert!(error.contains("`task` has no") && error.contains("solve.sh"), "{error}");
    }
}

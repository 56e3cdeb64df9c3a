//! `patch`: applies the change that an earlier trial left, so that it is judged again. No model is asked.

use std::path::PathBuf;

use async_trait::async_trait;

use super::{AgentEnd, AgentJob, AgentReport, Scaffold, ScaffoldError};
use crate::sandbox::ExecRequest;

/// An agent's change, in the folder of its trial.
pub const WORK_PATCH: &str = "agent.patch";
/// Where it lies inside.
const PLACE: &str = "/solution";
const APPLY: &str = r#"
cd "$LEGO_WORKDIR" || exit 3
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git apply --whitespace=nowarn "$1" 2>/dev/null || patch --batch --fuzz=5 -p1 -i "$1"
"#;

/// Applies `<folder>/<trial>/agent.patch`.
#[derive(Debug, Clone)]
pub struct Patch {
    folder: PathBuf,
}

impl Patch {
    /// With the folder that holds the trials' folders.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }
}

#[async_trait]
impl Scaffold for Patch {
    fn name(&self) -> &'static str {
        "patch"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    async fn run(&self, job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        let setup = |reason: String| ScaffoldError::Setup {
            agent: "patch".to_owned(),
            reason,
        };
        // The trial's folder holds that of the agent's logs.
        let trial = job
            .logs()
            .parent()
            .and_then(|trial| trial.file_name())
            .unwrap_or_default();
        let patch = self.folder.join(trial).join(WORK_PATCH);
        let length = fs_err::metadata(&patch)
            .map_err(|error| setup(error.to_string()))?
            .len();
        if length == 0 {
            return Ok(AgentReport::uncounted(AgentEnd::Completed));
        }
        job.sandbox.reset_dir(PLACE).await?;
        let place = format!("{PLACE}/{WORK_PATCH}");
        job.sandbox.upload(&patch, &place).await?;
        let mut request = ExecRequest::shell(APPLY);
        request.argv.extend(["apply".to_owned(), job.sandbox.path(&place)]);
        request.user = job.user.clone();
        request.timeout = job.timeout;
        let ran = job.sandbox.exec(request).await?;
        let end = if ran.exit_code == 0 {
            AgentEnd::Completed
        } else {
            AgentEnd::Failed {
                exit_code: Some(ran.exit_code),
                detail: format!("the patch does not apply: {}", ran.output.trim()),
            }
        };
        Ok(AgentReport::uncounted(end))
    }
}

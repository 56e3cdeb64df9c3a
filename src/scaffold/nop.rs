//! `nop`: does nothing. A task whose tests pass after it is broken.

use async_trait::async_trait;

use super::{AgentEnd, AgentJob, AgentReport, Scaffold, ScaffoldError};

/// Leaves the sandbox as it is.
#[derive(Debug, Clone, Copy)]
pub struct Nop;

#[async_trait]
impl Scaffold for Nop {
    fn name(&self) -> &'static str {
        "nop"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    async fn run(&self, _job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        Ok(AgentReport::uncounted(AgentEnd::Completed))
    }
}

//! From the class of exception that Harbor recorded to an outcome: whose doing it was.
//!
//! The classes and what follows from them are those of Harbor's own error policy (0.26); what the proxy saw of the
//! session goes over what an agent says of itself.

use super::result::HarborResult;
use crate::proxy::SessionCapture;
use crate::rollout::outcome::{Failure, of_agent_inside};
use crate::scaffold::AgentEnd;
use crate::trajectory::Outcome;

/// Whose doing an exception is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// The environment's, before the agent or beside it.
    Environment,
    /// Memory: before the agent started the environment's, after that it may be the agent's.
    Memory,
    /// The model endpoint's, which is ours.
    Endpoint,
    /// A wrong setting; another try would not help.
    Setting,
    /// The verifier gave no reward.
    Verifier,
    /// We ended it.
    Cancelled,
    /// The agent's: its time ran out.
    OutOfTime,
    /// The agent's: its window or its output was full.
    TooLong,
    /// The agent's: it crashed or refused.
    Agent,
    /// Harbor's own policy for what it does not know: a reward counts where there is one.
    Unknown,
}

fn doing(class: &str) -> Doing {
    match class {
        "EnvironmentStartTimeoutError"
        | "SandboxBuildFailedError"
        | "AgentSetupTimeoutError"
        | "HealthcheckError"
        | "SSHAccessError"
        | "GKEExecStreamClosedError"
        | "GKEPodNotFoundError"
        | "RuntimeRequestError"
        | "AddTestsDirError"
        | "DownloadVerifierDirError" => Doing::Environment,
        "SandboxLikelyOutOfMemoryError" | "MemoryLimitExceededError" => Doing::Memory,
        "ApiError"
        | "ApiRateLimitError"
        | "ApiInternalServerError"
        | "ApiOverloadedError"
        | "ApiConnectionClosedError"
        | "ApiResponseStalledError"
        | "UnknownApiError"
        | "NetworkConnectionError"
        | "ApiConnectionError"
        | "ApiUsageLimitError"
        | "RateLimitError"
        | "InternalServerError"
        | "ServiceUnavailableError"
        | "APIConnectionError"
        | "APIError"
        | "Timeout" => Doing::Endpoint,
        "UnsupportedModelParametersError"
        | "BadRequestError"
        | "UnprocessableEntityError"
        | "UnsupportedParamsError"
        | "APIResponseValidationError"
        | "BudgetExceededError"
        | "AgentAuthenticationError"
        | "ModelNotFoundError"
        | "ApiProviderResourceNotFoundError"
        | "AuthenticationError"
        | "PermissionDeniedError"
        | "NotFoundError"
        | "ServiceOperationsUnsupportedError"
        | "VercelScopeError"
        | "DspyImportError"
        | "MissingExtraError"
        | "RegradeError" => Doing::Setting,
        "VerifierTimeoutError" | "RewardFileNotFoundError" | "RewardFileEmptyError" | "VerifierOutputParseError" => {
            Doing::Verifier
        }
        "CancelledError" => Doing::Cancelled,
        "AgentTimeoutError" => Doing::OutOfTime,
        "ContextWindowExceededError"
        | "OutputTokenExceededError"
        | "ContextLengthExceededError"
        | "OutputLengthExceededError" => Doing::TooLong,
        "NonZeroAgentExitCodeError" | "AgentSafetyRefusalError" | "ContentPolicyViolationError" => Doing::Agent,
        _ => Doing::Unknown,
    }
}

/// What a trial's result counts as. `calls` is whether its agent calls a model at all.
///
/// # Errors
/// Where it was not the policy's doing, or no reward was given.
pub(super) fn outcome(result: &HarborResult, capture: &SessionCapture, calls: bool) -> Result<Outcome, Failure> {
    let rewarded = || match result.verdict() {
        Ok(_) => Ok(()),
        Err(reason) => Err(Failure::verifier(reason)),
    };
    let agent = |end: AgentEnd| {
        if calls {
            return of_agent_inside(&end, capture);
        }
        Ok(match end {
            AgentEnd::Failed { .. } => Outcome::AgentError,
            AgentEnd::Timeout => Outcome::Timeout,
            _ => Outcome::Completed,
        })
    };
    let Some(exception) = result.exception() else {
        let outcome = agent(AgentEnd::Completed)?;
        return rewarded().map(|()| outcome);
    };
    let said = format!("{}: {}", exception.exception_type, exception.exception_message.trim());
    let failed = || AgentEnd::Failed {
        exit_code: None,
        detail: said.clone(),
    };
    let once = |failure: Failure| Failure {
        retry: false,
        ..failure
    };
    let ended = match doing(&exception.exception_type) {
        Doing::Cancelled => {
            return Err(Failure {
                reason: said,
                ..Failure::cancelled()
            });
        }
        Doing::Setting => return Err(once(Failure::infrastructure(said))),
        Doing::Verifier => return Err(Failure::verifier(said)),
        // Dropping it would be a way out of a bad grade.
        Doing::Memory if result.agent_ran() => return Err(Failure::verifier(said)),
        Doing::Environment | Doing::Memory if result.agent_ran() => return Err(Failure::infrastructure(said)),
        Doing::Environment | Doing::Memory => return Err(Failure::not_ready(said)),
        // A cap of ours ends some agents with an error of their API.
        Doing::Endpoint if calls && (capture.turn_cap_reached || capture.no_tool_calls || capture.context_overflow) => {
            agent(failed())?
        }
        Doing::Endpoint => return Err(Failure::infrastructure(said)),
        Doing::Unknown if result.verdict().is_err() => {
            let broken = if result.agent_ran() {
                Failure::infrastructure
            } else {
                Failure::not_ready
            };
            return Err(broken(said));
        }
        Doing::Unknown | Doing::Agent => agent(failed())?,
        Doing::OutOfTime => agent(AgentEnd::Timeout)?,
        Doing::TooLong => agent(AgentEnd::Overlong)?,
    };
    rewarded().map(|()| ended)
}

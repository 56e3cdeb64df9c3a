//! From what happened to an outcome: whose doing it was, and whether it is tried again (sandbox.md §4).

use crate::proxy::SessionCapture;
use crate::sandbox::SandboxError;
use crate::scaffold::{AgentEnd, ScaffoldError};
use crate::trajectory::Outcome;

/// A trial that ended before its tests could, nearly always without the policy's doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What it counts as.
    pub outcome: Outcome,
    /// What was seen.
    pub reason: String,
    /// Whether another try may help.
    pub retry: bool,
}

impl Failure {
    /// The sandbox could not be made ready.
    pub(super) fn setup(error: &dyn std::error::Error) -> Self {
        Self::not_ready(chain(error))
    }

    /// The same, as seen from here.
    pub(super) fn not_ready(reason: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::EnvSetupFailed,
            reason: reason.into(),
            retry: true,
        }
    }

    /// The same where the sandbox says so: what no other try can mend is not tried again.
    pub(super) fn sandbox(error: &SandboxError) -> Self {
        Self {
            retry: !error.is_last(),
            ..Self::setup(error)
        }
    }

    /// Something between us and the sandbox or the engine broke.
    pub(super) fn infrastructure(reason: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::InfraError,
            reason: reason.into(),
            retry: true,
        }
    }

    /// The sandbox failed while the agent's work was in it. Where it ended since what ran inside took more than it may, and
    /// whoever keeps it says so, that is the policy's doing: a drop would let it escape a bad grade.
    pub(super) fn of_running(error: &SandboxError) -> Self {
        let failure = Self::infrastructure(chain(error));
        match error {
            SandboxError::Ended { by_inside: true, .. } => Self {
                outcome: Outcome::AgentError,
                retry: false,
                ..failure
            },
            _ => failure,
        }
    }

    /// We ended it.
    pub(super) fn cancelled() -> Self {
        Self {
            outcome: Outcome::Cancelled,
            reason: "cancelled".to_owned(),
            retry: false,
        }
    }

    /// We ended it, since the others of its step had ended.
    pub(super) fn straggler() -> Self {
        Self {
            reason: "the other trials had ended, and its `rollout.tail_kill.grace` was over".to_owned(),
            ..Self::cancelled()
        }
    }

    /// The verifier gave no valid reward, twice: the sandbox was preserved for the second try, a third would not help.
    pub(super) fn verifier(reason: String) -> Self {
        Self {
            outcome: Outcome::VerifierError,
            reason,
            retry: false,
        }
    }
}

impl From<ScaffoldError> for Failure {
    fn from(error: ScaffoldError) -> Self {
        match error {
            ScaffoldError::Cancelled => Self::cancelled(),
            ScaffoldError::Setup { .. } => Self::setup(&error),
            ScaffoldError::Sandbox(error) => Self::of_running(&error),
            ScaffoldError::Model(_) => Self::infrastructure(chain(&error)),
        }
    }
}

/// What the end of an agent counts as. All of these are graded.
///
/// # Errors
/// Where its time ran out and the engine had failed it: waiting for an engine is not the policy's doing.
pub(super) fn of_agent(end: &AgentEnd, capture: &SessionCapture) -> Result<Outcome, Failure> {
    Ok(match end {
        AgentEnd::Completed => Outcome::Completed,
        AgentEnd::MaxTurns => Outcome::MaxTurnsReached,
        AgentEnd::Overlong => Outcome::Overlong,
        AgentEnd::Timeout if capture.n_engine_errors > 0 => {
            let reason = "the agent's time ran out and the engine had failed it";
            return Err(Failure::infrastructure(reason));
        }
        AgentEnd::Timeout => Outcome::Timeout,
        AgentEnd::Failed { .. } => Outcome::AgentError,
    })
}

/// The same for an agent that is a program inside: the proxy saw what its exit does not tell.
///
/// # Errors
/// Where it never called the model, or ended because the engine failed it.
pub(super) fn of_agent_inside(end: &AgentEnd, capture: &SessionCapture) -> Result<Outcome, Failure> {
    let said = match end {
        AgentEnd::Failed { exit_code, detail } => {
            let code = exit_code.map_or_else(String::new, |code| format!(" (exit code {code})"));
            format!("{code}: {detail}")
        }
        _ => String::new(),
    };
    let failed = matches!(end, AgentEnd::Failed { .. });
    if capture.audit.num_calls == 0 && !capture.context_overflow {
        return Err(Failure::not_ready(format!(
            "the agent ended without a model call{said}"
        )));
    }
    if failed && capture.n_engine_errors > 0 {
        return Err(Failure::infrastructure(format!(
            "the agent failed after the engine had{said}"
        )));
    }
    match end {
        _ if capture.turn_cap_reached => Ok(Outcome::MaxTurnsReached),
        AgentEnd::Failed { .. } if capture.no_tool_calls => Ok(Outcome::Completed),
        AgentEnd::Failed { .. } if capture.context_overflow => Ok(Outcome::Overlong),
        end => of_agent(end, capture),
    }
}

/// An error and its sources in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policys_doing_is_graded_and_the_environments_is_not() {
        for end in [
            AgentEnd::Completed,
            AgentEnd::MaxTurns,
            AgentEnd::Overlong,
            AgentEnd::Timeout,
            AgentEnd::Failed {
                exit_code: Some(1),
                detail: String::new(),
            },
        ] {
            let seen = SessionCapture::default();
            assert!(of_agent(&end, &seen).unwrap().is_graded(), "{end:?}");
        }
        let lost = SessionCapture {
            n_engine_errors: 1,
            ..SessionCapture::default()
        };
        let waited = of_agent(&AgentEnd::Timeout, &lost).unwrap_err();
        assert_eq!((waited.outcome, waited.retry), (Outcome::InfraError, true));
        assert_eq!(of_agent(&AgentEnd::Completed, &lost).unwrap(), Outcome::Completed);
        let gone = Failure::from(ScaffoldError::Sandbox(SandboxError::Gone("s".to_owned())));
        assert_eq!((gone.outcome, gone.retry), (Outcome::InfraError, true));
        assert!(!gone.outcome.is_graded());
        let ended = |by_inside| {
            Failure::from(ScaffoldError::Sandbox(SandboxError::Ended {
                name: "s".to_owned(),
                reason: "it ran out of memory".to_owned(),
                by_inside,
            }))
        };
        let (own, other) = (ended(true), ended(false));
        assert_eq!((own.outcome, own.retry), (Outcome::AgentError, false));
        assert_eq!((other.outcome, other.retry), (Outcome::InfraError, true));
        assert!(!Failure::from(ScaffoldError::Cancelled).retry);
    }

    #[test]
    fn the_proxy_tells_what_an_exit_code_does_not() {
        let failed = AgentEnd::Failed {
            exit_code: Some(1),
            detail: "429".to_owned(),
        };
        let seen = |change: fn(&mut SessionCapture)| {
            let mut capture = SessionCapture::default();
            capture.audit.num_calls = 3;
            change(&mut capture);
            of_agent_inside(&failed, &capture).map_err(|failure| failure.outcome)
        };
        assert_eq!(seen(|_| {}), Ok(Outcome::AgentError));
        assert_eq!(
            seen(|capture| capture.turn_cap_reached = true),
            Ok(Outcome::MaxTurnsReached)
        );
        assert_eq!(seen(|capture| capture.no_tool_calls = true), Ok(Outcome::Completed));
        assert_eq!(seen(|capture| capture.context_overflow = true), Ok(Outcome::Overlong));
        assert_eq!(seen(|capture| capture.n_engine_errors = 1), Err(Outcome::InfraError));
        assert_eq!(
            seen(|capture| capture.audit.num_calls = 0),
            Err(Outcome::EnvSetupFailed)
        );
        let never = of_agent_inside(&AgentEnd::Completed, &SessionCapture::default()).unwrap_err();
        assert_eq!(never.reason, "the agent ended without a model call");
        // It hung before it asked for anything: not the policy's doing either.
        assert!(of_agent_inside(&AgentEnd::Timeout, &SessionCapture::default()).is_err());
    }
}

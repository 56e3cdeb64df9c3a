//! Whether an engine's log-probs are those of the distribution that is sampled from.
//!
//! Asked of the engine's behaviour, not of its flags: those have other names in each server.

use std::sync::Arc;
use std::time::Duration;

use super::{Engine, EngineError, GenerateRequest, GenerationEvent, RequestOrigin, Sampling};
use crate::trajectory::{FinishReason, SessionKey, TokenId};

/// Longest wait for one token.
const PATIENCE: Duration = Duration::from_mins(5);

/// Near zero temperature the best token is all but certain; before temperature it hardly ever is. Two equally good
/// tokens have ln ½ each.
const COLD: f32 = 0.001;
const CERTAIN: f32 = -0.75;

/// Samples a token behind each of the prompts and tells whether log-probs are those after temperature.
///
/// # Errors
/// The engine cannot sample, or gives no log-probs.
pub async fn check_logprobs(engine: &dyn Engine, prompts: &[Arc<[TokenId]>]) -> Result<bool, EngineError> {
    let mut after = true;
    for (index, prompt) in prompts.iter().enumerate() {
        let id = format!("check-{}-{index}", SessionKey::random());
        let logprob = tokio::time::timeout(PATIENCE, one(engine, id, prompt)).await;
        let silent = || EngineError::Unavailable {
            reason: format!("no token within {PATIENCE:?}"),
            retry_after: None,
        };
        after &= logprob.map_err(|_| silent())?? > CERTAIN;
    }
    Ok(after)
}

async fn one(engine: &dyn Engine, id: String, prompt: &Arc<[TokenId]>) -> Result<f32, EngineError> {
    let request = GenerateRequest {
        session: SessionKey(id.clone()),
        id,
        prompt: Arc::clone(prompt),
        sampling: Sampling {
            temperature: COLD,
            top_p: 1.0,
            top_k: 1,
            max_tokens: 1,
            stop_token_ids: Vec::new(),
            seed: 0,
        },
        origin: RequestOrigin::default(),
        routing_from: None,
    };
    let session = request.session.clone();
    let mut generation = engine.generate(request).await?;
    engine.end_session(&session);
    let mut found = None;
    while let Some(event) = generation.next().await {
        match event {
            GenerationEvent::Tokens(delta) => found = found.or(delta.logprobs.and_then(|all| all.first().copied())),
            GenerationEvent::Finished(finish) if finish.reason == FinishReason::Error => {
                return Err(EngineError::Rejected(finish.error.unwrap_or_default()));
            }
            GenerationEvent::Finished(_) => break,
        }
    }
    found.ok_or_else(|| EngineError::Rejected("the first token has no log-prob".to_owned()))
}

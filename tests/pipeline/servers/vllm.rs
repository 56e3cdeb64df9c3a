//! The routes of vLLM.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use lego::inference::{Engine as _, GenerationEvent, PauseMode};
use lego::trajectory::FinishReason;
use serde_json::{Value, json};

use super::{Fault, Server, Told, generate};

pub(super) async fn answer(server: &Arc<Server>, path: &str, body: &Value) -> Option<Response> {
    let done = || Json(json!({"success": true})).into_response();
    Some(match path {
        "/v1/models" => Json(json!({"data": [{"id": "quickstart", "max_model_len": 256}]})).into_response(),
        "/health" => StatusCode::OK.into_response(),
        "/weight_info" => Json(json!({ "weight_version": server.label() })).into_response(),
        "/pause" => {
            server.engine.pause(PauseMode::Keep).await.unwrap();
            done()
        }
        "/resume" => {
            server.engine.resume().await.unwrap();
            done()
        }
        "/collective_rpc" => {
            assert_eq!(body["method"], "reload_weights");
            match server.load(body["kwargs"]["weights_path"].as_str().unwrap()).await {
                Ok(()) => Json(json!({"results": [null]})).into_response(),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
            }
        }
        "/update_weight_version" => {
            server.rename(body["new_version"].as_str().unwrap());
            done()
        }
        "/reset_prefix_cache" => done(),
        "/abort_requests" => {
            let id = body["request_ids"][0].as_str().unwrap();
            server.engine.abort(id.strip_prefix("generate-tokens-").unwrap()).await;
            done()
        }
        "/inference/v1/generate" if server.fault == Fault::Forbids => {
            let message =
                "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.";
            let error = Json(json!({"error": {"message": message, "code": 403}}));
            (StatusCode::FORBIDDEN, error).into_response()
        }
        "/inference/v1/generate" => {
            assert_eq!(body["stream_options"]["include_usage"], true, "a stream has no usage unless it is asked for");
            let names = ["temperature", "top_p", "top_k", "max_tokens", "stop_token_ids", "seed"];
            let knobs = names.map(|name| &body["sampling_params"][name]);
            generate(server, &body["request_id"], &body["token_ids"], knobs, write).await
        }
        _ => return None,
    })
}

fn write(told: &Told, event: &GenerationEvent) -> String {
    match event {
        GenerationEvent::Tokens(delta) => {
            let pairs = delta.ids.iter().zip(delta.logprobs.as_ref().unwrap());
            let content: Vec<Value> = pairs
                .map(|(id, logprob)| json!({"token_id": id, "logprob": logprob}))
                .collect();
            let choice = json!({"token_ids": delta.ids, "logprobs": {"content": content}, "finish_reason": null});
            format!("data: {}\n\n", json!({ "choices": [choice] }))
        }
        GenerationEvent::Finished(finish) => {
            let reason = match finish.reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
                FinishReason::Abort | FinishReason::Error => "abort",
            };
            let last = json!({"choices": [{"token_ids": [], "logprobs": null, "finish_reason": reason,
                "weight_versions": told.versions()}]});
            let usage = json!({"choices": [], "usage": {"prompt_tokens": told.prompt,
                "completion_tokens": told.ids.len(),
                "prompt_tokens_details": {"cached_tokens": finish.usage.cached}}});
            format!("data: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
        }
    }
}

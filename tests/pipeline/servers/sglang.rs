//! The routes of `SGLang`; its events tell everything so far.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use lego::inference::{Engine as _, GenerationEvent, PauseMode};
use lego::trajectory::FinishReason;
use serde_json::{Value, json};

use super::{Server, Told, generate};

pub(super) async fn answer(server: &Arc<Server>, path: &str, body: &Value) -> Option<Response> {
    let done = || Json(json!({"status": "ok"})).into_response();
    Some(match path {
        "/get_server_info" => Json(json!({"model_path": "/policy", "served_model_name": "quickstart",
            "context_length": 256, "max_total_num_tokens": 65536, "weight_version": server.label()}))
        .into_response(),
        "/health_generate" => StatusCode::OK.into_response(),
        "/pause_generation" => {
            server.engine.pause(PauseMode::Keep).await.unwrap();
            done()
        }
        "/continue_generation" => {
            server.engine.resume().await.unwrap();
            done()
        }
        "/update_weights_from_disk" => match server.load(body["model_path"].as_str().unwrap()).await {
            Ok(()) => {
                server.rename(body["weight_version"].as_str().unwrap());
                Json(json!({"success": true, "message": "Succeeded"})).into_response()
            }
            Err(error) => {
                let answer = Json(json!({"success": false, "message": error}));
                (StatusCode::BAD_REQUEST, answer).into_response()
            }
        },
        "/abort_request" => {
            server.engine.abort(body["rid"].as_str().unwrap()).await;
            done()
        }
        "/generate" => {
            let names = [
                "temperature",
                "top_p",
                "top_k",
                "max_new_tokens",
                "stop_token_ids",
                "sampling_seed",
            ];
            let knobs = names.map(|name| &body["sampling_params"][name]);
            generate(server, &body["rid"], &body["input_ids"], knobs, write).await
        }
        _ => return None,
    })
}

fn write(told: &Told, event: &GenerationEvent) -> String {
    let finish = match event {
        GenerationEvent::Tokens(_) => Value::Null,
        GenerationEvent::Finished(finish) => match finish.reason {
            FinishReason::Stop => json!({"type": "stop", "matched": told.ids.last()}),
            FinishReason::Length => json!({"type": "length", "length": told.ids.len()}),
            FinishReason::Abort | FinishReason::Error => json!({"type": "abort", "message": "aborted"}),
        },
    };
    let pairs = told.ids.iter().zip(&told.logprobs);
    let logprobs: Vec<Value> = pairs.map(|(id, logprob)| json!([logprob, id, null])).collect();
    let event = json!({"text": "", "output_ids": told.ids, "meta_info": {"finish_reason": finish,
        "prompt_tokens": told.prompt, "completion_tokens": told.ids.len(), "cached_tokens": 0,
        "weight_version": told.server.label(), "weight_versions": told.versions(),
        "output_token_logprobs": logprobs}});
    format!("data: {event}\n\n")
}

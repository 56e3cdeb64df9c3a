//! Rows of experts come with the last event, and are refused where they do not fit the answer.

use super::*;
use crate::trajectory::Experts;

/// Base64 of `.npy` files of u8, shape (2, 1, 1): experts 3 and 1; and of one row less.
const TWO: &str = "k05VTVBZAQA3AHsnZGVzY3InOid8dTEnLCdmb3J0cmFuX29yZGVyJzpGYWxzZSwnc2hhcGUnOigyLDEsMSksfQoDAQ==";
const ONE: &str = "k05VTVBZAQA3AHsnZGVzY3InOid8dTEnLCdmb3J0cmFuX29yZGVyJzpGYWxzZSwnc2hhcGUnOigxLDEsMSksfQoD";

#[tokio::test]
async fn rows_are_asked_for_and_checked_against_the_answer() {
    let peer = Peer::start().await;
    let experts = Experts {
        layers: 1,
        top_k: 1,
        count: 4,
    };
    let options = RemoteOptions {
        endpoint: peer.base.clone(),
        api_key: None,
        ca_file: None,
        experts: Some(experts),
        model: None,
        version: version(0),
        patience: Duration::from_secs(20),
    };
    let engine = VllmEngine::connect(options).await.unwrap();
    // 3 + 2 tokens, from the third on: positions 2 and 3.
    for (rows, fits) in [(TWO, true), (ONE, false)] {
        let mut end = last_chunk("stop", &json!([{"version": "default", "start": 0, "end": 2}]));
        end["choices"][0]["routed_experts"] = rows.into();
        peer.script(&[chunk(&[30, 2], -1.0), end, usage(3, 2, 2)]);
        let asking = GenerateRequest {
            routing_from: Some(2),
            ..request("r")
        };
        let (_, finish) = drain(engine.generate(asking).await.unwrap()).await;
        assert_eq!(finish.rejected, !fits, "{finish:?}");
        if fits {
            let routing = finish.routing.unwrap();
            assert_eq!((routing.start, routing.rows), (2, vec![3, 1]));
        } else {
            assert!(finish.error.unwrap().contains("rows of experts"));
        }
    }
    let sent = peer.sent("/inference/v1/generate");
    assert_eq!(sent[0]["sampling_params"]["routed_experts_prompt_start"], 2);
}

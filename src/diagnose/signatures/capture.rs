//! Signatures of what is captured: tokens, log-probs, experts, tool calls.

use crate::diagnose::evidence::{Evidence, REWARD, median, shown, told};
use crate::diagnose::signature::{Cure, Match, Seen, Signature};

const PEARSON: &str = "training/rollout_actor_probs_pearson_corr";
const DIFFERENCE: &str = "training/rollout_probs_diff_mean";
const TURNS: &str = "num_turns/mean";
const CALLS: &str = "num_tool_calls/mean";
const DELIVERED: &str = "capture/delivered_fraction";
const REWRITES: &str = "capture/rewrites";
/// Below this, engine and trainer do not compute the same model.
const HEALTHY: f64 = 0.99;

pub(in crate::diagnose) static SIGNATURES: &[Signature] = &[
    Signature {
        id: "routing-misaligned",
        title: "routing is misaligned",
        needs: "a model with experts, and a Pearson correlation of engine and trainer below 0.99 on recent steps",
        cause: "Engine and trainer send tokens to other experts: small differences of precision change the choice.",
        cures: &[
            Cure {
                key: "train.routing_replay",
                text: "`r3`: the trainer takes the experts that the engine chose",
            },
            Cure {
                key: "engine.kind",
                text: "an engine that returns routing",
            },
            Cure {
                key: "train.rollout_correction",
                text: "reject what is far apart meanwhile",
            },
        ],
        explains: &["logprob-mismatch", "ess-collapse"],
        test: |evidence| mismatch(evidence, true),
    },
    Signature {
        id: "logprob-mismatch",
        title: "log-probs of engine and trainer differ",
        needs: "a dense model, and a Pearson correlation of engine and trainer below 0.99 on recent steps",
        cause: "The two do not compute the same thing: another template or tokenizer, another precision, old weights in the \
                engine, a cut distribution.",
        cures: &[
            Cure {
                key: "engine",
                text: "did new weights reach it? compare the first differing token: `lego diagnose shards`",
            },
            Cure {
                key: "policy.tokenizer",
                text: "the same tokenizer and template on both sides",
            },
            Cure {
                key: "rollout.top_p",
                text: "1.0, and `top_k = -1`",
            },
        ],
        explains: &["ess-collapse"],
        test: |evidence| mismatch(evidence, false),
    },
    Signature {
        id: "tool-call-collapse",
        title: "tool calls collapse",
        needs: "num_turns/mean falling (t ≤ −2) to 1.5 or less with a falling reward and normal filters; or not one tool call in any step",
        cause: "The agent's calls are no longer read as calls: the parser does not know the model's format, or the policy has \
                left it.",
        cures: &[
            Cure {
                key: "engine.tool_parser",
                text: "the parser of this model: `lego preflight` renders and parses a call",
            },
            Cure {
                key: "policy.chat_template",
                text: "a template that shows the tools",
            },
            Cure {
                key: "train.lr",
                text: "where calls were read at first: a lower rate, from an earlier checkpoint",
            },
        ],
        explains: &["no-signal", "entropy-collapse"],
        test: tool_calls,
    },
    Signature {
        id: "token-drift",
        title: "sampled tokens do not train",
        needs: "capture/delivered_fraction below 0.95 on recent steps, or more than one rewrite an episode",
        cause: "The agent changes its own history, or the template does: what was sampled is no longer what the next turn \
                continues.",
        cures: &[
            Cure {
                key: "scaffold",
                text: "which agent: `lego diagnose trial DIR` shows the message that differs",
            },
            Cure {
                key: "policy.chat_template",
                text: "one that does not drop earlier thinking",
            },
            Cure {
                key: "capture.builder",
                text: "see which of the ways to make rows keeps more",
            },
        ],
        explains: &[],
        test: drift,
    },
];

fn mismatch(evidence: &Evidence<'_>, experts: bool) -> Seen {
    let Some(recent) = evidence.recent(PEARSON) else {
        return Seen::NoData;
    };
    if evidence.has_experts() != experts || median(&recent) >= HEALTHY {
        return Seen::No;
    }
    let mut said = vec![format!(
        "{PEARSON} is {} on the last {} steps; healthy is 0.999 and more",
        shown(median(&recent)),
        recent.len()
    )];
    said.extend(
        evidence
            .recent(DIFFERENCE)
            .map(|difference| format!("{DIFFERENCE} is {}", shown(median(&difference)))),
    );
    if experts {
        let disjoint = evidence.recent("rollout/moe/disjoint");
        said.extend(disjoint.map(|share| {
            format!(
                "{:.0}% of the tokens have a layer with other experts",
                median(&share) * 100.0
            )
        }));
    }
    Match::stop(&[PEARSON, DIFFERENCE], said)
}

fn tool_calls(evidence: &Evidence<'_>) -> Seen {
    let Some(turns) = evidence.recent(TURNS) else {
        return Seen::NoData;
    };
    let calls = evidence.points(CALLS);
    if calls.len() >= 3 && calls.iter().all(|(_, calls)| *calls == 0.0) && median(&turns) <= 1.5 {
        let said = format!(
            "{CALLS} = 0 on each of {} steps ({})",
            calls.len(),
            evidence.steps_text()
        );
        return Match::stop(&[CALLS, TURNS, REWARD], vec![said]);
    }
    let Some((line, early)) = evidence.line(TURNS).zip(evidence.early(TURNS)) else {
        return Seen::No;
    };
    let lost = evidence
        .recent("trajectory_filter/invalid_ratio")
        .map_or(0.0, |ratio| median(&ratio));
    let fell = line.t <= -2.0 && median(&turns) <= 1.5 && median(&early) >= 2.0;
    if !fell || !evidence.falls(REWARD).unwrap_or(false) || lost > 0.5 {
        return Seen::No;
    }
    Match::stop(
        &[TURNS, CALLS, REWARD],
        vec![
            told(TURNS, &line),
            format!(
                "it is {}, and was {}; the reward falls with it",
                shown(median(&turns)),
                shown(median(&early))
            ),
        ],
    )
}

fn drift(evidence: &Evidence<'_>) -> Seen {
    let Some(delivered) = evidence.recent(DELIVERED) else {
        return Seen::NoData;
    };
    let rewrites = evidence.recent(REWRITES).zip(evidence.recent("rollout/episodes"));
    let each = rewrites.map_or(0.0, |(rewrites, episodes)| {
        rewrites.iter().sum::<f64>() / episodes.iter().sum::<f64>()
    });
    if median(&delivered) >= 0.95 && (each <= 1.0 || each.is_nan()) {
        return Seen::No;
    }
    Match::at_risk(
        &[DELIVERED, REWRITES],
        vec![
            format!(
                "{DELIVERED} is {} on the last {} steps",
                shown(median(&delivered)),
                delivered.len()
            ),
            format!("{} rewrites an episode", shown(each)),
        ],
    )
}

//! Draws against the distributions they claim, and the cuts one by one.

use proptest::prelude::*;

use super::*;

const LOGITS: [f32; 5] = [1.0, 3.0, 0.5, 2.0, -1.0];

fn sampler(sampling: Sampling) -> Sampler {
    Sampler::new(sampling, 7).unwrap()
}

/// Tokens that come up in many draws, ascending.
fn support(sampling: Sampling) -> Vec<u32> {
    let mut sampler = sampler(sampling);
    let mut seen: Vec<u32> = (0..3000).map(|_| sampler.sample(&LOGITS).token).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

fn log_softmax(temperature: f32, token: usize) -> f64 {
    let scaled = LOGITS.map(|l| f64::from(l) / f64::from(temperature));
    scaled[token] - scaled.iter().map(|l| l.exp()).sum::<f64>().ln()
}

#[test]
fn greedy_takes_the_best_and_the_first_of_equals() {
    let mut greedy = sampler(Sampling {
        temperature: 0.0,
        ..Sampling::default()
    });
    let drawn = greedy.sample(&LOGITS);
    assert_eq!(drawn.token, 1);
    assert!((f64::from(drawn.logprob) - log_softmax(1.0, 1)).abs() < 1e-6);
    assert_eq!(greedy.sample(&[1.0, 4.0, 4.0]).token, 1);
}

#[test]
fn frequencies_and_log_probs_are_the_distributions() {
    let temperature = 0.7;
    let mut sampler = sampler(Sampling {
        temperature,
        ..Sampling::default()
    });
    let mut counts = [0f64; 5];
    for _ in 0..20_000 {
        let drawn = sampler.sample(&LOGITS);
        counts[drawn.token as usize] += 1.0;
        assert!((f64::from(drawn.logprob) - log_softmax(temperature, drawn.token as usize)).abs() < 1e-5);
        assert!((f64::from(drawn.raw_logprob) - log_softmax(1.0, drawn.token as usize)).abs() < 1e-5);
    }
    for (token, count) in counts.iter().enumerate() {
        assert!(
            (count / 20_000.0 - log_softmax(temperature, token).exp()).abs() < 0.01,
            "{counts:?}"
        );
    }
}

#[test]
fn cuts_keep_what_they_should() {
    let base = Sampling::default();
    assert_eq!(support(base), [0, 1, 2, 3, 4]);
    assert_eq!(support(Sampling { top_k: 2, ..base }), [1, 3]);
    assert_eq!(support(Sampling { top_k: 1, ..base }), [1]);
    // Probabilities: 0.630, 0.232, 0.085, 0.052, 0.012 for tokens 1, 3, 0, 2, 4 before rounding.
    assert_eq!(support(Sampling { top_p: 0.5, ..base }), [1]);
    assert_eq!(support(Sampling { top_p: 0.8, ..base }), [1, 3]);
    assert_eq!(support(Sampling { min_p: 0.1, ..base }), [0, 1, 3]);
    assert_eq!(support(Sampling { min_p: 1.0, ..base }), [1]);
}

#[test]
fn the_log_prob_is_over_what_was_kept() {
    let mut sampler = sampler(Sampling {
        top_k: 2,
        ..Sampling::default()
    });
    for _ in 0..50 {
        let drawn = sampler.sample(&LOGITS);
        let expected = f64::from(LOGITS[drawn.token as usize]) - (3f64.exp() + 2f64.exp()).ln();
        assert!((f64::from(drawn.logprob) - expected).abs() < 1e-6);
    }
}

#[test]
fn the_seed_decides() {
    let draw = |seed| {
        let mut sampler = Sampler::new(Sampling::default(), seed).unwrap();
        (0..40).map(|_| sampler.sample(&LOGITS).token).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn parameters_out_of_range_are_named() {
    let refused = |sampling| Sampler::new(sampling, 0).unwrap_err().name;
    let base = Sampling::default();
    assert_eq!(
        refused(Sampling {
            temperature: -1.0,
            ..base
        }),
        "temperature"
    );
    assert_eq!(
        refused(Sampling {
            temperature: f32::NAN,
            ..base
        }),
        "temperature"
    );
    assert_eq!(refused(Sampling { top_p: 0.0, ..base }), "top_p");
    assert_eq!(refused(Sampling { min_p: 1.5, ..base }), "min_p");
}

proptest! {
    #[test]
    fn a_draw_is_a_token_with_a_log_prob(
        logits in prop::collection::vec(-30f32..30.0, 1..60),
        temperature in 0.05f32..3.0, top_p in 0.01f32..=1.0, top_k in 0usize..80, min_p in 0f32..=1.0, seed: u64,
    ) {
        let drawn = Sampler::new(Sampling { temperature, top_p, top_k, min_p }, seed).unwrap().sample(&logits);
        prop_assert!((drawn.token as usize) < logits.len());
        prop_assert!(drawn.logprob <= 1e-6 && drawn.logprob.is_finite());
        prop_assert!(drawn.raw_logprob <= 1e-6 && drawn.raw_logprob.is_finite());
    }
}

//! Numbers worked out by hand for each loss and each KL estimator.
#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use super::*;

struct Case {
    logprob: f32,
    old: f32,
    advantage: f32,
}

/// Value, slope by log-prob, and sums of a one-token row.
fn one(case: &Case, loss: PolicyLoss, kl: Option<(KlEstimator, f32)>, reference: f32) -> (f64, f32, LossStats) {
    let row = Row {
        tokens: &[0, 1],
        loss_start: 1,
        mask: &[1],
        old_logprobs: &[case.old],
        advantages: &[case.advantage],
        coefficients: &[1.0],
        importance: &[],
        ref_logprobs: Some(&[reference]),
        experts: &[],
    };
    let kl = kl.map(|(estimator, coefficient)| KlTerm { estimator, coefficient });
    let objective = Objective {
        loss,
        kl,
        entropy_coeff: 0.0,
        temperature: 1.0,
    };
    let (mut slopes, mut entropies) = (Vec::new(), Vec::new());
    let stats = evaluate(
        &row,
        &[0],
        (&[case.logprob], &[0.7]),
        &objective,
        (&mut slopes, &mut entropies),
    );
    (stats.loss, slopes[0], stats)
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-5, "{a} is not {b}");
}

const GRPO: PolicyLoss = PolicyLoss::Clipped {
    low: 0.2,
    high: 0.28,
    dual: Some(3.0),
};

#[test]
fn clipped_surrogate() {
    // r = 1: −A, slope −A.
    let (value, slope, stats) = one(
        &Case {
            logprob: -1.0,
            old: -1.0,
            advantage: 2.0,
        },
        GRPO,
        None,
        0.0,
    );
    near(value, -2.0);
    near(f64::from(slope), -2.0);
    assert_eq!((stats.clipped, stats.tokens), (0.0, 1.0));
    // r = e^0.5 = 1.648721, A = 1: clipped at 1.28, no slope.
    let (value, slope, stats) = one(
        &Case {
            logprob: -0.5,
            old: -1.0,
            advantage: 1.0,
        },
        GRPO,
        None,
        0.0,
    );
    near(value, -1.28);
    near(f64::from(slope), 0.0);
    assert_eq!(stats.clipped, 1.0);
    near(stats.neg_log_ratio, -0.5);
    near(stats.ratio_sum, 1.648_721);
    // The same ratio with A = −1: the plain term is the greater one.
    let (value, slope, stats) = one(
        &Case {
            logprob: -0.5,
            old: -1.0,
            advantage: -1.0,
        },
        GRPO,
        None,
        0.0,
    );
    near(value, 1.648_721);
    near(f64::from(slope), 1.648_721);
    assert_eq!((stats.clipped, stats.clipped_lower), (0.0, 0.0));
    // r = e^−0.5 = 0.606531, A = −1: clipped at 0.8.
    let (value, slope, _) = one(
        &Case {
            logprob: -1.5,
            old: -1.0,
            advantage: -1.0,
        },
        GRPO,
        None,
        0.0,
    );
    near(value, 0.8);
    near(f64::from(slope), 0.0);
    // r = e^2 = 7.389, A = −1: dual clip at 3.
    let (value, slope, stats) = one(
        &Case {
            logprob: -1.0,
            old: -3.0,
            advantage: -1.0,
        },
        GRPO,
        None,
        0.0,
    );
    near(value, 3.0);
    near(f64::from(slope), 0.0);
    assert_eq!(stats.clipped_lower, 1.0);
    // d = 25 is bounded to 20, and gives no slope any more.
    let single = PolicyLoss::Clipped {
        low: 0.2,
        high: 0.28,
        dual: None,
    };
    let (value, slope, _) = one(
        &Case {
            logprob: 0.0,
            old: -25.0,
            advantage: -1.0,
        },
        single,
        None,
        0.0,
    );
    assert!((value / 20f64.exp() - 1.0).abs() < 1e-6);
    near(f64::from(slope), 0.0);
}

#[test]
fn reinforce_cispo_and_sft() {
    let case = Case {
        logprob: -0.5,
        old: -1.0,
        advantage: 2.0,
    };
    let (value, slope, _) = one(&case, PolicyLoss::Reinforce, None, 0.0);
    near(value, 1.0);
    near(f64::from(slope), -2.0);
    let (value, slope, stats) = one(&case, PolicyLoss::Cispo { low: 0.2, high: 0.28 }, None, 0.0);
    near(value, 1.28);
    near(f64::from(slope), -2.56);
    assert_eq!(stats.clipped, 1.0);
    let (value, slope, _) = one(&case, PolicyLoss::Sft, None, 0.0);
    near(value, 0.5);
    near(f64::from(slope), -1.0);
}

#[test]
fn kl_estimators() {
    // logp − ref = 0.5: k1 0.5, k2 0.125, k3 e^−0.5 + 0.5 − 1 = 0.106531.
    let case = Case {
        logprob: -1.0,
        old: -1.0,
        advantage: 0.0,
    };
    for (estimator, value, slope) in [
        (KlEstimator::K1, 0.5, 1.0),
        (KlEstimator::K2, 0.125, 0.5),
        (KlEstimator::K3, 0.106_531, 0.393_469),
    ] {
        let (loss, found, stats) = one(&case, GRPO, Some((estimator, 0.1)), -1.5);
        near(stats.kl, value);
        near(stats.kl_loss, value);
        near(loss, 0.1 * value);
        near(f64::from(found), 0.1 * slope);
    }
    // x = ref − logp = 3: e^3 − 4 = 16.09 is bounded to 10.
    let (_, slope, stats) = one(&case, GRPO, Some((KlEstimator::K3, 1.0)), 2.0);
    near(stats.kl, 10.0);
    near(f64::from(slope), 0.0);
}

#[test]
fn gspo_uses_one_ratio_a_row() {
    let objective = |low| Objective {
        loss: PolicyLoss::Gspo { low, high: low },
        kl: None,
        entropy_coeff: 0.0,
        temperature: 1.0,
    };
    let row = Row {
        tokens: &[0, 1, 2, 3],
        loss_start: 1,
        mask: &[1, 0, 1],
        old_logprobs: &[-1.0, 50.0, -1.0],
        advantages: &[1.0; 3],
        coefficients: &[0.5; 3],
        importance: &[],
        ref_logprobs: None,
        experts: &[],
    };
    let (mut slopes, mut entropies) = (Vec::new(), Vec::new());
    let scores: (&[f32], &[f32]) = (&[-0.9, -0.7], &[0.0, 0.0]);
    // s = (0.1 + 0.3)/2 = 0.2, r = 1.221403 for both tokens.
    let stats = evaluate(&row, &[0, 2], scores, &objective(0.5), (&mut slopes, &mut entropies));
    near(stats.loss, -1.221_403);
    for slope in &slopes {
        near(f64::from(*slope), -0.610_701);
    }
    near(stats.ratio_sum, 2.442_806);
    slopes.clear();
    let stats = evaluate(&row, &[0, 2], scores, &objective(0.1), (&mut slopes, &mut entropies));
    near(stats.loss, -1.1);
    assert_eq!((stats.clipped, slopes.as_slice()), (2.0, [0.0, 0.0].as_slice()));
}

#[test]
fn the_entropy_bonus_lowers_the_loss() {
    let row = Row {
        tokens: &[0, 1],
        loss_start: 1,
        mask: &[1],
        old_logprobs: &[],
        advantages: &[],
        coefficients: &[0.5],
        importance: &[],
        ref_logprobs: None,
        experts: &[],
    };
    let objective = Objective {
        loss: PolicyLoss::Sft,
        kl: None,
        entropy_coeff: 0.2,
        temperature: 1.0,
    };
    let (mut slopes, mut entropies) = (Vec::new(), Vec::new());
    let stats = evaluate(&row, &[0], (&[-1.0], &[0.7]), &objective, (&mut slopes, &mut entropies));
    near(stats.loss, 0.5 * (1.0 - 0.2 * 0.7));
    near(f64::from(entropies[0]), -0.1);
    near(stats.entropy, 0.7);
}

#[test]
fn importance_weighs_the_policy_loss_alone() {
    let objective = Objective {
        loss: GRPO,
        kl: Some(KlTerm {
            estimator: KlEstimator::K1,
            coefficient: 0.1,
        }),
        entropy_coeff: 0.2,
        temperature: 1.0,
    };
    let found = |importance: &[f32]| {
        let (mut slopes, mut entropies) = (Vec::new(), Vec::new());
        let outputs = (&mut slopes, &mut entropies);
        let row = Row {
            tokens: &[0, 1],
            loss_start: 1,
            mask: &[1],
            old_logprobs: &[-1.0],
            advantages: &[2.0],
            coefficients: &[0.5],
            importance,
            ref_logprobs: Some(&[-1.5]),
            experts: &[],
        };
        let stats = evaluate(&row, &[0], (&[-1.0], &[0.7]), &objective, outputs);
        (stats.loss, stats.pg_loss, f64::from(slopes[0]), f64::from(entropies[0]))
    };
    // −A·w = −2·w; KL 0.1·0.5 = 0.05, entropy 0.2·0.7 = 0.14, all at half weight.
    for (importance, weight) in [(&[][..], 1.0), (&[0.25][..], 0.25), (&[0.0][..], 0.0)] {
        let (loss, pg_loss, slope, entropy) = found(importance);
        near(loss, 0.5 * (-2.0 * weight + 0.05 - 0.14));
        near(pg_loss, -weight);
        near(slope, 0.5 * (-2.0 * weight + 0.1));
        near(entropy, -0.1);
    }
}

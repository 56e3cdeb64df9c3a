//! How far the engine's log-probs are from the trainer's, under what should be the same weights (trainer.md §5).

use super::report::Metrics;

/// Bound of a log ratio before it is exponentiated.
const LOG_RATIO_BOUND: f64 = 20.0;

/// Comparison over trained tokens; ratio = exp(trainer − engine), unclipped but for its exponent's bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fidelity {
    /// Tokens compared.
    pub tokens: usize,
    /// Pearson correlation of probabilities (not of their logs); `None` where they do not vary.
    pub pearson: Option<f64>,
    /// mean(engine − trainer).
    pub kl: f64,
    /// mean(ratio − log ratio − 1).
    pub k3_kl: f64,
    /// Mean ratio.
    pub ratio_mean: f64,
    /// Smallest ratio.
    pub ratio_min: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Standard deviation of the ratio.
    pub ratio_std: f64,
    /// 1 / mean((ratio / mean ratio)²).
    pub effective_sample_size: f64,
    /// mean(ratio²) − 1.
    pub chi2: f64,
    /// The same of the products of the rows' ratios, over rows.
    pub chi2_sequence: f64,
    /// Mean absolute difference of probabilities.
    pub difference_mean: f64,
    /// Largest absolute difference of probabilities.
    pub difference_max: f64,
    /// Mean over rows of exp(−mean trainer log-prob).
    pub trainer_perplexity: f64,
    /// Mean over rows of exp(−mean engine log-prob).
    pub engine_perplexity: f64,
    /// Mean over rows of −mean trainer log-prob.
    pub trainer_log_perplexity: f64,
    /// Mean over rows of −mean engine log-prob.
    pub engine_log_perplexity: f64,
    /// By how much the engine's mean log-prob of a row exceeds the trainer's: its mean over rows.
    pub row_difference_mean: f64,
    /// Mean of its size.
    pub row_difference_size: f64,
    /// The largest.
    pub row_difference_max: f64,
    /// The smallest.
    pub row_difference_min: f64,
    /// Mean of its exponential: of the rows' perplexities under the trainer over those under the engine.
    pub perplexity_ratio: f64,
}

/// Sums over rows.
#[derive(Default)]
struct Rows {
    count: f64,
    trainer: f64,
    engine: f64,
    trainer_perplexity: f64,
    engine_perplexity: f64,
    difference: f64,
    size: f64,
    ratio: f64,
    squares: f64,
    range: Option<(f64, f64)>,
}

impl Rows {
    /// Adds a row of `tokens` tokens with these sums of log-probs.
    fn add(&mut self, tokens: f64, trainer: f64, engine: f64) {
        let (own, recorded) = (trainer / tokens, engine / tokens);
        let difference = recorded - own;
        self.count += 1.0;
        self.trainer -= own;
        self.engine -= recorded;
        self.trainer_perplexity += (-own).exp();
        self.engine_perplexity += (-recorded).exp();
        self.difference += difference;
        self.size += difference.abs();
        self.ratio += difference.exp();
        self.squares += (2.0 * (trainer - engine).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)).exp();
        let (low, high) = self.range.unwrap_or((difference, difference));
        self.range = Some((low.min(difference), high.max(difference)));
    }
}

/// Compares log-probs of the same tokens (the trainer's, the engine's), row by row; `None` without any. Sums are in f64.
pub fn compare_log_probs<R: IntoIterator<Item = (f32, f32)>>(rows: impl IntoIterator<Item = R>) -> Option<Fidelity> {
    let (mut n, mut trainer, mut engine) = (0_usize, 0.0, 0.0);
    let mut by_row = Rows::default();
    let (mut ratio_sum, mut squares, mut k3) = (0.0, 0.0, 0.0);
    let (mut difference_sum, mut difference_max) = (0.0, 0.0_f64);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut mean_p, mut mean_q, mut var_p, mut var_q, mut covariance) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for row in rows {
        let before = (n, trainer, engine);
        for (own, recorded) in row {
            let (own, recorded) = (f64::from(own), f64::from(recorded));
            n += 1;
            trainer += own;
            engine += recorded;
            let log_ratio = (own - recorded).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
            let ratio = log_ratio.exp();
            ratio_sum += ratio;
            squares += ratio * ratio;
            k3 += ratio - log_ratio - 1.0;
            low = low.min(ratio);
            high = high.max(ratio);
            let difference = (own.exp() - recorded.exp()).abs();
            difference_sum += difference;
            difference_max = difference_max.max(difference);
            // Welford's update: the difference of large sums would lose the correlation near 1.
            let (p, q) = (own.exp(), recorded.exp());
            let (dp, dq) = (p - mean_p, q - mean_q);
            mean_p += dp / n as f64;
            mean_q += dq / n as f64;
            var_p += dp * (p - mean_p);
            var_q += dq * (q - mean_q);
            covariance += dp * (q - mean_q);
        }
        if n > before.0 {
            by_row.add((n - before.0) as f64, trainer - before.1, engine - before.2);
        }
    }
    let (least, most) = by_row.range.unwrap_or_default();
    let count = n as f64;
    (n > 0).then(|| Fidelity {
        tokens: n,
        pearson: (var_p > 0.0 && var_q > 0.0).then(|| covariance / (var_p * var_q).sqrt()),
        kl: (engine - trainer) / count,
        k3_kl: k3 / count,
        ratio_mean: ratio_sum / count,
        ratio_min: low,
        ratio_max: high,
        ratio_std: (squares / count - (ratio_sum / count).powi(2)).max(0.0).sqrt(),
        effective_sample_size: ratio_sum * ratio_sum / (count * squares),
        chi2: squares / count - 1.0,
        difference_mean: difference_sum / count,
        difference_max,
        chi2_sequence: by_row.squares / by_row.count - 1.0,
        trainer_perplexity: by_row.trainer_perplexity / by_row.count,
        engine_perplexity: by_row.engine_perplexity / by_row.count,
        trainer_log_perplexity: by_row.trainer / by_row.count,
        engine_log_perplexity: by_row.engine / by_row.count,
        row_difference_mean: by_row.difference / by_row.count,
        row_difference_size: by_row.size / by_row.count,
        row_difference_max: most,
        row_difference_min: least,
        perplexity_ratio: by_row.ratio / by_row.count,
    })
}

impl Fidelity {
    /// Its values by their standard names.
    pub fn measure(&self, metrics: &mut Metrics) {
        let named = [
            ("rollout_corr/kl", self.kl),
            ("rollout_corr/k3_kl", self.k3_kl),
            ("rollout_corr/is_mean", self.ratio_mean),
            ("rollout_corr/is_min", self.ratio_min),
            ("rollout_corr/is_max", self.ratio_max),
            ("rollout_corr/is_std", self.ratio_std),
            ("rollout_corr/eff_sample_size", self.effective_sample_size),
            ("training/rollout_probs_diff_mean", self.difference_mean),
            ("training/rollout_probs_diff_max", self.difference_max),
            ("rollout_corr/chi2_token", self.chi2),
            ("rollout_corr/chi2_seq", self.chi2_sequence),
            ("rollout_corr/training_ppl", self.trainer_perplexity),
            ("rollout_corr/rollout_ppl", self.engine_perplexity),
            ("rollout_corr/training_log_ppl", self.trainer_log_perplexity),
            ("rollout_corr/rollout_log_ppl", self.engine_log_perplexity),
            ("rollout_corr/log_ppl_diff", self.row_difference_mean),
            ("rollout_corr/log_ppl_abs_diff", self.row_difference_size),
            ("rollout_corr/log_ppl_diff_max", self.row_difference_max),
            ("rollout_corr/log_ppl_diff_min", self.row_difference_min),
            ("rollout_corr/ppl_ratio", self.perplexity_ratio),
        ];
        metrics.extend(named.map(|(name, value)| (name.to_owned(), value)));
        if let Some(pearson) = self.pearson {
            metrics.insert("training/rollout_actor_probs_pearson_corr".to_owned(), pearson);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_log_probs_are_faithful() {
        let values = [-0.1_f32, -2.0, -0.7];
        let same = compare_log_probs([values.map(|v| (v, v))]).unwrap();
        assert!((same.pearson.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(
            (same.kl, same.k3_kl, same.ratio_min, same.ratio_max),
            (0.0, 0.0, 1.0, 1.0)
        );
        assert_eq!(compare_log_probs::<[(f32, f32); 0]>([]), None);
        assert_eq!(compare_log_probs([[(0.0, 0.0); 0]]), None);
        assert_eq!(compare_log_probs([[(-0.5, -0.5); 3]]).unwrap().pearson, None);
    }

    #[test]
    fn by_hand() {
        // Ratios 2 and 1/2: trainer (ln ½, ln ½), engine (ln ¼, ln 1).
        let half = 0.5_f32.ln();
        let found = compare_log_probs([[(half, 0.25_f32.ln()), (half, 0.0)]]).unwrap();
        assert!((found.ratio_mean - 1.25).abs() < 1e-6 && (found.chi2 - 1.125).abs() < 1e-6);
        assert!((found.ratio_min - 0.5).abs() < 1e-6 && (found.ratio_max - 2.0).abs() < 1e-6);
        assert!((found.ratio_std - 0.75).abs() < 1e-6 && (found.effective_sample_size - 25.0 / 34.0).abs() < 1e-6);
        assert!((found.difference_mean - 0.375).abs() < 1e-6 && (found.difference_max - 0.5).abs() < 1e-6);
        assert!(found.kl.abs() < 1e-6 && (found.k3_kl - 0.25).abs() < 1e-6, "{found:?}");
        assert!((found.trainer_perplexity - 2.0).abs() < 1e-6);
    }

    #[test]
    fn rows_count_alike_however_long_they_are() {
        // Trainer ½, ½ | ¼; engine ½, ½ | ½: the second row is twice as likely to the engine.
        let half = 0.5_f32.ln();
        let found = compare_log_probs([vec![(half, half); 2], vec![(0.25_f32.ln(), half)]]).unwrap();
        assert!((found.trainer_perplexity - 3.0).abs() < 1e-6 && (found.engine_perplexity - 2.0).abs() < 1e-6);
        assert!((found.perplexity_ratio - 1.5).abs() < 1e-6, "{found:?}");
        let ln2 = std::f64::consts::LN_2;
        assert!((found.row_difference_mean - ln2 / 2.0).abs() < 1e-6);
        assert!((found.row_difference_max - ln2).abs() < 1e-6 && found.row_difference_min.abs() < 1e-6);
        assert!((found.chi2_sequence + 0.375).abs() < 1e-6);
        assert!((found.trainer_log_perplexity - 1.5 * ln2).abs() < 1e-6);
    }

    #[test]
    fn correlation_is_of_probabilities() {
        // Probabilities move together linearly: r = 1, although their logs do not.
        let probabilities = [(0.1_f32, 0.3_f32), (0.2, 0.4), (0.5, 0.7)];
        let found = compare_log_probs([probabilities.map(|(p, q)| (p.ln(), q.ln()))]).unwrap();
        assert!((found.pearson.unwrap() - 1.0).abs() < 1e-6);
    }
}

//! Statistics over samples, in f64. Each says what it gives where there are too few.

/// Arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample standard deviation (n − 1); NaN below two values.
pub fn sample_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Standard error of the mean; NaN below two values.
pub fn standard_error(values: &[f64]) -> f64 {
    sample_std(values) / (values.len() as f64).sqrt()
}

/// Quantile with linear interpolation between order statistics (type 7); NaN of nothing or with a NaN in it.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Pearson correlation of pairs; NaN below two pairs, or where one side does not vary.
///
/// Pairs beyond the shorter side are left out.
pub fn pearson(left: &[f64], right: &[f64]) -> f64 {
    let n = left.len().min(right.len());
    let (left, right) = (&left[..n], &right[..n]);
    let (mean_left, mean_right) = (mean(left), mean(right));
    let (mut both, mut own_left, mut own_right) = (0.0, 0.0, 0.0);
    for (x, y) in left.iter().zip(right) {
        let (dx, dy) = (x - mean_left, y - mean_right);
        both += dx * dy;
        own_left += dx * dx;
        own_right += dy * dy;
    }
    both / (own_left * own_right).sqrt()
}

/// A least-squares line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Rise for each unit of x.
    pub slope: f64,
    /// Value at x = 0.
    pub intercept: f64,
    /// Slope over its standard error; infinite for an exact line, NaN below three points.
    pub t: f64,
}

/// The least-squares line through points; `None` below two different x.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / n;
    let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    if points.len() < 2 || spread <= 0.0 {
        return None;
    }
    let slope = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum::<f64>()
        / spread;
    let intercept = mean_y - slope * mean_x;
    let residual: f64 = points
        .iter()
        .map(|point| (point.1 - intercept - slope * point.0).powi(2))
        .sum();
    let error = (residual / (n - 2.0) / spread).sqrt();
    Some(Trend {
        slope,
        intercept,
        t: if points.len() < 3 { f64::NAN } else { slope / error },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} against {expected}");
    }

    #[test]
    fn hand_numbers() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        close(mean(&values), 5.0);
        // Squares sum to 32; 32 / 7 = 4.571428…
        close(sample_std(&values), (32.0f64 / 7.0).sqrt());
        close(standard_error(&values), (32.0f64 / 7.0 / 8.0).sqrt());
        close(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        close(quantile(&[4.0, 1.0, 3.0, 2.0], 0.95), 3.85);
        close(quantile(&[7.0], 0.99), 7.0);
        assert!(mean(&[]).is_nan() && sample_std(&[1.0]).is_nan() && quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn correlation_by_hand() {
        close(pearson(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), 1.0);
        close(pearson(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        // dx = −1.5 −.5 .5 1.5, dy = −1 1 −1 1: 2 / √(5·4).
        close(
            pearson(&[1.0, 2.0, 3.0, 4.0], &[0.0, 2.0, 0.0, 2.0]),
            2.0 / 20.0f64.sqrt(),
        );
        assert!(pearson(&[1.0, 2.0], &[1.0, 1.0]).is_nan());
    }

    #[test]
    fn a_line_by_hand() {
        // x̄ = 1.5, ȳ = 1.5, Sxx = 5, Sxy = 4: slope 0.8, intercept 0.3; residuals −.3 .9 −.9 .3, sum of
        // squares 1.8; standard error √(0.9 / 5).
        let line = trend(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 3.0)]).unwrap();
        close(line.slope, 0.8);
        close(line.intercept, 0.3);
        close(line.t, 0.8 / 0.18f64.sqrt());
        assert_eq!(trend(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert!(trend(&[(0.0, 1.0), (1.0, 3.0)]).unwrap().t.is_nan());
    }
}

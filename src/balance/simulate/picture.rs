//! Throughput against live sessions, one line a policy, as SVG.

use std::fmt::Write as _;

use super::Report;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 120.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 48.0;
/// Told apart also by those who do not see all colours (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Draws them. `series` are a policy's name and its reports, by the number of sessions.
pub fn picture(series: &[(String, Vec<Report>)], title: &str) -> String {
    let all = || series.iter().flat_map(|(_, reports)| reports);
    let most = all().map(|report| report.sessions).max().unwrap_or(1).max(1) as f64;
    let highest = all().map(|report| report.output_tokens_per_s).fold(0.0, f64::max);
    let unit = round_up(highest / 4.0);
    let top = unit * (highest / unit).ceil().max(1.0);
    let x = |sessions: f64| LEFT + sessions / most * (WIDTH - LEFT - RIGHT);
    let y = |tokens: f64| HEIGHT - BOTTOM - tokens / top * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut line = 0.0;
    while line <= top + 1e-9 {
        let at = y(line);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{line}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0
        );
        line += unit;
    }
    let unit = round_up(most / 6.0).max(1.0);
    let mut tick = 0.0;
    while tick <= most + 1e-9 {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            x(tick),
            HEIGHT - BOTTOM + 20.0
        );
        tick += unit;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">live sessions</text>\n\
         <text x=\"{LEFT}\" y=\"14\">output tokens/s · {title}</text>",
        x(most / 2.0),
        HEIGHT - 8.0
    );
    let mut labels: Vec<(f64, usize)> = Vec::new();
    for (at, (_, reports)) in series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let place = |report: &Report| (x(report.sessions as f64), y(report.output_tokens_per_s));
        let points: Vec<(f64, f64)> = reports.iter().map(place).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in &points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        if let Some((_, y)) = points.last() {
            labels.push((*y, at));
        }
    }
    // Beside the ends of the lines, none over another.
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut lowest = f64::NEG_INFINITY;
    for (y, at) in labels {
        let y = y.max(lowest + 16.0);
        lowest = y;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            WIDTH - RIGHT + 8.0,
            y + 4.0,
            COLOURS[at % COLOURS.len()],
            series[at].0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 5, 10, 20 …
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    factors
        .map(|factor| factor * power)
        .find(|rounded| *rounded >= value)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::simulate::{Policy, Profile, Scenario, simulate};

    #[test]
    fn every_policy_has_its_line_and_its_name() {
        let profile = Profile::by_name("moe30b").unwrap();
        let reports = |policy: Policy| -> Vec<Report> {
            let short = |sessions: usize| Scenario {
                warm_up: 1.0,
                window: 30.0,
                ..Scenario::new(profile, sessions)
            };
            [2, 8].map(|sessions| simulate(&short(sessions), policy)).into()
        };
        let series = ["sticky", "lease"].map(|name| (name.to_owned(), reports(name.parse().unwrap())));
        let svg = picture(&series, "moe30b");
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">sticky</text>") && svg.contains(">lease</text>"), "{svg}");
        for (value, rounded) in [(0.3, 0.5), (1.0, 1.0), (1.2, 2.0), (43.0, 50.0)] {
            assert!((round_up(value) - rounded).abs() < 1e-9, "{value}");
        }
    }
}

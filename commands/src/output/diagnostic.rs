//! Draws faults of a run config with the lines they stand in.

use lego::config::{ConfigError, Fault, Location};
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report, ThemeCharacters,
    ThemeStyles,
};

/// Lines of a fault are not broken at the width of the terminal: they hold lists that people copy.
const WIDTH: usize = 100;

/// All faults of an error, one drawing each, and how many there are.
pub(super) fn config(error: &ConfigError, colours: bool, fancy: bool) -> String {
    let handler = handler(colours, fancy);
    match error {
        ConfigError::Unreadable { wanted_by, source, .. } => {
            let drawn = draw(&handler, &error.to_string(), wanted_by.as_ref(), "named here", None);
            format!("{drawn}\n  cause: {source}")
        }
        ConfigError::Invalid { faults } => {
            let mut out: Vec<_> = faults.iter().map(|fault| draw_fault(&handler, fault)).collect();
            if faults.len() > 1 {
                out.push(format!("error: {} faults in the run config", faults.len()));
            }
            out.join("\n")
        }
    }
}

fn draw_fault(handler: &GraphicalReportHandler, fault: &Fault) -> String {
    let headline = if fault.at.is_some() || fault.key.is_empty() {
        "invalid run config".to_owned()
    } else {
        format!("invalid run config: `{}`: {}", fault.key, fault.problem)
    };
    draw(
        handler,
        &headline,
        fault.at.as_ref(),
        &fault.problem.to_string(),
        fault.help.as_deref(),
    )
}

fn draw(
    handler: &GraphicalReportHandler,
    headline: &str,
    at: Option<&Location>,
    label: &str,
    help: Option<&str>,
) -> String {
    let mut diagnostic = MietteDiagnostic::new(headline);
    diagnostic.help = help.map(str::to_owned);
    let report = match at {
        Some(at) => {
            let span = at.span.clone();
            let label = LabeledSpan::new(Some(label.to_owned()), span.start, span.len().max(1));
            let source = NamedSource::new(&at.source.name, at.source.text.clone());
            Report::new(diagnostic.with_label(label)).with_source_code(source)
        }
        None => Report::new(diagnostic),
    };
    let mut out = String::new();
    let drawn = handler.render_report(&mut out, report.as_ref());
    // Writing into a String cannot fail; a drawing that did would leave the headline.
    let text = if drawn.is_ok() { out.as_str() } else { headline };
    text.lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn handler(colours: bool, fancy: bool) -> GraphicalReportHandler {
    let theme = GraphicalTheme {
        characters: if fancy {
            ThemeCharacters::unicode()
        } else {
            ThemeCharacters::ascii()
        },
        styles: if colours {
            ThemeStyles::ansi()
        } else {
            ThemeStyles::none()
        },
    };
    GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_context_lines(1)
        .with_links(false)
}

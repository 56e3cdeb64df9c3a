//! Draws faults of a run config with the lines they stand in.

use lego::config::{ConfigError, Fault, Location, starred};

/// How a drawing looks: its characters, and whether it is coloured.
pub(super) struct Style {
    /// Cross, corner, bar, dotted bar, tee, elbow, foot.
    marks: [&'static str; 7],
    underline: char,
    colours: bool,
}

impl Style {
    pub(super) fn new(colours: bool, unicode: bool) -> Self {
        if unicode {
            Self {
                marks: ["×", "╭─", "│", "·", "┬", "╰──", "╰────"],
                underline: '─',
                colours,
            }
        } else {
            Self {
                marks: ["x", ",-", "|", ":", "|", "`--", "`----"],
                underline: '^',
                colours,
            }
        }
    }

    fn paint(&self, code: u8, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn bad(&self, text: &str) -> String {
        self.paint(31, text)
    }

    fn help(&self, text: &str) -> String {
        format!("  {} {text}", self.paint(36, "help:"))
    }
}

/// All faults of an error, one drawing each, and how many there are.
pub(super) fn config(error: &ConfigError, style: &Style) -> String {
    match error {
        ConfigError::Unreadable { wanted_by, source, .. } => {
            let drawn = draw(style, &error.to_string(), wanted_by.as_ref(), "named here", None);
            format!("{drawn}\n  cause: {source}")
        }
        ConfigError::Invalid { faults } => {
            let mut out: Vec<_> = faults.iter().map(|fault| draw_fault(style, fault)).collect();
            if faults.len() > 1 {
                out.push(format!(
                    "{} {} faults in the run config",
                    style.bad("error:"),
                    faults.len()
                ));
            }
            out.join("\n")
        }
    }
}

fn draw_fault(style: &Style, fault: &Fault) -> String {
    let problem = fault.problem.to_string();
    let headline = match (&fault.at, fault.key.as_str()) {
        (Some(_), _) => "invalid run config".to_owned(),
        (None, "") => format!("invalid run config: {problem}"),
        (None, key) => format!("invalid run config: `{key}`: {problem}"),
    };
    draw(style, &headline, fault.at.as_ref(), &problem, fault.help.as_deref())
}

fn draw(style: &Style, headline: &str, at: Option<&Location>, label: &str, help: Option<&str>) -> String {
    let [cross, ..] = style.marks;
    let mut out = vec![format!("  {} {headline}", style.bad(cross))];
    out.extend(at.into_iter().flat_map(|at| excerpt(style, at, label)));
    out.extend(help.map(|help| style.help(help)));
    out.join("\n")
}

/// The line, those beside it, and the label below the span's part of it.
fn excerpt(style: &Style, at: &Location, label: &str) -> Vec<String> {
    let [_, corner, bar, dotted, tee, elbow, foot] = style.marks;
    let (line, column) = at.line_column();
    let lines: Vec<_> = at.source.text.lines().collect();
    let shown = line.saturating_sub(1).max(1)..=(line + 1).min(lines.len().max(line));
    let width = shown.end().to_string().len();
    let gap = " ".repeat(width + 2);
    let mut out = vec![format!("{gap}{corner}[{}:{line}:{column}]", at.source.name)];
    for number in shown {
        // A tab is as wide as any other character, so that the label stands below its span.
        let text = lines
            .get(number - 1)
            .map_or_else(String::new, |text| starred(&text.replace('\t', " ")));
        out.push(format!(" {number:>width$} {bar} {text}").trim_end().to_owned());
        if number == line {
            let marked = at.source.text.get(at.span.clone()).and_then(|text| text.lines().next());
            let length = marked.map_or(1, |text| text.chars().count()).max(1);
            let before = " ".repeat(column - 1);
            let rule = |count: usize| style.underline.to_string().repeat(count);
            let underline = format!("{}{tee}{}", rule(length / 2), rule(length - length / 2 - 1));
            out.push(format!("{gap}{dotted} {before}{}", style.bad(&underline)));
            out.push(format!(
                "{gap}{dotted} {before}{}{} {label}",
                " ".repeat(length / 2),
                style.bad(elbow)
            ));
        }
    }
    out.push(format!("{gap}{foot}"));
    out
}

#[cfg(test)]
mod tests {
    use lego::config::{Layers, load};

    use super::*;

    fn drawn(text: &str, style: &Style) -> String {
        config(&load(&Layers::text(text)).unwrap_err(), style)
    }

    #[test]
    fn the_label_stands_below_its_span() {
        let text = drawn("[run]\n\nname = \"é\"\n\tseed = [1,\n2]\n", &Style::new(false, true));
        let expected = "  × invalid run config\n   ╭─[run.toml:4:9]\n 3 │ name = \"é\"\n 4 │  seed = [1,\n   ·         ─┬─\n   \
                        ·          ╰── expected a whole number, found a list\n 5 │ 2]\n   ╰────";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_fault_at_the_end_of_the_text_is_drawn() {
        assert!(drawn("[run", &Style::new(false, false)).contains("run.toml:1:"));
        assert!(drawn("[run]\nname =", &Style::new(true, false)).contains("\u{1b}[31m"));
    }
}

//! Lines of a terminal as plain text: no colours, no carriage returns.

/// Takes escape sequences out and ends lines plainly.
pub(super) fn plain(log: &str) -> String {
    let mut out = String::with_capacity(log.len());
    let mut chars = log.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // A control sequence ends with a letter or one of a few signs.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // A title ends with a bell.
                Some(']') => while chars.next().is_some_and(|c| c != '\u{7}') {},
                _ => {}
            },
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn colours_and_carriage_returns_go() {
        assert_eq!(
            super::plain("\u{1b}[32mPASSED\u{1b}[0m a\r\n50%\r100%\n\u{1b}]0;title\u{7}x"),
            "PASSED a\n50%\n100%\nx"
        );
    }
}

//! The page's own files, in the binary: plain scripts and one style sheet, in the order in which they are loaded.

/// Scripts, in order.
pub(super) const SCRIPTS: [(&str, &str); 17] = [
    ("core.js", include_str!("assets/core.js")),
    ("api.js", include_str!("assets/api.js")),
    ("chart.js", include_str!("assets/chart.js")),
    ("figures.js", include_str!("assets/figures.js")),
    ("chart_card.js", include_str!("assets/chart_card.js")),
    ("overview.js", include_str!("assets/overview.js")),
    ("metrics.js", include_str!("assets/metrics.js")),
    ("episodes.js", include_str!("assets/episodes.js")),
    ("outcomes.js", include_str!("assets/outcomes.js")),
    ("trial.js", include_str!("assets/trial.js")),
    ("validation.js", include_str!("assets/validation.js")),
    ("tasks.js", include_str!("assets/tasks.js")),
    ("compare.js", include_str!("assets/compare.js")),
    ("tokens.js", include_str!("assets/tokens.js")),
    ("logs.js", include_str!("assets/logs.js")),
    ("other.js", include_str!("assets/other.js")),
    ("shell.js", include_str!("assets/shell.js")),
];

pub(super) const STYLE: &str = include_str!("assets/style.css");

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>lego</title>\n";
const ICON: &str = "<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                    %3Crect x='1' y='6' width='14' height='9' rx='2' fill='%233b6fd4'/%3E%3Crect x='3' y='3' width='4' height='4' \
                    rx='1' fill='%233b6fd4'/%3E%3Crect x='9' y='3' width='4' height='4' rx='1' fill='%233b6fd4'/%3E%3C/svg%3E\">\n";
const BODY: &str = "</head>\n<body>\n<div id=\"app\"></div>\n<noscript>This page needs JavaScript.</noscript>\n";

/// The page of the server.
pub(super) fn page() -> String {
    let mut page = format!("{HEAD}{ICON}<link rel=\"stylesheet\" href=\"assets/style.css\">\n{BODY}");
    for (name, _) in SCRIPTS {
        page += &format!("<script src=\"assets/{name}\"></script>\n");
    }
    page + "</body>\n</html>\n"
}

/// The same page in one file, with what it shows; `data` is JSON.
pub(super) fn single_page(data: &str) -> String {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};
    let hash = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes()));
    let script = SCRIPTS.map(|(_, text)| text).join("\n");
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    // Within a script element only `<` could end it.
    let data = data.replace('<', "\\u003c");
    format!(
        "{HEAD}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n{ICON}<style>{STYLE}</style>\n{BODY}\
         <script id=\"export\" type=\"application/json\">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )
}

/// One of the page's files, with its type.
pub(super) fn file(name: &str) -> Option<(&'static str, &'static str)> {
    if name == "style.css" {
        return Some((STYLE, "text/css; charset=utf-8"));
    }
    let script = SCRIPTS.iter().find(|(known, _)| *known == name)?;
    Some((script.1, "text/javascript; charset=utf-8"))
}

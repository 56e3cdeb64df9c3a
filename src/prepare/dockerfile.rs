//! `environment/Dockerfile`: everything that tests need is fetched here, and no history stays that holds the fix.

use super::language::{Language, quoted};
use super::options::ConvertOptions;
use super::swe::Repair;

/// A repository of one commit in place of the one that is there: nothing after the base can be reached.
const ONE_COMMIT: &str = "\
RUN if command -v git >/dev/null; then \\
      find . -name .git -prune -exec rm -rf {} + && git init -q . && git add -A -f . && \\
      GIT_AUTHOR_DATE=2000-01-01T00:00:00Z GIT_COMMITTER_DATE=2000-01-01T00:00:00Z \\
      git -c user.name=base -c user.email=base@localhost commit -q --allow-empty -m base; fi
";

/// The text of it.
pub(super) fn text(
    repair: &Repair,
    language: &Language,
    has_files: bool,
    workdir: &str,
    options: &ConvertOptions,
) -> String {
    let own = options.base_images.get(language.name).cloned();
    let given = repair.image.as_ref().filter(|_| own.is_none());
    let image = own
        .or_else(|| repair.image.clone())
        .unwrap_or_else(|| language.image(repair.language_version.as_deref()));
    let mut text = format!("FROM {image}\n");
    // The files are at the base, whatever the image has.
    if has_files {
        text += &format!("COPY files/ {workdir}/\n");
    }
    text += &format!("WORKDIR {workdir}\n");
    if let (Some(commit), None, false) = (&repair.base_commit, given, has_files) {
        let url = repair
            .clone_url
            .clone()
            .unwrap_or_else(|| format!("https://github.com/{}.git", repair.repo));
        text += &format!(
            "RUN git init -q . && git fetch -q --depth 1 {} {commit} && git checkout -q FETCH_HEAD && \\\n      git submodule update -q --init --recursive --depth 1\n",
            quoted(&url)
        );
    }
    if repair.bug.is_some() {
        text += "COPY bug.patch /tmp/bug.patch\nRUN git apply /tmp/bug.patch && rm /tmp/bug.patch\n";
    }
    text += ONE_COMMIT;
    if has_install(repair) {
        text += "COPY install.sh /tmp/install.sh\nRUN $(command -v bash || command -v sh) -e /tmp/install.sh && rm /tmp/install.sh\n";
    }
    text
}

fn has_install(repair: &Repair) -> bool {
    repair.install.iter().any(|command| !command.trim().is_empty())
}

/// The commands that set the repository up, as a script beside it.
pub(super) fn install_script(repair: &Repair, activation: &str) -> Option<String> {
    has_install(repair).then(|| format!("{activation}{}\n", repair.install.join("\n")))
}

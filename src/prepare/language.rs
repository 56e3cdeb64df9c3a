//! What is known of a language: its base image, how its tests are run, and whose log that gives.

use super::patch::FilePatch;

/// A language of tasks.
#[derive(Debug)]
pub(super) struct Language {
    /// Its name in records and on the command line.
    pub(super) name: &'static str,
    aliases: &'static [&'static str],
    /// Ends of its files' names.
    ends: &'static [&'static str],
    /// Image without its tag, and the tag where the record names no version.
    image: (&'static str, &'static str),
    /// The log that its usual runner writes.
    pub(super) format: &'static str,
    /// The usual command; FILES are the test files, FOLDERS their folders.
    command: &'static str,
}

const LANGUAGES: [Language; 9] = [
    Language {
        name: "python",
        aliases: &["py", "python3"],
        ends: &["py", "pyx", "pyi"],
        image: ("python", "3.11"),
        format: "pytest",
        command: "python3 -m pytest -rA FILES",
    },
    Language {
        name: "javascript",
        aliases: &["js", "typescript", "ts"],
        ends: &["js", "jsx", "ts", "tsx", "mjs", "cjs", "vue"],
        image: ("node", "20"),
        format: "jest",
        command: "npx --no-install jest --verbose FILES",
    },
    Language {
        name: "go",
        aliases: &["golang"],
        ends: &["go"],
        image: ("golang", "1.23"),
        format: "go",
        command: "go test -v FOLDERS",
    },
    Language {
        name: "rust",
        aliases: &["rs"],
        ends: &["rs"],
        image: ("rust", "1"),
        format: "cargo",
        command: "cargo test --offline --no-fail-fast",
    },
    Language {
        name: "java",
        aliases: &["kotlin", "scala"],
        ends: &["java", "kt", "scala"],
        image: ("maven", "3-eclipse-temurin-17"),
        format: "junit",
        command: "mvn -B -o test",
    },
    Language {
        name: "c",
        aliases: &["c++", "cpp", "cxx"],
        ends: &["c", "cc", "cpp", "cxx", "h", "hh", "hpp"],
        image: ("gcc", "13"),
        format: "ctest",
        command: "cmake -S . -B build && cmake --build build && ctest --test-dir build --output-on-failure",
    },
    Language {
        name: "php",
        aliases: &[],
        ends: &["php"],
        image: ("php", "8.3-cli"),
        format: "phpunit",
        command: "vendor/bin/phpunit --testdox FILES",
    },
    Language {
        name: "ruby",
        aliases: &["rb"],
        ends: &["rb"],
        image: ("ruby", "3.3"),
        format: "rspec",
        command: "rspec --format json --out /tmp/rspec.json FILES; code=$?; ruby -rjson -e 'JSON.parse(File.read(ARGV[0]))[\"examples\"].each { |e| puts e[\"full_description\"] + \" - \" + e[\"status\"] }' /tmp/rspec.json; (exit $code)",
    },
    Language {
        name: "shell",
        aliases: &["sh", "bash"],
        ends: &["sh", "bash"],
        image: ("debian", "trixie-slim"),
        format: "jest",
        command: "bats --tap FILES",
    },
];

/// By a name of a record or of the command line.
pub(super) fn named(name: &str) -> Option<&'static Language> {
    let name = name.trim().to_lowercase();
    LANGUAGES
        .iter()
        .find(|language| language.name == name || language.aliases.contains(&name.as_str()))
}

/// All names.
pub(super) fn names() -> Vec<&'static str> {
    LANGUAGES.iter().map(|language| language.name).collect()
}

/// The one that most files of a change are written in.
pub(super) fn of_files(files: &[FilePatch]) -> Option<&'static Language> {
    let count = |language: &&Language| files.iter().filter(|file| language.has(&file.path)).count();
    let mut best: Option<(&'static Language, usize)> = None;
    for language in &LANGUAGES {
        let files = count(&language);
        if files > best.map_or(0, |(_, most)| most) {
            best = Some((language, files));
        }
    }
    best.map(|(language, _)| language)
}

impl Language {
    fn has(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').is_some_and(|(_, end)| self.ends.contains(&end))
    }

    /// The image of a version of it.
    pub(super) fn image(&self, version: Option<&str>) -> String {
        format!("{}:{}", self.image.0, version.unwrap_or(self.image.1))
    }

    /// The usual command for these test files, of which those of the language count.
    pub(super) fn command(&self, tests: &[&str]) -> String {
        let files: Vec<&str> = tests.iter().copied().filter(|path| self.has(path)).collect();
        let mut folders: Vec<String> = files
            .iter()
            .map(|path| match path.rsplit_once('/') {
                Some((folder, _)) => format!("./{folder}"),
                None => ".".to_owned(),
            })
            .collect();
        folders.sort();
        folders.dedup();
        let quoted = |words: &mut dyn Iterator<Item = &str>| words.map(quoted).collect::<Vec<_>>().join(" ");
        let files = quoted(&mut files.into_iter());
        let folders = quoted(&mut folders.iter().map(String::as_str));
        let command = self.command.replace("FILES", &files).replace("FOLDERS", &folders);
        command.trim_end().to_owned()
    }
}

/// The format of the logs that a named parser of others reads.
pub(super) fn format_of_parser(name: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 24] = [
        ("pytest", "pytest"),
        ("django", "unittest"),
        ("unittest", "unittest"),
        ("sympy", "sympy"),
        ("seaborn", "pytest"),
        ("matplotlib", "pytest"),
        ("gotest", "go"),
        ("cargo", "cargo"),
        ("jest", "jest"),
        ("vitest", "jest"),
        ("mocha", "jest"),
        ("karma", "jest"),
        ("tap", "jest"),
        ("maven", "junit"),
        ("gradle", "junit"),
        ("junit", "junit"),
        ("ant", "junit"),
        ("phpunit", "phpunit"),
        ("rspec", "rspec"),
        ("minitest", "minitest"),
        ("ruby", "minitest"),
        ("ctest", "ctest"),
        ("googletest", "ctest"),
        ("go", "go"),
    ];
    let name = name.to_lowercase();
    let name = name.strip_prefix("parse_log_").unwrap_or(&name);
    crate::verifier::log_formats()
        .find(|format| *format == name)
        .or_else(|| {
            WORDS
                .iter()
                .find(|(word, _)| name.contains(word))
                .map(|(_, format)| *format)
        })
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '=' | '@' | '%' | '+' | ',');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_test_files_of_the_language() {
        let tests = ["pkg/a_test.go", "pkg/testdata/x.txt", "b_test.go", "pkg/c_test.go"];
        assert_eq!(named("golang").unwrap().command(&tests), "go test -v . ./pkg");
        assert_eq!(
            named("Python").unwrap().command(&["tests/test a.py"]),
            "python3 -m pytest -rA 'tests/test a.py'"
        );
        assert_eq!(named("python").unwrap().image(Some("3.9")), "python:3.9");
        assert_eq!(named("cobol").map(|language| language.name), None);
    }

    #[test]
    fn parsers_of_others_have_a_format() {
        for (name, format) in [
            ("parse_log_pytest_v2", "pytest"),
            ("parse_log_django", "unittest"),
            ("parse_log_gotest", "go"),
            ("parse_log_vitest", "jest"),
            ("parse_log_gradle_custom", "junit"),
            ("cargo", "cargo"),
        ] {
            assert_eq!(format_of_parser(name), Some(format));
        }
        assert_eq!(format_of_parser("parse_log_something"), None);
    }

    #[test]
    fn every_language_has_a_known_log() {
        for language in &LANGUAGES {
            assert!(
                crate::verifier::log_rules(language.format).is_some(),
                "{}",
                language.name
            );
        }
    }
}

//! The dashboard in a real browser, on a run that was really trained and a log of another system.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{peers, root, succeeds};

/// A browser of this machine, if there is one: `tests/run` installs it where it can.
fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("LEGO_TEST_BROWSER").map(PathBuf::from);
    let known = [
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = || {
        let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
        known
            .iter()
            .flat_map(|name| places.iter().map(move |place| place.join(name)))
            .find(|path| path.is_file())
    };
    named.or_else(found)
}

/// A small run of the quickstart, with validations.
fn train(folder: &Path) {
    let examples = root().join("examples/quickstart");
    let some = |file: &str| {
        let text = std::fs::read_to_string(examples.join(file)).unwrap();
        let lines: Vec<&str> = text.lines().take(4).collect();
        std::fs::write(folder.join(file), lines.join("\n")).unwrap();
    };
    some("train.jsonl");
    some("val.jsonl");
    let set = |key: &str, value: &str| ["--set".to_owned(), format!("{key}={value}")];
    succeeds(
        Command::new(env!("CARGO_BIN_EXE_lego"))
            .arg("train")
            .arg(examples.join("run.toml"))
            .args(["-q", "--steps", "4"])
            .args(set("run.dir", &folder.join("runs").display().to_string()))
            .args(set("data.train", &folder.join("train.jsonl").display().to_string()))
            .args(set(
                "data.val",
                &format!("[\"{}\"]", folder.join("val.jsonl").display()),
            ))
            .args(set("rollout.groups_per_step", "2"))
            .args(set("rollout.group_size", "4"))
            .args(set("train.mini_batch", "2"))
            .args(set("eval.every", "2"))
            .args(set("eval.samples", "1")),
    );
}

/// Puts into every transcript what would be a page's code, were it not shown as text.
fn play_hostile(runs: &Path) {
    let mut folders = vec![runs.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("trajectory.json") {
                let text = std::fs::read_to_string(&path).unwrap();
                let hostile = "<img src=x onerror=owned=1><script>owned=1</script>\u{202e}gpj";
                std::fs::write(&path, text.replace("Fix the program.", hostile)).unwrap();
            }
        }
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_panel_shows_the_run() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    train(folder.path());
    let runs = folder.path().join("runs");
    play_hostile(&runs);
    let log = runs.join("foreign.log");
    let lines: Vec<String> = (1..=30)
        .map(|step| {
            format!(
                "step:{step} - critic/score/mean:{} - actor/entropy:0.5\n",
                f64::from(step) / 50.0
            )
        })
        .collect();
    std::fs::write(&log, lines.concat()).unwrap();
    let exported = folder.path().join("board.html");
    let lego = || Command::new(env!("CARGO_BIN_EXE_lego"));
    succeeds(lego().args(["dashboard", "--export"]).arg(&exported).arg(&runs));
    let mut server = Ended(
        lego()
            .args(["dashboard", "--listen", "127.0.0.1:0"])
            .arg(&runs)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut url = String::new();
    BufReader::new(server.0.stdout.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    let page = std::fs::read_to_string(&exported).unwrap();
    let id = |name: &str| {
        let start = page.find(&format!("\"id\":\"{name}-")).unwrap() + 6;
        page[start..].split('"').next().unwrap().to_owned()
    };
    let mut visit = Ended(
        Command::new("node")
            .arg(root().join("tests/peers/browser/pages.cjs"))
            .arg(peers("npm/browser"))
            .arg(browser)
            .arg(url.trim())
            .arg(&exported)
            .args([id("quickstart"), id("foreign")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut said = Vec::new();
    for line in BufReader::new(visit.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "append" {
            let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
            writeln!(file, "step:31 - critic/score/mean:0.7 - actor/entropy:0.4").unwrap();
        }
        said.push(line);
    }
    assert_eq!(said.last().map(String::as_str), Some("good"), "{said:#?}");
}

//! `lego serve-proxy` over the pipeline.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lego::config::Loaded;
use lego::pipeline::{PipelineError, ServeJob, Served, replay_session, serve_proxy};
use lego::trajectory::SessionKey;
use tokio_util::sync::CancellationToken;

use super::until_stopped;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};
use crate::serve_proxy::ServeProxyArgs;

/// What the first signal waits for.
const ENDS_WHEN: &str = "calls that run (30 s at most)";

/// Ends what the process in the background prints.
const READY: &str = "# ready";

/// Serves until it is told to stop.
pub(crate) fn serve(printer: &Printer, loaded: Loaded, args: &ServeProxyArgs) -> Result<Exit, Failure> {
    // An empty one would open the admin routes to everybody.
    let given = args.admin_token.clone().filter(|token| !token.trim().is_empty());
    let shown_token = given.is_none().then(|| SessionKey::random().0);
    let admin_token = given.or_else(|| shown_token.clone()).unwrap_or_default();
    let in_background = args.background;
    let ready = Arc::new(AtomicBool::new(false));
    let ended = until_stopped(printer, ENDS_WHEN, |stop| {
        if in_background {
            end_with_parent(&ready, &stop.finish);
        }
        let job = ServeJob {
            config: loaded.config,
            capture: args.capture.clone(),
            anonymous: args.anonymous,
            admin_token: admin_token.clone(),
            open_session: in_background,
            stop: stop.finish,
        };
        serve_proxy(job, |served| {
            let text = if in_background {
                // From here on it stays, whoever started it.
                ready.store(true, Ordering::Release);
                environment(served, &admin_token)
            } else {
                format!("{}\n", served.url)
            };
            let told = printer.text(&text).map_err(|_| closed_pipe());
            if served.exposed {
                printer.note(format_args!(
                    "warning: whoever reaches {} may call the model: `--anonymous` asks nobody for a key; bind \
                     `proxy.listen` to 127.0.0.1, or keep others from its port",
                    served.url
                ));
            }
            printer.note(format_args!("{}", settings(served)));
            if let (false, Some(token)) = (in_background, &shown_token) {
                printer.note(format_args!("admin token: {token}"));
            }
            told
        })
    })?;
    let Some(result) = ended else {
        printer.note(format_args!("stopped at once; finished calls are in the call logs"));
        return Ok(Exit::Interrupted);
    };
    let shards = result?;
    if !in_background {
        for path in &shards {
            printer.note(format_args!("{}", path.display()));
        }
    }
    Ok(Exit::Ok)
}

/// What clients get, whatever they ask for.
fn settings(served: &Served) -> String {
    format!(
        "serves `{}`, whatever model a request names; {} tokens of prompt and answer together, {} of an answer at most",
        served.model, served.window, served.max_tokens
    )
}

/// In the background: stops where who started it is gone before it has been told how to reach it. Its stdin is a pipe
/// that the other one holds open.
fn end_with_parent(ready: &Arc<AtomicBool>, stop: &CancellationToken) {
    let (ready, stop) = (Arc::clone(ready), stop.clone());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        if !ready.load(Ordering::Acquire) {
            stop.cancel();
        }
    });
}

fn closed_pipe() -> PipelineError {
    PipelineError::Io(std::io::ErrorKind::BrokenPipe.into())
}

/// The variables that point clients at it.
fn environment(served: &Served, admin_token: &str) -> String {
    let mut text = String::new();
    let mut export = |name: &str, value: &str| {
        // Nothing of it holds a quote: addresses, hexadecimal, and names that are checked here.
        let value = value.replace('\'', "");
        let _ = writeln!(text, "export {name}='{value}'");
    };
    export("LEGO_PROXY_URL", &served.url);
    export("LEGO_PROXY_PID", &std::process::id().to_string());
    export("LEGO_ADMIN_TOKEN", admin_token);
    if let Some(session) = &served.session {
        export("LEGO_SESSION", &session.key.0);
        export("OPENAI_BASE_URL", &format!("{}/v1", session.url));
        export("OPENAI_API_KEY", &session.token);
        export("ANTHROPIC_BASE_URL", &session.url);
        export("ANTHROPIC_AUTH_TOKEN", &session.token);
        export("ANTHROPIC_MODEL", &served.model);
    }
    text + READY + "\n"
}

/// Starts the same command in the background, prints what it says until it is ready, and leaves it alone.
pub(crate) fn serve_in_background(printer: &Printer) -> Result<Exit, Failure> {
    use std::os::unix::process::CommandExt as _;
    let failed = |error: std::io::Error| Failure::unavailable("cannot start the proxy in the background").source(error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--background")
        // It ends with this process, as long as it is not ready.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A terminal's Ctrl-C is not meant for it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            if line == READY {
                printer.text(&text)?;
                return Ok(Exit::Ok);
            }
            text += &line;
            text.push('\n');
        }
    }
    let status = child.wait().map_err(failed)?;
    Err(Failure::unavailable(format!(
        "the proxy ended before it listened: {status}"
    )))
}

/// Runs a recorded session again and prints what changes.
pub(crate) fn replay(printer: &Printer, loaded: &Loaded, log: &Path, format: FormatArg) -> Result<Exit, Failure> {
    let stdin = Path::new("/dev/stdin");
    let log = if log.as_os_str() == "-" { stdin } else { log };
    let replay = replay_session(&loaded.config, log)?;
    if replay.calls == 0 {
        return Err(
            Failure::nothing_selected(format!("{} holds no recorded call", log.display()))
                .hint("expected the calls.jsonl of a session, as trials and `--capture` write it"),
        );
    }
    printer.rows(format.format, &replay.changes, |changes| {
        table(
            &["CALL", "WHAT", "RECORDED", "TODAY"],
            &[0],
            changes.iter().map(|change| {
                vec![
                    change.call.to_string(),
                    change.what.to_owned(),
                    shortened(&change.recorded),
                    shortened(&change.today),
                ]
            }),
        )
    })?;
    let trained = |capture: &lego::proxy::SessionCapture| -> usize {
        capture
            .segments
            .iter()
            .map(lego::trajectory::Segment::trained_tokens)
            .sum()
    };
    printer.note(format_args!(
        "{} calls · {} changes · segments {} → {} · trained tokens {} → {}",
        replay.calls,
        replay.changes.len(),
        replay.recorded.segments.len(),
        replay.today.segments.len(),
        trained(&replay.recorded),
        trained(&replay.today),
    ));
    Ok(if replay.changes.is_empty() {
        Exit::Ok
    } else {
        Exit::Negative
    })
}

fn shortened(text: &str) -> String {
    let mut line: String = text.chars().take(60).collect::<String>().replace('\n', "⏎");
    if text.chars().nth(60).is_some() {
        line.push('…');
    }
    line
}

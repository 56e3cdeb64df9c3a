//! `lego dashboard`: runs in a browser, live, or as one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lego::dashboard::{
    Board, BoardOptions, DashboardError, LISTED_TRIALS, ServerOptions, WHOLE_TRIALS, export, new_token, serve,
};
use tokio::net::TcpListener;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::signals::Stop;
use crate::tunnel::Tunnel;
use crate::wiring::LISTEN;

const EXAMPLES: &str = "\
Examples:
  lego dashboard
  lego dashboard runs /logs/other_system.log
  lego dashboard runs --export board.html --run first
  lego dashboard runs --tunnel cloudflared
  lego dashboard runs --tunnel 'ssh -N -R 8080:localhost:{port} box'";

/// Ports that are tried where none is named.
const PORTS: std::ops::RangeInclusive<u16> = 8090..=8095;
/// How long a question about trials waits while they are read: for a page, and for a file.
const SOON: Duration = Duration::from_millis(100);
const WHOLE: Duration = Duration::from_mins(30);
/// Reasons for passing something over that are told one by one.
const MOST_REASONS: usize = 10;

/// Show runs in a browser, live
///
/// Finds runs in the given folders: those of `lego train` and `lego rollout -o`, and logs of other systems with
/// `step:N - key:value` lines. The first line on stdout is the address. It reads and never writes, listens on this machine
/// alone unless told otherwise, and asks for a token (in the address) once it is bound elsewhere or behind a tunnel.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DashboardArgs {
    /// Folders with runs, runs, or logs; `runs`, or else this folder, where none is named
    #[arg(value_name = "RUNS_DIR")]
    folders: Vec<PathBuf>,
    /// Address to listen on; the first free port from 127.0.0.1:8090 to 8095 where none is named
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Open a browser
    #[arg(long)]
    open: bool,
    /// File with the token that a browser must know; made up where one is needed and none is named
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Path below which a reverse proxy shows it
    #[arg(long, value_name = "PATH")]
    base_path: Option<String>,
    /// Write one self-contained file instead of serving; `-` is stdout
    #[arg(long, value_name = "FILE.html")]
    export: Option<PathBuf>,
    /// The runs to export; all where none is named
    #[arg(long, value_name = "RUN", requires = "export")]
    run: Vec<String>,
    /// Start an installed tunnel program and print its URL: `cloudflared`, or a command with `{port}`
    #[arg(long, value_name = "COMMAND", conflicts_with = "export")]
    tunnel: Option<String>,
}

pub(crate) fn run(printer: &Printer, args: &DashboardArgs) -> Result<Exit, Failure> {
    let roots = if args.folders.is_empty() {
        let runs = PathBuf::from("runs");
        vec![if runs.is_dir() { runs } else { PathBuf::from(".") }]
    } else {
        args.folders.clone()
    };
    // A page is shown with what is there and fills as the rest is read; a file is to hold all of it.
    let patience = if args.export.is_some() { WHOLE } else { SOON };
    let options = BoardOptions {
        roots: roots.clone(),
        patience,
    };
    let board = Board::open(&options).map_err(failed)?;
    tell(printer, &board, &roots);
    if let Some(file) = &args.export {
        return write(printer, &board, args, file);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(watch(printer, board, args));
    runtime.shutdown_background();
    exit
}

fn failed(error: DashboardError) -> Failure {
    match error {
        DashboardError::NoRun { .. } => Failure::nothing_selected(error.to_string()),
        DashboardError::Io(error) => Failure::unavailable("the dashboard's server failed").source(error),
        error @ DashboardError::NoFolder(_) => Failure::usage(error.to_string()),
    }
}

fn tell(printer: &Printer, board: &Board, roots: &[PathBuf]) {
    let (runs, skipped) = board.seen();
    let places: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    let plural = if runs == 1 { "" } else { "s" };
    printer.note(format_args!("{runs} run{plural} in {}", places.join(", ")));
    for skipped in skipped.iter().take(MOST_REASONS) {
        printer.note(format_args!(
            "passed over {}: {}",
            skipped.path.display(),
            skipped.reason
        ));
    }
    if skipped.len() > MOST_REASONS {
        printer.note(format_args!(
            "and {} more, listed in the page under Import",
            skipped.len() - MOST_REASONS
        ));
    }
    if runs == 0 {
        printer.note(format_args!(
            "no run yet: the page shows those that begin while it is open; `lego train` writes to `runs/<name>`"
        ));
    }
}

fn write(printer: &Printer, board: &Board, args: &DashboardArgs, file: &Path) -> Result<Exit, Failure> {
    if board.seen().0 == 0 {
        return Err(Failure::nothing_selected("there is no run to export"));
    }
    let page = export(board, &args.run).map_err(failed)?;
    if file == Path::new("-") {
        printer.text(&page)?;
        return Ok(Exit::Ok);
    }
    fs_err::write(file, &page)?;
    printer.note(format_args!(
        "wrote {} ({} KB); of each run it lists the newest {LISTED_TRIALS} trials and holds at most {WHOLE_TRIALS} in full",
        file.display(),
        page.len() / 1000
    ));
    Ok(Exit::Ok)
}

async fn watch(printer: &Printer, board: Arc<Board>, args: &DashboardArgs) -> Result<Exit, Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::unavailable("cannot listen to signals").source(error))?;
    let listener = listen(args.listen.as_deref()).await?;
    let address = listener.local_addr()?;
    let base_path = base_path(args.base_path.as_deref())?;
    let token = match &args.token_file {
        Some(file) => Some(token(file)?),
        None => (!address.ip().is_loopback() || args.tunnel.is_some()).then(new_token),
    };
    let query = token
        .as_ref()
        .map_or_else(String::new, |token| format!("?token={token}"));
    let mut url = format!("http://{address}{base_path}/{query}");
    let tunnel = match &args.tunnel {
        Some(command) => {
            let tunnel = Tunnel::start(command, address.port()).await?;
            match &tunnel.url {
                Some(public) => url = format!("{}{base_path}/{query}", public.trim_end_matches('/')),
                None => printer.note(format_args!(
                    "`{command}` names no address: the page is at its other end, with {query}"
                )),
            }
            Some(tunnel)
        }
        None => None,
    };
    printer.text(&format!("{url}\n"))?;
    if args.open {
        open(printer, &url);
    }
    let ending = stop.finish.clone();
    let serving = serve(listener, board, ServerOptions { token, base_path }, ending);
    let ended = match tunnel {
        Some(mut tunnel) => tokio::select! {
            ended = serving => {
                tunnel.end().await;
                ended
            }
            status = tunnel.ended() => return Err(Failure::unavailable(format!("the tunnel ended: {status}"))),
        },
        None => serving.await,
    };
    ended.map_err(failed)?;
    Ok(Exit::Interrupted)
}

async fn listen(named: Option<&str>) -> Result<TcpListener, Failure> {
    if let Some(address) = named {
        return TcpListener::bind(address).await.map_err(|error| {
            Failure::unavailable(format!("cannot listen on {address}"))
                .source(error)
                .hint(LISTEN)
        });
    }
    for port in PORTS {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return Ok(listener);
        }
    }
    let text = format!("ports {} to {} of 127.0.0.1 are taken", PORTS.start(), PORTS.end());
    Err(Failure::unavailable(text).hint("name one with `--listen 127.0.0.1:0`"))
}

fn base_path(named: Option<&str>) -> Result<String, Failure> {
    let path = named.unwrap_or_default().trim_end_matches('/');
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if path.is_empty() || (path.starts_with('/') && path[1..].split('/').all(plain)) {
        return Ok(path.to_owned());
    }
    Err(Failure::usage(format!(
        "--base-path {path}: expected a path such as `/lego`"
    )))
}

fn token(file: &Path) -> Result<String, Failure> {
    let token = fs_err::read_to_string(file).map_err(|error| Failure::usage("cannot read the token").source(error))?;
    let token = token.trim().to_owned();
    if token.len() < 8
        || !token
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    {
        return Err(Failure::usage(format!(
            "{}: expected a token of 8 letters, digits, `-` and `_` or more",
            file.display()
        )));
    }
    Ok(token)
}

/// Asks the desktop for a browser; where there is none, the address is on stdout.
fn open(printer: &Printer, url: &str) {
    let started = std::process::Command::new("xdg-open")
        .arg(url)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    if let Err(error) = started {
        printer.note(format_args!(
            "cannot open a browser (xdg-open: {error}); open the address yourself"
        ));
    }
}

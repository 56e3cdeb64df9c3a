//! `lego serve-proxy`.

use std::path::PathBuf;

use lego::config::Override;

use crate::config_args::ConfigArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer};
use crate::wiring;

const EXAMPLES: &str = "\
Examples:
  lego serve-proxy run.toml --capture shards --anonymous
  eval \"$(lego serve-proxy run.toml --capture shards --print-env)\"
  lego serve-proxy --upstream http://localhost:8080 --capture shards --anonymous
  lego serve-proxy run.toml --replay shards/calls/my-task.jsonl";

/// Serve an OpenAI and Anthropic API in front of the policy and record exact tokens
///
/// The first line on stdout is the address. Sessions are opened, listed and finished with the admin token: GET and POST
/// /sess, GET /sess/NAME/trajectory, POST /sess/NAME/finish {"reward": 1.0}. A finish that failed can be repeated. The
/// names of `--capture`'s call logs are taken for good. `lego train` and `lego rollout` start their own proxy.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServeProxyArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Hosted API to pass calls on to, which gives no token ids; needs no run config (`engine.kind = "openai"`)
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Address to listen on; port 0 picks a free one (`proxy.listen`)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Write finished sessions as shards into this folder, and the log of every session below its `calls`
    #[arg(long, value_name = "DIR")]
    pub(crate) capture: Option<PathBuf>,
    /// Folder with `tokenizer.json` and `tokenizer_config.json` (`policy.tokenizer`)
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Give clients that bring no session one of their own, named as their URL names it
    #[arg(long)]
    pub(crate) anonymous: bool,
    /// Opens the admin routes; a random one where it is not set or empty
    #[arg(long, value_name = "TOKEN", env = "LEGO_ADMIN_TOKEN", hide_env_values = true)]
    pub(crate) admin_token: Option<String>,
    /// Print the variables that point a client at it, and stay in the background
    #[arg(long)]
    pub(crate) print_env: bool,
    /// Run a recorded session through today's parsers and capture, print what changes, and stop; `-` reads stdin
    #[arg(long, value_name = "CALLS.JSONL|-", conflicts_with_all = ["capture", "print_env"])]
    pub(crate) replay: Option<PathBuf>,
    /// Whether this is the process in the background
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    #[command(flatten)]
    pub(crate) format: FormatArg,
}

#[expect(clippy::needless_pass_by_value, reason = "every command takes what clap hands over")]
pub(crate) fn run(printer: &Printer, args: ServeProxyArgs) -> Result<Exit, Failure> {
    let upstream = |key: &str, value: String| Override::flag("--upstream", key, value);
    let overrides = [
        args.upstream
            .as_ref()
            .map(|_| upstream("engine.kind", "openai".to_owned())),
        args.upstream
            .as_ref()
            .map(|url| upstream("engine.endpoints", format!("[{url:?}]"))),
        args.listen
            .as_ref()
            .map(|address| Override::flag("--listen", "proxy.listen", address)),
        args.tokenizer
            .as_ref()
            .map(|folder| Override::flag("--tokenizer", "policy.tokenizer", folder.display())),
    ];
    let overrides = overrides.into_iter().flatten().collect();
    let mut loaded = if args.upstream.is_some() {
        args.config.load_or_default(overrides)?
    } else {
        args.config.load(overrides)?
    };
    // Before a process in the background is waited for, so that this one shows the bar.
    if !wiring::fetch_models(printer, &mut loaded, false)? {
        return Ok(Exit::Interrupted);
    }
    if let Some(log) = &args.replay {
        return wiring::replay(printer, &loaded, log, args.format);
    }
    if args.print_env && !args.background {
        return wiring::serve_in_background(printer);
    }
    wiring::serve(printer, loaded, &args)
}

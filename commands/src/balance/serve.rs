//! `lego balance`: which replicas are served, and how.

use std::io::Read as _;

use lego::balance::gateway::GatewayOptions;
use lego::balance::hold::HoldSettings;
use lego::config::{BalanceSection, EngineKind, RunConfig, SessionScheduler};

use super::BalanceArgs;
use crate::config_args::ConfigArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::wiring;

pub(super) fn run(printer: &Printer, args: &BalanceArgs) -> Result<Exit, Failure> {
    let config = match &args.config {
        Some(file) if file.to_string_lossy().contains("://") => {
            return Err(Failure::usage(format!(
                "RUN.TOML: expected a file, found the address {}",
                file.display()
            ))
            .hint(format!("`--replica {}` serves a replica", file.display())));
        }
        Some(file) => Some(ConfigArgs::of(file.clone()).load(Vec::new())?.config),
        None => None,
    };
    let replicas = replicas(args, config.as_ref())?;
    let section = section(args, config.as_ref())?;
    let options = GatewayOptions {
        policy: section.policy,
        hold: HoldSettings::of(&section),
        session_header: args.session_header.clone(),
        health_path: args.health_path.clone(),
        ca_file: args
            .ca_file
            .clone()
            .or(config.as_ref().and_then(|config| config.engine.ca_file.clone())),
        // An empty one would open these routes to everybody.
        admin_token: args.admin_token.clone().filter(|token| !token.trim().is_empty()),
        first_byte: args.first_byte.0,
        idle: args.idle.0,
        most_requests: args.most_requests as usize,
        tell_reason: args.tell_reason,
        keep_path: args.keep_path,
        seed: std::process::id().into(),
        ..GatewayOptions::default()
    };
    let listen = args.listen.as_deref().unwrap_or("127.0.0.1:0");
    wiring::balance(printer, options, (&replicas, args.discover.as_ref()), listen)
}

/// `[balance]`, with what flags say above it.
fn section(args: &BalanceArgs, config: Option<&RunConfig>) -> Result<BalanceSection, Failure> {
    let mut section = config.map(|config| config.balance.clone()).unwrap_or_default();
    match args.policy.as_slice() {
        [] => {}
        [one] => {
            section.policy = one
                .parse()
                .map_err(|error| Failure::usage(format!("--policy: {error}")))?;
        }
        _ => {
            return Err(Failure::usage(
                "--policy: expected one, since several are only compared by --simulate",
            ));
        }
    }
    match args.scheduler.as_deref() {
        None => {}
        Some("off") => section.scheduler = SessionScheduler::Off,
        Some("lease") => section.scheduler = SessionScheduler::Lease,
        Some("watermark") => section.scheduler = SessionScheduler::Watermark,
        Some(other) => {
            return Err(Failure::usage(format!(
                "--scheduler: expected `off` or `lease`, found `{other}`"
            )));
        }
    }
    if section.scheduler == SessionScheduler::Watermark {
        return Err(Failure::usage(
            "scheduler `watermark`: servers do not say what they have cached of a prompt, by which it decides",
        )
        .hint("`--scheduler lease` counts for itself what fits"));
    }
    let sets_lease = args.lease.is_some() || args.max_hold.is_some() || args.capacity.is_some();
    if sets_lease && section.scheduler == SessionScheduler::Off {
        return Err(Failure::usage(
            "--lease, --max-hold and --capacity have no effect without --scheduler lease",
        ));
    }
    section.lease = args.lease.unwrap_or(section.lease);
    section.max_hold = args.max_hold.unwrap_or(section.max_hold);
    section.capacity = args.capacity.or(section.capacity);
    Ok(section)
}

fn replicas(args: &BalanceArgs, config: Option<&RunConfig>) -> Result<Vec<String>, Failure> {
    let mut all = args.replica.clone();
    if let Some(file) = &args.replicas {
        let unreadable =
            |error: std::io::Error| Failure::usage(format!("--replicas {file} cannot be read")).source(error);
        let text = if file == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
            text
        } else {
            fs_err::read_to_string(file).map_err(unreadable)?
        };
        let lines = text.lines().map(str::trim);
        all.extend(
            lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(str::to_owned),
        );
    }
    if let Some(config) = config {
        if config.engine.kind == EngineKind::Embedded || config.engine.kind == EngineKind::Replay {
            return Err(Failure::usage(
                "engine.kind: there is nothing to balance in front of an engine of this process",
            )
            .hint("name servers: engine.kind = \"vllm\", engine.endpoints = [\"http://host:8000\", …]"));
        }
        all.extend(config.engine.endpoints.iter().cloned());
    }
    if all.is_empty() && args.discover.is_none() {
        return Err(Failure::usage("no replica is named")
            .hint("`--replica URL`, `--replicas FILE`, `--discover kubernetes:SELECTOR`, or a run.toml with `engine.endpoints`"));
    }
    Ok(all)
}

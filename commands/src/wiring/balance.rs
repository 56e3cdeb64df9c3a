//! `lego balance` over its gateway.

use lego::balance::gateway::{self, Discovery, Gateway, GatewayOptions, ReplicaRow};
use lego::pipeline::PipelineError;
use tokio::net::TcpListener;

use super::until_stopped;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;

/// What the first signal waits for.
const ENDS_WHEN: &str = "requests that run (30 s at most)";

/// Serves until it is told to stop.
pub(crate) fn balance(
    printer: &Printer,
    options: GatewayOptions,
    (replicas, discovery): (&[String], Option<&Discovery>),
    listen: &str,
) -> Result<Exit, Failure> {
    let mut bad = None;
    let ended = until_stopped(printer, ENDS_WHEN, |stop| {
        let bad = &mut bad;
        async move {
            let gateway = Gateway::new(options);
            for url in replicas {
                if let Err(error) = gateway.add(url) {
                    *bad = Some(Failure::usage(error.to_string()));
                    return Ok(());
                }
            }
            let listener = TcpListener::bind(listen)
                .await
                .map_err(|source| PipelineError::Listen {
                    address: listen.to_owned(),
                    source,
                })?;
            let address = listener.local_addr()?;
            let told = printer.text(&format!("http://{address}\n"));
            told.map_err(|_| PipelineError::Io(std::io::ErrorKind::BrokenPipe.into()))?;
            let discovering = async {
                match discovery {
                    Some(discovery) => gateway.discover(discovery).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                served = gateway.serve(listener, stop.finish.cancelled_owned()) => served?,
                Err(reason) = discovering => {
                    *bad = Some(Failure::unavailable(format!("--discover: no cluster can be asked: {reason}")));
                }
            }
            Ok(())
        }
    })?;
    if let Some(error) = bad {
        return Err(error);
    }
    match ended {
        Some(result) => result.map(|()| Exit::Ok).map_err(Failure::from),
        None => Ok(Exit::Interrupted),
    }
}

/// The replicas of the gateway at this address.
pub(crate) fn replicas_of(url: &str) -> Result<Vec<ReplicaRow>, Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime
        .block_on(gateway::replicas_of(url))
        .map_err(|error| Failure::unavailable(error.to_string()))
}

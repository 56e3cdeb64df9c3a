//! A tunnel program of the user's: started beside the dashboard, its address read from what it says, ended with it.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// For its first address.
const PATIENCE: Duration = Duration::from_secs(30);
/// For its end, before it is killed.
const ENDING: Duration = Duration::from_secs(5);

/// A tunnel that runs.
pub(crate) struct Tunnel {
    child: Child,
    /// The first `https` address that it printed, or else the first `http` one that is not this machine's.
    pub(crate) url: Option<String>,
}

impl Tunnel {
    /// Starts `cloudflared`, or a command in which `{port}` stands for the port.
    pub(crate) async fn start(command: &str, port: u16) -> Result<Self, Failure> {
        let line = match command {
            "cloudflared" => format!("exec cloudflared tunnel --no-autoupdate --url http://127.0.0.1:{port}"),
            command if command.contains("{port}") => format!("exec {}", command.replace("{port}", &port.to_string())),
            command => {
                return Err(Failure::usage(format!(
                    "--tunnel {command}: expected `cloudflared`, or a command with `{{port}}`"
                )));
            }
        };
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::unavailable("cannot start the tunnel").source(error))?;
        let (sender, mut lines) = mpsc::channel(64);
        if let Some(stdout) = child.stdout.take() {
            hand_over(stdout, sender.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            hand_over(stderr, sender);
        }
        let mut said: Vec<String> = Vec::new();
        let told = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = lines.recv().await {
                if let Some(url) = address(&line) {
                    return Some(url);
                }
                said.push(line);
            }
            None
        });
        let url = told.await.unwrap_or_default();
        if let Ok(Some(status)) = child.try_wait() {
            let last = said.last().map_or_else(String::new, |line| format!(": {line}"));
            return Err(
                Failure::unavailable(format!("the tunnel ended before it was ready ({status}){last}"))
                    .hint("is the program installed? try the command by hand"),
            );
        }
        // It may go on talking: nobody listens, and it must not wait for that.
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        Ok(Self { child, url })
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&mut self) -> String {
        self.child
            .wait()
            .await
            .map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string())
    }

    /// Ends it: politely, and then not.
    pub(crate) async fn end(&mut self) {
        if let Some(pid) = self.child.id() {
            let _ = Command::new("kill").arg(pid.to_string()).status().await;
        }
        if tokio::time::timeout(ENDING, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

fn hand_over(stream: impl AsyncRead + Unpin + Send + 'static, sender: mpsc::Sender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).await.is_err() {
                break;
            }
        }
    });
}

/// An address of elsewhere in a line.
fn address(line: &str) -> Option<String> {
    let start = line.find("https://").or_else(|| line.find("http://"))?;
    let url: String = line[start..]
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '.' | '-' | '_' | '[' | ']'))
        .collect();
    let here = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"];
    let elsewhere = !here
        .iter()
        .any(|name| url.split("://").nth(1).is_some_and(|rest| rest.starts_with(name)));
    // Programs greet with addresses of their makers.
    let made_for_it = !["/docs", "developers.", "github.com", "/terms"]
        .iter()
        .any(|part| url.contains(part));
    (elsewhere && made_for_it).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_other_end_is_found() {
        let line = "2026 INF |  https://quick-red-fox.trycloudflare.com                       |";
        assert_eq!(
            address(line).as_deref(),
            Some("https://quick-red-fox.trycloudflare.com")
        );
        assert_eq!(address("see https://developers.cloudflare.com/argo"), None);
        assert_eq!(address("proxying to http://127.0.0.1:8090"), None);
    }
}

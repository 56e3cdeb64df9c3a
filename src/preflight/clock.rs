//! `clock`, live: this machine's clock against those of the servers and of the container engine.

use std::time::Duration;

use jiff::Timestamp;

use super::Finding;
use crate::config::{BackendName, Loaded};
use crate::http_client;
use crate::sandbox::docker::{DockerBackend, DockerOptions};

pub(super) const ID: &str = "clock";
/// Time for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Seconds of difference that are told: a server tells whole seconds, and asking takes some time.
const TOLERATED: f64 = 5.0;

/// Whose clock, by the key that names it, and by how much it is ahead of this machine's, in seconds.
struct Told {
    key: &'static str,
    whose: String,
    ahead: f64,
}

pub(super) async fn look(run: &Loaded) -> Vec<Finding> {
    let mut told = Vec::new();
    let engine = &run.config.engine;
    if engine.kind.is_remote() || engine.kind == crate::config::EngineKind::Openai {
        for endpoint in &engine.endpoints {
            if let Some(ahead) = of_server(endpoint, engine.ca_file.as_deref()).await {
                told.push(Told {
                    key: "engine.endpoints",
                    whose: endpoint.clone(),
                    ahead,
                });
            }
        }
    }
    if run.config.sandbox.backend == BackendName::Docker
        && let Some(ahead) = of_container_engine(run).await
    {
        told.push(Told {
            key: "sandbox.docker.host",
            whose: "the container engine".to_owned(),
            ahead,
        });
    }
    judge(run, &told)
}

fn judge(run: &Loaded, told: &[Told]) -> Vec<Finding> {
    let wrong: Vec<Finding> = told
        .iter()
        .filter(|one| one.ahead.abs() > TOLERATED)
        .map(|one| {
            let way = if one.ahead > 0.0 { "ahead of" } else { "behind" };
            let text = format!(
                "the clock of {} is {:.0} s {way} this machine's: certificates may count as not valid yet, and times in logs \
                 do not compare",
                one.whose,
                one.ahead.abs()
            );
            let finding = Finding::warn(ID, text).at(run, one.key);
            finding.help("set both by the same time server (NTP)")
        })
        .collect();
    if !wrong.is_empty() || told.is_empty() {
        return wrong;
    }
    let most = told.iter().map(|one| one.ahead.abs()).fold(0.0, f64::max);
    let text = format!(
        "{} clocks differ from this machine's by {most:.1} s at most",
        told.len()
    );
    vec![Finding::pass(ID, text)]
}

/// By the `Date` of any answer. Whether the server is well is for other checks.
async fn of_server(endpoint: &str, ca_file: Option<&std::path::Path>) -> Option<f64> {
    let client = if endpoint.starts_with("https:") {
        http_client::trusting(ca_file).ok()?
    } else {
        http_client::plain()
    };
    let client = client.timeout(ANSWER).build().ok()?;
    let asked = Timestamp::now();
    let answer = client
        .get(format!("{}/health", endpoint.trim_end_matches('/')))
        .send()
        .await
        .ok()?;
    let date = answer.headers().get("date")?.to_str().ok()?;
    ahead(date_of(date)?, asked, Timestamp::now())
}

fn date_of(text: &str) -> Option<Timestamp> {
    Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
}

/// Against the middle of the time that asking took; nothing where that says too little.
fn ahead(theirs: Timestamp, asked: Timestamp, answered: Timestamp) -> Option<f64> {
    let seconds = |time: Timestamp| time.as_millisecond() as f64 / 1000.0;
    let took = seconds(answered) - seconds(asked);
    (took <= TOLERATED).then(|| seconds(theirs) - (seconds(asked) + took / 2.0))
}

async fn of_container_engine(run: &Loaded) -> Option<f64> {
    let backend = DockerBackend::new(DockerOptions {
        host: run.config.sandbox.docker.host.clone(),
        ..DockerOptions::new("", std::env::temp_dir())
    });
    let asked = Timestamp::now();
    let theirs = tokio::time::timeout(ANSWER, backend.clock()).await.ok()??;
    ahead(theirs, asked, Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, load};
    use crate::preflight::Status;

    /// A server whose clock is off by this.
    async fn server(off: i64) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let time = Timestamp::from_second(Timestamp::now().as_second() + off).unwrap();
                let date = time.strftime("%a, %d %b %Y %H:%M:%S GMT");
                let answer =
                    format!("HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn a_clock_that_is_off_is_told_with_its_server() {
        let (right, wrong) = (server(0).await, server(-90).await);
        let of = |urls: &[&String]| {
            let text = format!("engine.kind = \"vllm\"\nengine.endpoints = {urls:?}\n");
            load(&Layers::text(&text)).unwrap()
        };
        let found = look(&of(&[&right])).await;
        assert_eq!((found.len(), found[0].status), (1, Status::Pass), "{found:?}");
        let found = look(&of(&[&right, &wrong])).await;
        assert_eq!((found.len(), found[0].status), (1, Status::Warn), "{found:?}");
        let said = &found[0].detail;
        assert!(
            said.contains(&wrong) && said.contains("s behind this machine's"),
            "{said}"
        );
        // One that does not answer is not this check's.
        assert!(look(&of(&[&"http://127.0.0.1:1".to_owned()])).await.is_empty());
    }

    #[test]
    fn a_slow_answer_says_nothing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(ahead(at(103), at(100), at(104)), Some(1.0));
        assert_eq!(ahead(at(103), at(100), at(106)), None);
    }
}

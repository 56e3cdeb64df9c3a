//! A pull, and what an engine says while it works.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::{Stream, StreamExt};

use super::{Why, credentials, refused};

/// Longest silence of a pull, and of a push.
pub(super) const SILENCE: Duration = Duration::from_mins(2);
/// Time for a pull as a whole, and for a push.
pub(super) const PULL: Duration = Duration::from_mins(30);
/// Lines of what was said that an error shows.
const SHOWN: usize = 15;
/// How registries say that there is no such image, in the middle of a pull.
const MISSING: [&str; 3] = ["manifest unknown", "not found", "does not exist"];

pub(super) async fn pull(client: &Docker, name: &str) -> Result<(), Why> {
    tracing::info!(image = name, "pulling");
    // A name without a tag or digest would mean every tag.
    let last = name.rsplit('/').next().unwrap_or(name);
    let options = CreateImageOptionsBuilder::new().from_image(name);
    let options = if last.contains(':') || last.contains('@') {
        options
    } else {
        options.tag("latest")
    };
    let progress = client.create_image(Some(options.build()), None, credentials::of(name));
    let words = progress.map(|event| {
        let event = event.map_err(refused)?;
        match event.error_detail.and_then(|detail| detail.message) {
            Some(message) if MISSING.iter().any(|words| message.contains(words)) => Err(Why::for_good(message)),
            Some(message) => Err(Why::now(message)),
            None => Ok(event.status.unwrap_or_default()),
        }
    });
    follow(words, (SILENCE, PULL), "the pull", |_| {})
        .await
        .map_err(|why| Why {
            reason: format!("it could not be pulled: {}", why.reason),
            ..why
        })
}

/// Reads the engine's words to their end, with a bound on silence and one on all of it. An error comes with the last of
/// what was said before it.
pub(super) async fn follow(
    words: impl Stream<Item = Result<String, Why>>,
    (silence, within): (Duration, Duration),
    what: &str,
    mut hear: impl FnMut(&str),
) -> Result<(), Why> {
    let mut words = pin!(words);
    let mut last = VecDeque::new();
    let read = async {
        loop {
            match tokio::time::timeout(silence, words.next()).await {
                Err(_) => return Err(Why::now(format!("{what} was silent for {silence:?}"))),
                Ok(None) => return Ok(()),
                Ok(Some(word)) => {
                    let word = word?;
                    hear(&word);
                    last.extend(word.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
                    while last.len() > SHOWN {
                        last.pop_front();
                    }
                }
            }
        }
    };
    let ended = tokio::time::timeout(within, read)
        .await
        .unwrap_or_else(|_| Err(Why::now(format!("{what} did not end within {within:?}"))));
    ended.map_err(|why| {
        let said: Vec<String> = last.into();
        if said.is_empty() {
            return why;
        }
        Why {
            reason: format!("{}; before that:\n{}", why.reason, said.join("\n")),
            ..why
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engines_error_comes_with_what_was_said_before() {
        let words = |last: Result<&str, &str>| {
            let all = [Ok("Step 1/2 : RUN make\n"), Ok("\n"), last];
            futures_util::stream::iter(all.map(|word| word.map(str::to_owned).map_err(Why::now)))
        };
        let mut heard = String::new();
        let ended = follow(words(Ok("done")), (SILENCE, PULL), "it", |word| heard.push_str(word)).await;
        assert_eq!(ended, Ok(()));
        assert_eq!(heard, "Step 1/2 : RUN make\n\ndone");
        assert_eq!(
            follow(words(Err("exit code 2")), (SILENCE, PULL), "it", |_| {}).await,
            Err(Why::now("exit code 2; before that:\nStep 1/2 : RUN make"))
        );
        let silent = futures_util::stream::pending();
        let ended = follow(silent, (Duration::from_millis(10), PULL), "the pull", |_| {}).await;
        assert_eq!(ended, Err(Why::now("the pull was silent for 10ms")));
    }
}

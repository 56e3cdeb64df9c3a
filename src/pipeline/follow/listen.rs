//! What the trainer says, as it says it; and that this rollouter lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::buffer::meeting::{Meeting, Published, Rollouter};
use crate::pipeline::{PipelineError, PipelineEvent, PipelineObserver};

/// How often it is listened, and said that this side lives.
const POLL: Duration = Duration::from_millis(500);
const BEAT: Duration = Duration::from_secs(5);
/// Silence of the trainer after which it is told, and after which it is given up.
const UNEASY: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_mins(30);
/// How long a rollouter of the same name is watched for whether it lives.
const NAMESAKE: Duration = Duration::from_secs(11);

/// What the trainer said last, or why it is heard no more.
#[derive(Debug)]
pub(super) struct Listening {
    said: watch::Receiver<Result<Published, String>>,
    task: JoinHandle<()>,
    place: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listening {
    /// What was said last.
    pub(super) fn last(&mut self) -> Result<Published, PipelineError> {
        self.said
            .borrow_and_update()
            .clone()
            .map_err(|_| PipelineError::Silent {
                who: "the trainer",
                place: self.place.clone(),
                minutes: PATIENCE.as_secs() / 60,
            })
    }

    /// Whether something was said since.
    pub(super) fn has_changed(&self) -> bool {
        self.said.has_changed().unwrap_or(false)
    }

    /// Waits until something is said. Safe to drop.
    pub(super) async fn changed(&mut self) {
        if self.said.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for the trainer's first word, then listens on.
pub(super) async fn hear(
    meeting: &Meeting,
    stop: &CancellationToken,
    observer: &PipelineObserver,
) -> Result<Listening, PipelineError> {
    let began = Instant::now();
    let mut told = false;
    let first = loop {
        match meeting.published().await? {
            Some(published) => break published,
            None if !told => {
                told = true;
                observer(PipelineEvent::Warning(format!(
                    "the trainer of {} has said nothing yet: waits for `lego train --publish {}`",
                    meeting.place(),
                    meeting.place()
                )));
            }
            None => {}
        }
        if began.elapsed() > PATIENCE {
            return Err(silent(meeting));
        }
        tokio::select! {
            () = stop.cancelled() => return Err(PipelineError::Stopped),
            () = tokio::time::sleep(POLL) => {}
        }
    };
    let (say, said) = watch::channel(Ok(first.clone()));
    let (meeting_here, observer) = (meeting.clone(), Arc::clone(observer));
    let task = tokio::spawn(async move { listen(&meeting_here, first, &say, &observer).await });
    Ok(Listening {
        said,
        task,
        place: meeting.place().to_owned(),
    })
}

async fn listen(
    meeting: &Meeting,
    mut last: Published,
    say: &watch::Sender<Result<Published, String>>,
    observer: &PipelineObserver,
) {
    let (mut since, mut uneasy) = (Instant::now(), false);
    loop {
        tokio::time::sleep(POLL).await;
        match meeting.published().await {
            Ok(Some(published)) if published.beat != last.beat => {
                (since, uneasy) = (Instant::now(), false);
                let news = Published {
                    beat: last.beat,
                    ..published.clone()
                } != last;
                last = published;
                if news && say.send(Ok(last.clone())).is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the trainer's word cannot be read"),
        }
        if since.elapsed() > UNEASY && !uneasy {
            uneasy = true;
            observer(PipelineEvent::Warning(format!(
                "the trainer of {} has not been heard of for a minute; trials that run go on",
                meeting.place()
            )));
        }
        if since.elapsed() > PATIENCE {
            let _ = say.send(Err("silent".to_owned()));
            return;
        }
    }
}

fn silent(meeting: &Meeting) -> PipelineError {
    PipelineError::Silent {
        who: "the trainer",
        place: meeting.place().to_owned(),
        minutes: PATIENCE.as_secs() / 60,
    }
}

/// Says that this rollouter lives.
pub(super) struct Pulsing {
    meeting: Meeting,
    me: Rollouter,
    groups: Arc<AtomicU64>,
    saying: JoinHandle<()>,
    /// Fires where another has taken the name.
    displaced: CancellationToken,
}

impl Drop for Pulsing {
    fn drop(&mut self) {
        self.saying.abort();
    }
}

impl Pulsing {
    /// So many groups are in work.
    pub(super) fn works_on(&self, groups: u64) {
        self.groups.store(groups, Ordering::Relaxed);
    }

    /// Whether another rollouter took this one's name in the moment in which it began.
    pub(super) fn is_displaced(&self) -> bool {
        self.displaced.is_cancelled()
    }

    /// Says that it has ended.
    pub(super) async fn end(&self) -> Result<(), PipelineError> {
        self.saying.abort();
        if self.is_displaced() {
            return Ok(());
        }
        let last = Rollouter {
            ended: true,
            groups: 0,
            beat: u64::MAX,
            ..self.me.clone()
        };
        Ok(self.meeting.pulse(&last).await?)
    }
}

/// Begins to say that this rollouter lives, unless another of its name does.
pub(super) async fn pulse(meeting: &Meeting, name: &str) -> Result<Pulsing, PipelineError> {
    if let Some(before) = meeting.rollouter(name).await?.filter(|before| !before.ended) {
        let began = Instant::now();
        // A process of this machine tells at once whether it is there.
        let here = own_host() == before.host && !std::path::Path::new(&format!("/proc/{}", before.pid)).exists();
        while !here && began.elapsed() < NAMESAKE {
            tokio::time::sleep(POLL).await;
            if meeting
                .rollouter(name)
                .await?
                .is_some_and(|now| now.beat != before.beat)
            {
                return Err(PipelineError::Config(format!(
                    "a rollouter called `{name}` is alive at {} (process {} on {}): give this one another --name",
                    meeting.place(),
                    before.pid,
                    before.host
                )));
            }
        }
    }
    let me = Rollouter {
        name: name.to_owned(),
        host: own_host(),
        pid: std::process::id(),
        // Other than whatever was said before under this name.
        beat: jiff::Timestamp::now().as_millisecond().unsigned_abs(),
        ended: false,
        groups: 0,
    };
    meeting.pulse(&me).await?;
    let groups = Arc::new(AtomicU64::new(0));
    let (there, mut now, count) = (meeting.clone(), me.clone(), Arc::clone(&groups));
    let displaced = CancellationToken::new();
    let gone = displaced.clone();
    let saying = tokio::spawn(async move {
        loop {
            tokio::time::sleep(BEAT).await;
            let same = |found: &Rollouter| (found.pid, &found.host) == (now.pid, &now.host);
            if let Ok(Some(found)) = there.rollouter(&now.name).await
                && !same(&found)
            {
                gone.cancel();
                return;
            }
            now.beat += 1;
            now.groups = count.load(Ordering::Relaxed);
            if let Err(error) = there.pulse(&now).await {
                tracing::warn!(%error, "this rollouter could not say that it lives");
            }
        }
    });
    Ok(Pulsing {
        meeting: meeting.clone(),
        me,
        groups,
        saying,
        displaced,
    })
}

pub(super) fn own_host() -> String {
    nix::unistd::gethostname().map_or_else(|_| String::new(), |host| host.to_string_lossy().into_owned())
}

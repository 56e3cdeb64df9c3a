//! Models that run.toml names, from their hub or its cache, put into the config as folders.

use std::path::Path;
use std::sync::Mutex;

use lego::config::{EngineKind, Loaded};
use lego::hub::{HubEvent, HubSettings, ModelName, Need, PREFIX, cached, fetch};
use lego::pipeline::PipelineError;

use super::until_stopped;
use crate::failure::Failure;
use crate::output::{Printer, Progress};

const MEGABYTE: u64 = 1_000_000;

/// Downloads what is not in the cache yet. False: it was told to stop.
pub(crate) fn fetch_models(printer: &Printer, loaded: &mut Loaded, trains: bool) -> Result<bool, Failure> {
    let settings = settings();
    for (key, need) in named(loaded, trains) {
        let name = name_of(loaded, key)?;
        let bar = Mutex::default();
        let told = |event| tell(printer, &name, &bar, event);
        let fetched = until_stopped(printer, "nothing: what was downloaded is kept", |stop| {
            let (settings, name, told) = (&settings, &name, &told);
            async move {
                tokio::select! {
                    fetched = fetch(settings, name, need, told) => Ok(fetched?),
                    () = stop.finish.cancelled() => Err(PipelineError::Stopped),
                }
            }
        });
        if let Ok(Some((_, last))) = bar.lock().as_deref() {
            last.finish();
        }
        let Some(snapshot) = fetched? else { return Ok(false) };
        let snapshot = snapshot?;
        place(loaded, key, &name.at(&snapshot.commit), snapshot.folder);
    }
    Ok(true)
}

/// The same of what the cache holds; asks nobody. What is not there keeps its name.
pub(crate) fn cached_models(loaded: &mut Loaded, trains: bool) -> Result<(), Failure> {
    let settings = settings();
    for (key, need) in named(loaded, trains) {
        let name = name_of(loaded, key)?;
        if let Ok(snapshot) = cached(&settings, &name, need) {
            place(loaded, key, &name.at(&snapshot.commit), snapshot.folder);
        }
    }
    Ok(())
}

fn settings() -> HubSettings {
    HubSettings::from_variables(|name| std::env::var(name).ok())
}

/// Keys that name a model, and what it is needed for.
fn named(loaded: &Loaded, trains: bool) -> Vec<(&'static str, Need)> {
    let config = &loaded.config;
    if config.engine.kind == EngineKind::Openai && !trains {
        return Vec::new();
    }
    let reads_weights = trains || config.engine.kind == EngineKind::Embedded;
    let need = if reads_weights { Need::Model } else { Need::Tokenizer };
    let is_name = |path: &Path| path.to_string_lossy().starts_with(PREFIX);
    let model = is_name(&config.policy.model).then_some(("policy.model", need));
    let tokenizer = config.policy.tokenizer.as_deref().is_some_and(is_name);
    let tokenizer = tokenizer.then_some(("policy.tokenizer", Need::Tokenizer));
    model.into_iter().chain(tokenizer).collect()
}

fn name_of(loaded: &Loaded, key: &'static str) -> Result<ModelName, Failure> {
    let policy = &loaded.config.policy;
    let text = match key {
        "policy.tokenizer" => policy.tokenizer.as_deref().unwrap_or(&policy.model),
        _ => &policy.model,
    };
    let parsed = text.to_string_lossy().parse::<ModelName>();
    parsed.map_err(|wrong| {
        let faults = vec![loaded.fault(key, wrong, None)];
        Failure::from(lego::config::ConfigError::Invalid { faults })
    })
}

fn place(loaded: &mut Loaded, key: &str, name: &ModelName, folder: std::path::PathBuf) {
    if key == "policy.tokenizer" {
        loaded.place_tokenizer(&name.to_string(), folder);
    } else {
        loaded.place_model(&name.to_string(), folder);
    }
}

/// A bar a file; the rest in words.
fn tell(printer: &Printer, name: &ModelName, bar: &Mutex<Option<(String, Progress)>>, event: HubEvent) {
    match event {
        HubEvent::Bytes { file, done, total } => {
            let Ok(mut bar) = bar.lock() else { return };
            if bar.as_ref().is_none_or(|(shown, _)| *shown != file) {
                if let Some((_, before)) = bar.take() {
                    before.finish();
                }
                *bar = Some((file.clone(), printer.progress(&file, Some(total.div_ceil(MEGABYTE)))));
            }
            if let Some((_, bar)) = &*bar {
                bar.set(done.div_ceil(MEGABYTE), "MB");
            }
        }
        HubEvent::Again { file, reason } if file.is_empty() => {
            printer.note(format_args!("{name}: {reason}; trying again"));
        }
        HubEvent::Again { file, reason } => printer.note(format_args!("{name}: {file}: {reason}; trying again")),
        HubEvent::FromCache { commit, reason } => printer.note(format_args!(
            "{name}: the hub cannot be reached ({reason}); taking {commit} from the cache"
        )),
    }
}

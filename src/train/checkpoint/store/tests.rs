use super::*;
use crate::config::{AlgorithmName, TrainSection};
use crate::train::Updater;
use crate::train::checkpoint::STATE_VERSION;
use crate::train::fixture::{all_weights, batch, critic, policy, settings};
use crate::trajectory::PolicyVersion;

fn state(step: u64) -> CheckpointState {
    CheckpointState {
        schema_version: STATE_VERSION,
        step,
        version: PolicyVersion {
            lineage: 0,
            update: step,
        },
        data_cursor: step * 16,
        data_step: None,
        ledger_seq: step * 3,
        seed: 42,
        config_digest: "abc".to_owned(),
        files: BTreeMap::new(),
    }
}

struct Run {
    folder: tempfile::TempDir,
    tokenizer: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        let tokenizer = tempfile::tempdir().unwrap();
        fs_err::write(tokenizer.path().join("tokenizer.json"), "{}").unwrap();
        fs_err::write(tokenizer.path().join("tokenizer_config.json"), "{}").unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            tokenizer,
        }
    }

    fn store(&self, keep: usize) -> CheckpointStore {
        CheckpointStore::open(self.folder.path(), keep).unwrap()
    }

    fn save(&self, store: &CheckpointStore, step: u64) -> Checkpoint {
        store
            .save(&policy(step), None, state(step), self.tokenizer.path())
            .unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn newest(store: &CheckpointStore) -> Option<u64> {
    store.latest().unwrap().map(|checkpoint| checkpoint.state.step)
}

#[test]
fn a_checkpoint_is_a_model_folder_with_its_state() {
    let run = Run::new();
    let store = run.store(3);
    assert_eq!(newest(&store), None);
    let saved = run.save(&store, 12);
    assert_eq!(saved.path, run.file("step_000012"));
    for name in [
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        OPTIMIZER,
        "state.json",
    ] {
        assert!(saved.path.join(name).is_file(), "{name}");
    }
    assert_eq!(fs_err::read_link(run.file("latest")).unwrap(), Path::new("step_000012"));
    assert_eq!(store.latest().unwrap().unwrap(), saved);
    assert_eq!(saved.state.ledger_seq, 36);
}

#[test]
fn a_resumed_run_makes_the_same_weights_as_an_uninterrupted_one() {
    let section = TrainSection {
        algorithm: AlgorithmName::Grpo,
        lr: 1e-3,
        mini_batch: Some(1),
        ..TrainSection::default()
    };
    let updater = Updater::new(settings(&section), None).unwrap();
    let episodes = batch();
    let mut uninterrupted = policy(1);
    let run = Run::new();
    for step in 1..=4 {
        updater.step(&mut uninterrupted, step, &episodes).unwrap();
        if step == 2 {
            run.store(3)
                .save(&uninterrupted, None, state(2), run.tokenizer.path())
                .unwrap();
        }
    }
    let mut resumed = policy(99);
    let checkpoint = run.store(3).latest().unwrap().unwrap();
    checkpoint.restore(&mut resumed).unwrap();
    assert_eq!(resumed.step(), 4, "two mini-batches a step");
    for step in checkpoint.state.step + 1..=4 {
        updater.step(&mut resumed, step, &episodes).unwrap();
    }
    assert_eq!(all_weights(&uninterrupted), all_weights(&resumed));
}

#[test]
fn a_critic_goes_on_where_it_was_too() {
    let section = TrainSection {
        algorithm: AlgorithmName::Ppo,
        lr: 1e-3,
        mini_batch: Some(1),
        ..TrainSection::default()
    };
    let updater = Updater::new(settings(&section), None).unwrap();
    let episodes = batch();
    let (mut trained, mut critic) = (policy(1), critic(1));
    let run = Run::new();
    let step = |trainer: &mut Trainer, critic: &mut Trainer, step| {
        let report = updater
            .step_with_critic(trainer, Some(critic), step, &episodes)
            .unwrap();
        report.metrics["critic/vf_loss"]
    };
    step(&mut trained, &mut critic, 1);
    let mut saved = run
        .store(3)
        .save(&trained, Some(&critic), state(1), run.tokenizer.path())
        .unwrap();
    assert!(
        saved.state.files.contains_key("critic/model.safetensors"),
        "{:?}",
        saved.state.files
    );
    saved = run.store(3).latest().unwrap().unwrap();
    let expected = step(&mut trained, &mut critic, 2);
    let mut resumed = policy(9);
    saved.restore(&mut resumed).unwrap();
    let weights = saved.critic_weights().unwrap().unwrap();
    let mut resumed_critic = Trainer::new(weights, lego_policy::Device::Cpu, lego_policy::AdamW::default()).unwrap();
    saved.restore_critic(&mut resumed_critic).unwrap();
    let found = step(&mut resumed, &mut resumed_critic, 2);
    assert_eq!(found.to_bits(), expected.to_bits());
    assert_eq!(all_weights(&resumed), all_weights(&trained));
    assert_eq!(all_weights(&resumed_critic), all_weights(&critic));
    fs_err::write(saved.path.join("critic/model.safetensors"), "").unwrap();
    assert_eq!(newest(&run.store(3)), None, "a damaged critic is a damaged checkpoint");
    let without = run.save(&run.store(3), 2);
    assert!(without.critic_weights().unwrap().is_none());
}

#[test]
fn a_crash_before_the_rename_leaves_the_previous_checkpoint() {
    let run = Run::new();
    run.save(&run.store(3), 1);
    // Killed while the weights were being written.
    let torn = run.file(".tmp-step_000002");
    fs_err::create_dir(&torn).unwrap();
    fs_err::write(torn.join("model.safetensors"), [0; 7]).unwrap();
    let store = run.store(3);
    assert_eq!(newest(&store), Some(1));
    assert!(!torn.exists(), "what nobody will finish is removed");
    run.save(&store, 2);
    assert_eq!(newest(&store), Some(2));
}

#[test]
fn a_crash_between_the_rename_and_the_pointer_loses_nothing() {
    let run = Run::new();
    let store = run.store(3);
    run.save(&store, 1);
    run.save(&store, 2);
    // As if killed before `latest` moved, and while its new link was being made.
    fs_err::remove_file(run.file("latest")).unwrap();
    fs_err::os::unix::fs::symlink("step_000001", run.file("latest")).unwrap();
    fs_err::os::unix::fs::symlink("step_000002", run.file(".tmp-latest")).unwrap();
    let store = run.store(3);
    assert_eq!(newest(&store), Some(2));
    run.save(&store, 3);
    assert_eq!(fs_err::read_link(run.file("latest")).unwrap(), Path::new("step_000003"));
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_can_be_made_again() {
    let run = Run::new();
    let store = run.store(9);
    (1..=4).for_each(|step| drop(run.save(&store, step)));
    let weights = run.file("step_000004").join("model.safetensors");
    let bytes = fs_err::read(&weights).unwrap();
    fs_err::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    fs_err::remove_file(run.file("step_000003").join("state.json")).unwrap();
    assert_eq!(newest(&store), Some(2));
    run.save(&store, 4);
    assert_eq!(newest(&store), Some(4));
    assert_eq!(
        store.latest().unwrap().unwrap().weights().unwrap().config().vocab_size,
        32
    );
}

#[test]
fn a_state_of_another_layout_is_passed_over() {
    let run = Run::new();
    let store = run.store(3);
    run.save(&store, 1);
    let file = run.save(&store, 2).path.join("state.json");
    let text = fs_err::read_to_string(&file).unwrap();
    fs_err::write(&file, text.replace("\"schema_version\": 1", "\"schema_version\": 99")).unwrap();
    let error = CheckpointState::read(&run.file("step_000002")).unwrap_err().to_string();
    assert!(error.contains("schema_version 99; this build reads 1"), "{error}");
    assert_eq!(newest(&store), Some(1));
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let run = Run::new();
    let store = run.store(2);
    for (step, score) in [(1, 0.2), (2, 0.9), (3, 0.9), (4, 0.5), (5, 0.6)] {
        run.save(&store, step);
        assert_eq!(store.record_validation("val", step, score).unwrap(), step <= 2);
    }
    assert!(
        !store.record_validation("val", 77, 2.0).unwrap(),
        "nothing to keep without a checkpoint"
    );
    assert!(!store.record_validation("val", 5, f64::NAN).unwrap());
    assert_eq!(store.steps().unwrap().into_iter().collect::<Vec<_>>(), [2, 4, 5]);
    assert_eq!(newest(&store), Some(5));
    let leftovers = fs_err::read_dir(run.folder.path()).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(TEMPORARY)
    });
    assert_eq!(leftovers.count(), 0);
}

#[test]
fn what_is_still_validated_stays_and_the_best_of_each_set_is_found() {
    let run = Run::new();
    let mut store = run.store(1);
    store.hold(1);
    (1..=3).for_each(|step| drop(run.save(&store, step)));
    let steps = |store: &CheckpointStore| store.steps().unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(steps(&store), [1, 3], "a validation of step 1 has not ended");
    assert!(store.record_validation("val", 1, 0.5).unwrap());
    assert!(store.record_validation("val_hard", 3, 0.1).unwrap());
    store.release(1);
    run.save(&store, 4);
    assert_eq!(steps(&store), [1, 3, 4]);
    let found = |wanted| CheckpointStore::read(run.folder.path()).find(wanted);
    let step_of = |wanted| found(wanted).unwrap().state.step;
    assert_eq!(
        [step_of(Wanted::Latest), step_of(Wanted::Best), step_of(Wanted::Step(3))],
        [4, 1, 3]
    );
    let error = found(Wanted::Step(2)).unwrap_err().to_string();
    assert!(error.ends_with(": no complete checkpoint of step 2"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    for wanted in [Wanted::Latest, Wanted::Best] {
        let error = CheckpointStore::read(empty.path().join("none"))
            .find(wanted)
            .unwrap_err();
        assert!(matches!(error, CheckpointError::None { .. }), "{error}");
        assert!(!empty.path().join("none").exists(), "reading creates nothing");
    }
}

#[test]
fn an_exported_checkpoint_is_the_model_and_nothing_else() {
    let run = Run::new();
    let store = run.store(1);
    let (trained, critic) = (policy(1), critic(1));
    let saved = store
        .save(&trained, Some(&critic), state(1), run.tokenizer.path())
        .unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("deep/policy");
    let files = saved.export(&to).unwrap();
    let names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(files.keys().collect::<Vec<_>>(), names);
    let there = fs_err::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(there.count(), names.len());
    assert_eq!(
        files["model.safetensors"],
        to.join("model.safetensors").metadata().unwrap().len()
    );
    let back = Weights::load(&to).unwrap();
    assert!(back.iter().zip(trained.weights().iter()).all(|(a, b)| a == b));
    let beside = fs_err::read_dir(out.path().join("deep")).unwrap().count();
    assert_eq!(beside, 1, "nothing temporary is left");

    assert!(matches!(
        saved.export(&to).unwrap_err(),
        CheckpointError::Occupied { .. }
    ));
    fs_err::write(saved.path.join("model.safetensors"), "short").unwrap();
    let error = saved.export(&out.path().join("other")).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { found: 5, .. }), "{error}");
    assert!(!out.path().join("other").exists());
}

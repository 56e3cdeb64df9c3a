//! The loader from outside: layers, origins and located faults.

use proptest::prelude::*;

use super::*;

fn faults(text: &str) -> Vec<Fault> {
    match load(&Layers::text(text)) {
        Err(ConfigError::Invalid { faults }) => faults,
        other => panic!("expected faults, found {other:?}"),
    }
}

fn one(text: &str) -> Fault {
    let mut all = faults(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn a_misspelt_key_is_located_and_the_nearest_named() {
    let fault = one("\n[rollout]\ngroup_sise = 4\n");
    let at = fault.at.as_ref().unwrap();
    assert_eq!(at.line_column(), (3, 1));
    assert_eq!(&at.source.text[at.span.clone()], "group_sise");
    assert_eq!(fault.help.as_deref(), Some("did you mean `group_size`?"));
    assert!(
        fault
            .problem
            .to_string()
            .starts_with("unknown key `group_sise`, expected one of `group_size`, ")
    );
}

#[test]
fn all_faults_are_found_at_once() {
    let all = faults("[rollout]\ngroup_sise = 4\ntop_p = \"high\"\n[train]\nalgorithm = \"grppo\"\nsteps = 0\n");
    let lines: Vec<_> = all
        .iter()
        .map(|fault| (fault.key.as_str(), fault.at.as_ref().unwrap().line_column().0))
        .collect();
    assert_eq!(
        lines,
        [
            ("rollout.group_sise", 2),
            ("rollout.top_p", 3),
            ("train.algorithm", 5),
            ("train.steps", 6)
        ]
    );
    assert_eq!(all[2].help.as_deref(), Some("did you mean `grpo`?"));
}

#[test]
fn wrong_values_are_named_in_words() {
    let said = |text: &str| one(text).problem.to_string();
    assert_eq!(
        said("[rollout]\ngroup_size = \"8\""),
        "expected a whole number, found the text `8`"
    );
    assert_eq!(
        said("[rollout]\ngroup_size = 1.5"),
        "expected a whole number, found the number `1.5`"
    );
    assert_eq!(
        said("[rollout]\ngroup_size = 0"),
        "expected a whole number of at least 1, found 0"
    );
    assert_eq!(said("[rollout]\ntop_p = 2"), "expected a number from 0 to 1, found 2");
    assert_eq!(
        said("[rollout]\ntemperature = nan"),
        "expected a finite number, found NaN"
    );
    assert_eq!(
        said("[run]\nseed = -1"),
        "expected a whole number of at least 0, found -1"
    );
    assert_eq!(
        said("[data]\nshuffle = 1"),
        "expected true or false, found the number `1`"
    );
    assert_eq!(
        said("[data]\nval = \"v.parquet\""),
        "expected a list of paths, found the text `v.parquet`"
    );
    assert_eq!(
        said("[rollout]\nflush = \"30\""),
        "expected a duration such as `90s`, `15m` or `2h`, found `30`"
    );
    assert_eq!(
        said("[policy]\ndevice = \"gpu\""),
        "expected `cpu`, `cuda` or `cuda:<n>`, found `gpu`"
    );
    assert_eq!(said("rollout = 3"), "expected a table, found the number `3`");
    assert!(said("[rollout]\ngroup_size = 99999999999999999999").contains("expected a whole number"));
    assert!(said("[filter]\ndrop_outcomes = [\"timeoutt\"]").starts_with("unknown value `timeoutt`"));
}

#[test]
fn what_is_not_built_is_no_unknown_key() {
    for (text, key) in [
        ("[train]\nbackend = \"fsdp\"", "train.backend"),
        ("[capture]\nbuilder = \"tree\"", "capture.builder"),
        ("[engine]\nweight_sync = \"lora\"", "engine.weight_sync"),
        ("[scaffold]\nname = \"qwen-code\"", "scaffold.name"),
        ("[[scaffold.mix]]\nname = \"opencode\"", "scaffold.mix"),
    ] {
        let fault = one(text);
        assert_eq!(fault.key, key);
        assert!(
            fault.problem.to_string().ends_with("is not supported yet"),
            "{}",
            fault.problem
        );
    }
    assert!(matches!(one("[asink]\n").problem, Problem::UnknownKey { .. }));
}

#[test]
fn a_key_of_another_section_is_pointed_at() {
    assert_eq!(
        one("[train]\ngroup_size = 8").help.as_deref(),
        Some("`group_size` belongs to `[rollout]`")
    );
}

#[test]
fn broken_toml_is_located() {
    let fault = one("[run]\nname = \n");
    assert_eq!(fault.at.as_ref().unwrap().line_column().0, 2);
    assert!(matches!(fault.problem, Problem::Syntax(_)));
    let bare = one("[run]\nname = first # of all\n");
    assert_eq!(bare.help.as_deref(), Some("a text stands in quotes: `\"first\"`"));
}

#[test]
fn later_layers_win_and_are_remembered() {
    let (folder, path) = file("run.toml", "extends = [\"base.toml\"]\n[rollout]\ngroup_size = 4\n");
    let base = "[rollout]\ngroup_size = 2\nmax_tokens = 77\n[data]\ntrain = \"t.parquet\"\nval = [\"a\", \"b\"]\n";
    std::fs::write(folder.path().join("base.toml"), base).unwrap();
    let mut layers = Layers::file(&path);
    layers.environment = vec![
        ("LEGO_TRAIN__LR".to_owned(), "1e-5".to_owned()),
        ("LEGO_RUN__NAME".to_owned(), "0711".to_owned()),
        ("LEGO_LOG".to_owned(), "debug".to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
    ];
    layers.overrides = vec![
        Override::set("rollout.group_size=16"),
        Override::flag("--steps", "train.steps", 5),
        Override::set("scaffold.env={ A = \"1\" }"),
        Override::set("data.val=only.parquet"),
    ];
    let loaded = load(&layers).unwrap();
    let config = &loaded.config;
    assert_eq!(
        (config.rollout.group_size, config.rollout.max_tokens, config.train.steps),
        (16, 77, 5)
    );
    assert_eq!((config.train.lr, config.run.name.as_str()), (1e-5, "0711"));
    assert_eq!(config.scaffold.env["A"], "1");
    assert_eq!(config.data.val.len(), 1);
    // Relative paths start from the file that wrote them.
    let real = std::fs::canonicalize(folder.path()).unwrap();
    assert_eq!(config.data.train, Some(real.join("t.parquet")));
    let origin = |key: &str| loaded.location(key).map(Location::short).unwrap_or_default();
    assert_eq!(origin("rollout.group_size"), "--set rollout.group_size");
    assert_eq!(origin("train.steps"), "--steps");
    assert_eq!(origin("train.lr"), "LEGO_TRAIN__LR");
    assert!(origin("rollout.max_tokens").ends_with("base.toml:3"));
    assert_eq!(loaded.location("rollout.top_p"), None);
    let shown = loaded.show_config();
    assert!(
        shown.contains("# LEGO_TRAIN__LR") && shown.contains("# default"),
        "{shown}"
    );
}

#[test]
fn an_empty_table_of_a_flag_empties_and_one_of_a_file_does_not() {
    let (folder, path) = file("run.toml", "extends = [\"base.toml\"]\n[scaffold.env]\n");
    std::fs::write(
        folder.path().join("base.toml"),
        "[scaffold.env]\nA = \"1\"\nB = \"2\"\n",
    )
    .unwrap();
    let env = |overrides: &[&str]| {
        let mut layers = Layers::file(&path);
        layers.overrides = overrides.iter().map(|&item| Override::set(item)).collect();
        let env = load(&layers).unwrap().config.scaffold.env;
        env.into_iter().map(|(key, value)| key + &value).collect::<Vec<_>>()
    };
    assert_eq!(env(&[]), ["A1", "B2"]);
    assert_eq!(env(&["scaffold.env={ B = \"3\" }"]), ["A1", "B3"]);
    assert_eq!(env(&["scaffold.env={}"]), [""; 0]);
    assert_eq!(env(&["scaffold.env={}", "scaffold.env.C=4"]), ["C4"]);
}

#[test]
fn faults_in_variables_and_flags_name_them() {
    let mut layers = Layers::text("");
    layers.environment = vec![("LEGO_ROLLOUT__GROUP_SISE".to_owned(), "4".to_owned())];
    layers.overrides = vec![Override::set("train.steps=many")];
    let Err(ConfigError::Invalid { faults }) = load(&layers) else {
        panic!("accepted")
    };
    let places: Vec<_> = faults
        .iter()
        .map(|fault| fault.at.as_ref().unwrap().to_string())
        .collect();
    assert_eq!(places, ["LEGO_ROLLOUT__GROUP_SISE", "--set train.steps"]);
    layers.environment.clear();
    layers.overrides = vec![Override::set("train.steps")];
    assert!(
        load(&layers)
            .unwrap_err()
            .to_string()
            .contains("expected `section.key=value`")
    );
}

#[test]
fn missing_and_circular_bases_are_located() {
    let (folder, path) = file("run.toml", "extends = [\"b.toml\"]\n");
    let ConfigError::Unreadable { wanted_by, .. } = load(&Layers::file(&path)).unwrap_err() else {
        panic!()
    };
    assert_eq!(wanted_by.unwrap().line_column(), (1, 12));
    std::fs::write(folder.path().join("b.toml"), "extends = [\"run.toml\"]\n").unwrap();
    assert!(
        load(&Layers::file(&path))
            .unwrap_err()
            .to_string()
            .contains("extends itself")
    );
}

#[test]
fn a_run_without_a_name_takes_its_folders() {
    let (folder, path) = file("run.toml", "");
    let loaded = load(&Layers::file(&path)).unwrap();
    assert_eq!(
        loaded.config.run.name,
        folder.path().file_name().unwrap().to_string_lossy()
    );
}

#[test]
fn the_starter_loads_and_secrets_are_starred() {
    load(&Layers::text(starter())).unwrap();
    let loaded = load(&Layers::text("[scaffold.env]\nMY_API_KEY = \"abc\"\nPLAIN = \"x\"\n")).unwrap();
    let shown = loaded.to_resolved_toml();
    assert!(
        shown.contains("MY_API_KEY = \"***\"") && shown.contains("PLAIN = \"x\""),
        "{shown}"
    );
}

#[test]
fn every_path_of_the_schema_is_marked_as_one() {
    let marked = [
        "run.dir",
        "policy.model",
        "policy.tokenizer",
        "policy.chat_template",
        "data.train",
        "data.val",
        "engine.recording",
    ];
    for key in marked {
        assert_eq!(schema::lookup(key).unwrap().text("format"), Some("path"), "{key}");
    }
}

#[test]
fn the_reference_names_every_key() {
    let text = reference();
    for section in schema::KeySchema::root().keys().unwrap() {
        for key in schema::lookup(&section)
            .and_then(|schema| schema.keys())
            .unwrap_or_default()
        {
            assert!(
                text.contains(&format!("`{key}`")) || text.contains(&format!("[{section}.{key}]")),
                "{section}.{key}"
            );
        }
    }
}

proptest! {
    /// What is written down reads back as what ran.
    #[test]
    fn resolved_toml_reads_back(
        name in "[a-zé\"\\\\ \n]{1,12}", seed in 0_u64..1 << 40, lr in 0.0_f64..1.0, top_p in 0.0_f32..=1.0,
        clip in proptest::option::of(0.0_f32..1.0), seconds in 0_u64..100_000, bytes in 0_u64..1 << 50,
        env in proptest::collection::btree_map("[A-D_.]{1,6}", "[^\\x00]{0,6}", 0..3),
    ) {
        let mut config = RunConfig::default();
        config.run.name = name;
        config.run.seed = seed;
        config.run.dir = PathBuf::from("/runs");
        config.policy.model = PathBuf::from("/model");
        config.train.lr = lr;
        config.rollout.top_p = top_p;
        config.train.clip_low = clip;
        config.rollout.flush = HumanDuration::from_secs(seconds);
        config.engine.kv_memory = ByteSize(bytes);
        config.scaffold.env = env;
        let loaded = Loaded { config, origins: std::collections::BTreeMap::new(), names: loaded::ModelNames::default() };
        let text = loaded.show_config();
        prop_assert_eq!(load(&Layers::text(text.clone())).map(|back| back.config).map_err(|e| format!("{e}\n{text}")), Ok(loaded.config));
    }

    /// No text makes the loader panic.
    #[test]
    fn any_text_is_answered(text in "(\\[[a-z]{1,8}\\]\n)?[a-z_]{1,8} ?= ?[^\\x00]{0,16}\n?", set in ".{0,20}") {
        let mut layers = Layers::text(text);
        layers.overrides = vec![Override::set(set)];
        let _ = load(&layers).map_err(|error| error.to_string());
    }
}

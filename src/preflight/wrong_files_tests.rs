//! Files that cannot be a run's: each is refused with its line before any check looks at it. Together with the table of
//! `tests.rs`, whose files are read and found wrong.

use crate::config::{ConfigError, Layers, load};

/// The file, the line of the fault, and a part of what is said.
const WRONG: &[(&str, usize, &str)] = &[
    ("[rollout]\ngroup_sise = 4", 2, "unknown key `group_sise`"),
    ("[rolout]\ngroup_size = 4", 1, "unknown key `rolout`"),
    ("[train]\nalgorithm = \"grppo\"", 2, "unknown value `grppo`"),
    ("[train]\nsteps = \"ten\"", 2, "expected a whole number"),
    ("[train]\nsteps = 0", 2, "expected"),
    ("[train]\nsteps = 1.5", 2, "expected a whole number"),
    ("[train]\nsteps = -1", 2, "expected"),
    ("[train]\nlr = -1e-6", 2, "expected"),
    ("[train]\nlr = \"1e-6\"", 2, "expected a number"),
    ("[train]\ngrad_clip = 0", 2, "expected"),
    ("[train]\ngamma = 1.5", 2, "expected"),
    ("[train]\nscheduler = \"step\"", 2, "unknown value `step`"),
    ("[train]\nloss_agg_mode = \"mean\"", 2, "unknown value `mean`"),
    ("[train]\nnorm_by_std = 1", 2, "expected true or false"),
    ("[train]\nrouting_replay = \"r4\"", 2, "unknown value `r4`"),
    ("[rollout]\ngroup_size = 0", 2, "expected"),
    ("[rollout]\ngroup_size = true", 2, "expected a whole number"),
    ("[rollout]\ntemperature = -0.1", 2, "expected"),
    ("[rollout]\ntop_p = 1.1", 2, "expected"),
    ("[rollout]\ntop_k = -2", 2, "expected"),
    ("[rollout]\nflush = \"soon\"", 2, "expected"),
    ("[rollout.tail_kill]\nmin_trials = 1", 2, "expected"),
    ("[rollout.tail_kill]\nshare = 2.0", 2, "expected"),
    ("[data]\nmax_prompt_tokens = 0", 2, "expected"),
    ("[data]\nval = \"val.parquet\"", 2, "expected a list"),
    ("[policy]\ndtype = \"f16\"", 2, "unknown value `f16`"),
    ("[policy]\nmax_model_len = 0", 2, "expected"),
    ("[engine]\nkind = \"tgi\"", 2, "unknown value `tgi`"),
    ("[engine]\nkv_memory = \"lots\"", 2, "expected"),
    ("[engine]\nendpoints = \"http://a:1\"", 2, "expected a list"),
    ("[engine]\ntool_parser = \"qwen\"", 2, "unknown value `qwen`"),
    ("[sandbox]\nbackend = \"podman\"", 2, "unknown value `podman`"),
    ("[sandbox]\nconcurrency = 0", 2, "expected"),
    ("[sandbox]\nmemory = \"4 apples\"", 2, "expected"),
    ("[sandbox.timeouts]\nagent = 90", 2, "expected"),
    ("[sandbox.docker]\nstarts = 0", 2, "expected"),
    ("[sandbox.kubernetes]\nmemory_limit_factor = 0.5", 2, "expected"),
    ("[scaffold]\nname = \"claude\"", 2, "unknown value `claude`"),
    ("[scaffold]\nmax_turns = 0", 2, "expected"),
    ("[scaffold]\nargs = \"-x\"", 2, "expected a list"),
    ("[verifier]\nrepeats = 0", 2, "expected"),
    ("[eval]\nsamples = 0", 2, "expected"),
    ("[checkpoint]\nkeep = 0", 2, "expected"),
    ("[checkpoint]\nevery = 0", 2, "expected"),
    ("[log]\ntensorboard = \"yes\"", 2, "expected true or false"),
    ("[filter]\noverlong = \"cut\"", 2, "unknown value `cut`"),
    ("[capture]\ntrain = \"some\"", 2, "unknown value `some`"),
    ("[proxy]\nretry_grace = \"-1s\"", 2, "expected"),
    ("[run]\nname = first", 2, ""),
    ("[run]\nname = \"a\"\nname = \"b\"", 3, ""),
    ("[run\nname = \"a\"", 1, ""),
    ("run = 3", 1, "expected a table"),
];

#[test]
fn each_wrong_file_is_refused_with_its_line() {
    assert!(WRONG.len() >= 50);
    for (text, line, says) in WRONG {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        std::fs::write(&path, text).unwrap();
        let error = load(&Layers::file(&path)).expect_err(text);
        let ConfigError::Invalid { faults } = &error else {
            panic!("{text}: {error}");
        };
        let at = faults[0].at.as_ref().unwrap_or_else(|| panic!("{text}: no place"));
        assert_eq!(at.line_column().0, *line, "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

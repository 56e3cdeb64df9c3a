//! The verifier against real sandboxes: what an agent leaves behind must not become a reward.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Fixture, each};
use lego::sandbox::{ExecRequest, Sandbox};
use lego::verifier::{Changes, Owned, Scene, Verdict, VerifierError, VerifyOptions, Watch, examine, verify};

const PASS: &str = "mkdir -p \"$LEGO_LOGS_DIR/verifier\"; echo 1 > \"$LEGO_LOGS_DIR/verifier/reward.txt\"";

struct Case<'a> {
    fixture: &'a Fixture,
    tests: PathBuf,
    options: VerifyOptions,
    protected: Vec<String>,
}

impl<'a> Case<'a> {
    fn new(fixture: &'a Fixture, script: &str) -> Self {
        let tests = fixture.folder().join("tests");
        let _ = fs::remove_dir_all(&tests);
        fs::create_dir(&tests).unwrap();
        fs::write(tests.join("test.sh"), script).unwrap();
        let options = VerifyOptions::new(Duration::from_secs(20), fixture.folder().join("kept"));
        Self {
            fixture,
            tests,
            options,
            protected: Vec::new(),
        }
    }

    async fn run(&self, sandbox: &dyn Sandbox) -> Result<Verdict, VerifierError> {
        let near = self.fixture.folder();
        let left_running = sandbox.end_processes().await?;
        let changes = Changes::of(sandbox, "/app", &[], near).await?;
        let paths = self.protected.clone();
        // What the task came with stands for what was kept before the agent.
        let owned = Owned::keep(sandbox, "/app", paths, near).await?;
        let scene = Scene {
            left_running,
            changes: &changes,
            owned: &owned,
            before: &Watch::default(),
            workdir: "/app",
            originals: std::slice::from_ref(&self.fixture.source),
        };
        let mut flags = examine(sandbox, scene).await?;
        let mut verdict = verify(sandbox, std::slice::from_ref(&self.tests), &self.options).await?;
        flags.append(&mut verdict.flags);
        Ok(Verdict { flags, ..verdict })
    }

    /// In a fresh sandbox, after the agent ran `agent`.
    async fn after(&self, agent: &str) -> Result<Verdict, VerifierError> {
        let sandbox = self.fixture.create(self.fixture.spec()).await;
        sandbox.exec(ExecRequest::shell(agent)).await.unwrap();
        self.run(&*sandbox).await
    }
}

fn kinds(verdict: &Verdict) -> Vec<&str> {
    verdict.flags.iter().map(|flag| flag.kind.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tests_judge_what_the_agent_left() {
    each(async |fixture| {
        let script = "#!/bin/bash\nset -o pipefail\ngrep -q fixed hello.txt && r=1 || r=0\necho judged in $PWD with $MODE by ${BASH_VERSION:+bash}\n\
            . \"$LEGO_TESTS_DIR/common.sh\"\nprintf '{\"reward\": %s, \"style\": 0.5}' $r > \"$LEGO_LOGS_DIR/verifier/reward.json\"\nexit $((1 - r))\n";
        let mut case = Case::new(&fixture, script);
        fs::write(case.tests.join("common.sh"), "echo common").unwrap();
        case.options.env.insert("MODE".to_owned(), "strict".to_owned());
        let verdict = case.after("echo fixed > hello.txt").await.unwrap();
        assert_eq!((verdict.reward, verdict.exit_code, verdict.rewards["style"]), (1.0, 0, 0.5));
        assert!(verdict.output.contains("with strict by bash") && verdict.output.contains("common"), "{}", verdict.output);
        assert_eq!(kinds(&verdict), Vec::<&str>::new());
        let kept = &case.options.logs;
        assert!(fs::read_to_string(kept.join("test-stdout.txt")).unwrap().contains("judged in"));
        assert!(fs::read_to_string(kept.join("reward.json")).unwrap().contains("0.5"));
        // A second verification replaces the first one's files.
        let verdict = case.after("true").await.unwrap();
        assert_eq!((verdict.reward, verdict.exit_code), (0.0, 1));
        assert_eq!(fs::read_dir(kept).unwrap().count(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_no_reward_and_exit_codes_neither() {
    each(async |fixture| {
        let failing = Case::new(&fixture, "echo PASSED test_a; echo 'reward: 1'; exit 1");
        let error = failing.after("true").await.unwrap_err();
        assert!(matches!(error, VerifierError::Missing { exit_code: 1 }), "{error}");
        for (text, expected) in [("", "empty"), ("nan", "finite"), ("PASSED", "one number")] {
            let case = Case::new(
                &fixture,
                &format!("printf '{text}' > \"$LEGO_LOGS_DIR/verifier/reward.txt\""),
            );
            let error = case.after("true").await.unwrap_err();
            assert!(
                matches!(error, VerifierError::Invalid { .. }) && error.to_string().contains(expected),
                "{error}"
            );
        }
        let missing = Case::new(&fixture, "exit 0");
        fs::remove_file(missing.tests.join("test.sh")).unwrap();
        assert!(matches!(missing.after("true").await, Err(VerifierError::NoTests(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_reward_does_not_count_and_is_flagged() {
    each(async |fixture| {
        let case = Case::new(&fixture, "exit 1");
        for plant in [
            "echo 1 > \"$LEGO_LOGS_DIR/verifier/reward.txt\"",
            "echo 1 > reward.txt; ln -s \"$PWD/reward.txt\" \"$LEGO_LOGS_DIR/verifier/reward.json\"",
            "mkdir mine; echo 1 > mine/reward.txt; rm -rf \"$LEGO_LOGS_DIR/verifier\" && ln -s \"$PWD/mine\" \"$LEGO_LOGS_DIR/verifier\" || echo 1 > \"$LEGO_LOGS_DIR/verifier/reward.txt\"",
        ] {
            let sandbox = fixture.create(fixture.spec()).await;
            sandbox.exec(ExecRequest::shell(plant)).await.unwrap();
            let error = case.run(&*sandbox).await.unwrap_err();
            assert!(matches!(error, VerifierError::Missing { .. }), "{plant}: {error}");
        }
        let case = Case::new(&fixture, PASS);
        let verdict = case.after("echo 0 > \"$LEGO_LOGS_DIR/verifier/reward.txt\"").await.unwrap();
        assert_eq!((verdict.reward, kinds(&verdict)), (1.0, vec!["verifier_logs_written"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_waits_for_the_verifier_is_ended_first() {
    each(async |fixture| {
        let case = Case::new(&fixture, "sleep 0.5; exit 1");
        let sandbox = fixture.create(fixture.spec()).await;
        let waiting =
            "(setsid sh -c 'while :; do echo 1 > \"$LEGO_LOGS_DIR/verifier/reward.txt\"; done' >/dev/null 2>&1 &)";
        sandbox.exec(ExecRequest::shell(waiting)).await.unwrap();
        let error = case.run(&*sandbox).await.unwrap_err();
        assert!(matches!(error, VerifierError::Missing { .. }), "{error}");

        let case = Case::new(&fixture, PASS);
        let verdict = case.after("(setsid sleep 1000 &)").await.unwrap();
        assert_eq!(kinds(&verdict), ["background_processes"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verifiers_files_and_links_to_elsewhere_are_watched() {
    each(async |fixture| {
        symlink("/usr", fixture.source.join("from-the-task")).unwrap();
        let mut case = Case::new(&fixture, PASS);
        case.protected = vec!["sub".to_owned()];
        let verdict = case
            .after("echo x >> sub/deep; ln -s /usr/bin mine; ln -s hello.txt fine")
            .await
            .unwrap();
        assert_eq!(kinds(&verdict), ["protected_files_changed", "links_out_of_workdir"]);
        assert_eq!(
            (verdict.flags[0].evidence.as_str(), verdict.flags[1].evidence.as_str()),
            ("sub/deep", "./mine")
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grader_that_never_ends_is_killed_and_one_that_was_killed_says_so() {
    each(async |fixture| {
        let mut case = Case::new(
            &fixture,
            &format!("{PASS}; sh -c 'while true; do :; done' & while true; do :; done"),
        );
        case.options.timeout = Duration::from_millis(500);
        let sandbox = fixture.create(fixture.spec()).await;
        let error = case.run(&*sandbox).await.unwrap_err();
        assert!(
            matches!(error, VerifierError::Timeout(_)) && error.may_be_the_agents_doing(),
            "{error}"
        );
        assert_eq!(sandbox.end_processes().await.unwrap(), 0);

        let case = Case::new(&fixture, "kill -9 $$");
        let error = case.after("true").await.unwrap_err();
        assert!(matches!(error, VerifierError::Killed { signal: 9 }), "{error}");

        let mut case = Case::new(&fixture, &format!("{PASS}; head -c 5000000 /dev/zero | tr '\\0' y"));
        case.options.output_limit = 10_000;
        let verdict = case.after("true").await.unwrap();
        assert!(verdict.output.len() < 11_000);
        assert!(fs::metadata(case.options.logs.join("test-stdout.txt")).unwrap().len() < 11_000);
    })
    .await;
}

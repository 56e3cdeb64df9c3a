//! Tasks whose tests end in every way, in every place, in one step or several; and what is kept of them.

use super::tasks::{Case, case, grade, named};

/// How the tests say what they say.
pub(super) fn rewards() -> Vec<Case> {
    vec![
        named("text", "")
            .test("[ -e /opt/done ] && printf ' 2.5e-1\\n\\n' >/logs/verifier/reward.txt || echo -1 >/logs/verifier/reward.txt; exit 3")
            .gives("reward=0.25", "reward=-1"),
        named("object", "")
            .test("[ -e /opt/done ] && r=1 || r=0\necho \"{\\\"reward\\\": 0.5, \\\"speed\\\": $r, \\\"size\\\": -2e3}\" >/logs/verifier/reward.json\necho 0.5 >/logs/verifier/reward.txt")
            .gives("reward=0.5 size=-2000 speed=1", "reward=0.5 size=-2000 speed=0")
            .always(),
        named("one-name", "").test("[ -e /opt/done ] && r=1 || r=0; echo \"{\\\"accuracy\\\": $r}\" >/logs/verifier/reward.json")
            .gives("accuracy=1", "accuracy=0"),
        named("two-names", "")
            .test("echo '{\"a\": 1, \"b\": 0}' >/logs/verifier/reward.json")
            .gives("a=1 b=0", "a=1 b=0")
            .differs("none Verifier", "none Verifier", "of several rewards none is the one to train on unless it is named `reward`"),
        named("number", "")
            .test("[ -e /opt/done ] && r=1 || r=0; echo 0.$r >/logs/verifier/reward.json")
            .gives("none Verifier", "none Verifier")
            .differs("reward=0.1", "reward=0", "a number is a reward: Harbor reads it, then its own model of a result refuses it"),
        named("missing", "").test("echo nothing").gives("none Verifier", "none Verifier").always(),
        named("empty", "").test(": >/logs/verifier/reward.txt").gives("none Verifier", "none Verifier"),
        named("not-a-number", "").test("echo nan >/logs/verifier/reward.txt").gives("none Verifier", "none Verifier"),
        named("words", "").test("echo good >/logs/verifier/reward.txt").gives("none Verifier", "none Verifier"),
        named("infinite", "").test("echo '{\"reward\": 1e309}' >/logs/verifier/reward.json").gives("none Verifier", "none Verifier"),
        named("nested", "").test("echo '{\"reward\": {\"a\": 1}}' >/logs/verifier/reward.json").gives("none Verifier", "none Verifier"),
        named("only-by-nop", "")
            .test("[ -e /opt/done ] || echo 1 >/logs/verifier/reward.txt")
            .gives("none Verifier", "reward=1")
            .differs("reward=0", "reward=1", "tests that give a reward where no agent was, and none after it, were kept from it by the agent: graded 0 and flagged"),
        named("slow-tests", "[verifier]\ntimeout_sec = 1\n").test("sleep 60").gives("none Verifier", "none Verifier"),
        named("slow-agent", "[agent]\ntimeout_sec = 12\n")
            .solve("echo yes >/opt/done; sleep 90")
            .gives("reward=1 AgentTimeout", "reward=0")
            .always(),
        named("failing-oracle", "")
            .solve("echo yes >/opt/done; echo sorry >&2; exit 3")
            .differs("reward=1 NonZeroAgentExitCode", "reward=0", "Harbor's oracle keeps the exit code in a file of its log; the reward is the same"),
        named("helpers", "")
            .solve("sh /solution/parts/more.sh")
            .file("solution/parts/more.sh", "echo yes >/opt/done\n")
            .file("tests/check.py", "import pathlib\nprint(int(pathlib.Path('/opt/done').exists()))\n")
            .test("python3 \"$(dirname \"$0\")/check.py\" >/logs/verifier/reward.txt"),
        Case {
            test: Some(
                "#!/usr/bin/env python3\nfrom pathlib import Path\n\
                 Path('/logs/verifier/reward.txt').write_text(str(int(Path('/opt/done').exists())))\n"
                    .to_owned(),
            ),
            ..named("other-shell", "")
        },
    ]
}

const KEEP: &str = "mkdir -p /opt/out/cache/deep /opt/out/sub; cd /opt/out; echo a >a.txt; echo b >b.log; echo c >cache/deep/c; \
    echo d >sub/d.log; echo e >sub/e.txt; echo f >/opt/f.bin; echo yes >/opt/done; echo pub >/logs/artifacts/p.txt";

/// Where the tests run, and what is kept.
pub(super) fn places() -> Vec<Case> {
    let apart = "[verifier]\nenvironment_mode = \"separate\"\n";
    vec![
        named(
            "artifacts",
            "artifacts = [\"/opt/f.bin\", { source = \"/opt/out\", destination = \"kept/it\", exclude = [\"*.log\", \"cache\"] }, \"/opt/none.txt\", \
             \"/opt/no-folder\", { source = \"/opt/done\", destination = \"kept\" }]",
        )
        .solve(KEEP)
        .always(),
        named("apart", &format!("artifacts = [\"/opt/done\", \"/opt/out\"]\n{apart}"))
            .solve(KEEP)
            .check("[ \"$(cat /opt/done)\" = yes ] && [ -e /opt/out/cache/deep/c ] && [ \"$(cat /logs/artifacts/p.txt)\" = pub ]"),
        case("apart-changes", apart)
            .file("environment/Dockerfile", "FROM IMAGE\nWORKDIR /app\n")
            .solve("echo yes >done")
            .check("[ -e done ]")
            .gives("reward=0", "reward=0")
            .differs("reward=1", "reward=0", "what changed in the working folder crosses over too, so that tasks made for a shared sandbox need no list of artifacts"),
        named("own-image", "artifacts = [\"/opt/done\"]\n[verifier.environment]\ndocker_image = \"GRADER\"\nworkdir = \"/srv\"\n[verifier.environment.env]\nWHO = \"own\"\n")
            .test("echo 7 >/logs/verifier/reward.txt")
            .gives("reward=1 where=1", "reward=0 where=1"),
        Case { test: None, ..named("only-own-image", "artifacts = [\"/opt/done\"]\n[verifier.environment]\ndocker_image = \"GRADER\"\nworkdir = \"/srv\"\nenv = { WHO = \"own\" }\n") }
            .gives("reward=1 where=1", "reward=0 where=1")
            .always(),
        case("own-dockerfile", &format!("artifacts = [\"/opt/done\"]\n{apart}[environment]\nworkdir = \"/srv\"\nenv = {{ WHO = \"own\" }}\n"))
            .file("environment/Dockerfile", "FROM IMAGE\n")
            .file("tests/Dockerfile", GRADER)
            .file("tests/run/test.sh", GRADES)
            .gives("reward=1 where=1", "reward=0 where=1")
            .always(),
        named("own-environment", "artifacts = [\"/opt/done\"]\n[verifier.environment]\nworkdir = \"/srv\"\nenv = { WHO = \"own\" }\nmemory_mb = 256\n")
            .test(&GRADES.replace("#!/bin/sh\n", ""))
            .gives("reward=1 where=1", "reward=0 where=1"),
        named(
            "collect",
            "[verifier]\nenvironment_mode = \"separate\"\n[[verifier.collect]]\ncommand = \"cp /opt/done /logs/artifacts/state\"\ntimeout_sec = 10\nuser = \"root\"\n\
             [[verifier.collect]]\ncommand = \"exit 4\"\n",
        )
        .check("[ \"$(cat /logs/artifacts/state)\" = yes ]")
        .always(),
        named("collect-shared", "[[verifier.collect]]\ncommand = \"echo more >>/opt/done\"\nservice = \"main\"\n")
            .check("[ \"$(tr '\\n' ' ' </opt/done)\" = 'yes more ' ]"),
    ]
}

/// An image that holds its own tests.
pub(super) const GRADER: &str = "FROM IMAGE\nWORKDIR /elsewhere\nCOPY run/test.sh /tests/test.sh\n";
/// Those tests.
pub(super) const GRADES: &str = "#!/bin/sh\n[ \"$(cat /opt/done)\" = yes ] && r=1 || r=0\n[ \"$PWD $WHO\" = '/srv own' ] && w=1 || w=0\n\
    echo \"{\\\"reward\\\": $r, \\\"where\\\": $w}\" >/logs/verifier/reward.json\n";

fn two(id: &'static str, toml: &str) -> Case {
    let mut case = case(id, &toml.replace("ENV", "[environment]\ndocker_image = \"IMAGE\"\n"));
    case.test = None;
    case.file("steps/one/instruction.md", "First.\n")
        .file("steps/two/instruction.md", "Then.\n")
        .file("steps/one/solution/solve.sh", "#!/bin/sh\necho 1 >>/opt/count\n")
        .file(
            "steps/two/solution/solve.sh",
            "#!/bin/sh\necho 2 >>/opt/count; echo \"$FROM\" >>/opt/count\n",
        )
        .file("steps/one/tests/test.sh", grade("[ \"$(tail -n 1 /opt/count)\" = 1 ]"))
        .file(
            "steps/two/tests/test.sh",
            "#!/bin/sh\necho '{\"reward\": 0.5, \"second\": 1}' >/logs/verifier/reward.json\n",
        )
}

/// Tasks of several steps.
pub(super) fn steps() -> Vec<Case> {
    let both = "[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n";
    let gated = |gate: &str| format!("ENV[[steps]]\nname = \"one\"\nmin_reward = {gate}\n[[steps]]\nname = \"two\"\n");
    vec![
        two("steps-mean", &format!("ENV{both}"))
            .gives("reward=0.75 second=0.5 [one reward=1] [two reward=0.5 second=1]", "reward=0.25 second=0.5 [one reward=0] [two reward=0.5 second=1]"),
        two("steps-final", &format!("multi_step_reward_strategy = \"final\"\nENV{both}"))
            .gives("reward=0.5 second=1 [one reward=1] [two reward=0.5 second=1]", "reward=0.5 second=1 [one reward=0] [two reward=0.5 second=1]"),
        two("steps-gate", &gated("0.5"))
            .gives("reward=0.75 second=0.5 [one reward=1] [two reward=0.5 second=1]", "reward=0 [one reward=0]")
            .always(),
        two("steps-gate-names", &gated("{ reward = 0.5, other = 0 }")).gives("reward=1 [one reward=1]", "reward=0 [one reward=0]"),
        two(
            "steps-parts",
            "artifacts = [\"/opt/count\"]\nENV[verifier.env]\nWANTED = \"a\"\n[[steps]]\nname = \"one\"\nartifacts = [\"/opt/one.txt\"]\n[steps.agent]\ntimeout_sec = 60\n\
             [steps.healthcheck]\ncommand = \"echo h >>/opt/health\"\n[[steps]]\nname = \"two\"\n[steps.agent]\nuser = \"root\"\n[steps.verifier]\ntimeout_sec = 30\n\
             [steps.verifier.env]\nWANTED = \"b\"\n",
        )
        .file("steps/one/workdir/setup.sh", "echo set >/opt/one.txt\n")
        .file("steps/two/workdir/brought.txt", "here\n")
        .file("tests/shared.txt", "common\n")
        .file("steps/one/tests/test.sh", grade("[ -e /opt/count ] && [ \"$WANTED\" = a ] && [ -e /tests/shared.txt ] && [ -e /opt/one.txt ]"))
        .file("steps/two/tests/test.sh", grade("[ \"$WANTED\" = b ] && [ -e brought.txt ] && [ \"$(cat /opt/health)\" = h ]"))
        .gives("reward=1 [one reward=1] [two reward=1]", "reward=0.5 [one reward=0] [two reward=1]"),
        two("steps-broken", &format!("ENV{both}"))
            .file("steps/one/tests/test.sh", "#!/bin/sh\n")
            .gives("none [one none] Verifier", "none [one none] Verifier"),
    ]
}

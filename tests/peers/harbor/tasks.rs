//! The tasks: each takes some fields of task.toml, and its tests see whether they hold.

/// A task, and what comes of it.
pub(super) struct Case {
    pub id: &'static str,
    pub toml: String,
    /// Beside task.toml, instruction.md and the two scripts.
    pub files: Vec<(&'static str, String)>,
    pub solve: String,
    /// `None` where the tests lie elsewhere than in tests/test.sh.
    pub test: Option<String>,
    /// What Harbor says of the oracle and of an agent that does nothing: rewards, then what went wrong.
    pub gives: [&'static str; 2],
    /// Where `lego` says otherwise: what, and why.
    pub differs: Option<([&'static str; 2], &'static str)>,
    /// Whether Harbor can run it here: other networks than a public one need an image that it pulls.
    pub offline: bool,
    /// Whether it is run each time.
    pub always: bool,
}

/// Writes 1 where the command succeeds, else 0.
pub(super) fn grade(check: &str) -> String {
    format!("#!/bin/sh\nif {check}; then r=1; else r=0; fi\necho $r >/logs/verifier/reward.txt\n")
}

pub(super) fn case(id: &'static str, toml: &str) -> Case {
    Case {
        id,
        toml: toml.to_owned(),
        files: Vec::new(),
        solve: "#!/bin/sh\necho yes >/opt/done\n".to_owned(),
        test: Some(grade("[ \"$(cat /opt/done)\" = yes ]")),
        gives: ["reward=1", "reward=0"],
        differs: None,
        offline: true,
        always: false,
    }
}

/// The image by name, then further lines.
pub(super) fn named(id: &'static str, toml: &str) -> Case {
    case(id, &format!("{toml}\n[environment]\ndocker_image = \"IMAGE\"\n"))
}

impl Case {
    pub(super) fn solve(mut self, lines: &str) -> Self {
        self.solve = format!("#!/bin/sh\n{lines}\n");
        self
    }

    /// Commands of the tests.
    pub(super) fn test(mut self, lines: &str) -> Self {
        self.test = Some(format!("#!/bin/sh\n{lines}\n"));
        self
    }

    pub(super) fn check(mut self, check: &str) -> Self {
        self.test = Some(grade(check));
        self
    }

    pub(super) fn file(mut self, path: &'static str, text: impl Into<String>) -> Self {
        self.files.push((path, text.into()));
        self
    }

    pub(super) fn gives(mut self, oracle: &'static str, nop: &'static str) -> Self {
        self.gives = [oracle, nop];
        self
    }

    pub(super) fn differs(mut self, oracle: &'static str, nop: &'static str, why: &'static str) -> Self {
        self.differs = Some(([oracle, nop], why));
        self
    }

    pub(super) fn always(mut self) -> Self {
        self.always = true;
        self
    }

    fn online(mut self) -> Self {
        self.offline = false;
        self
    }
}

/// What the environment is.
pub(super) fn environments() -> Vec<Case> {
    vec![
        named("image", "version = \"1.0\""),
        case("dockerfile", "schema_version = \"1.4\"\n[environment]\nbuild_timeout_sec = 300\n")
            .file(
                "environment/Dockerfile",
                "FROM IMAGE\nWORKDIR /app\nENV COLOUR=red\nCOPY start.txt ./\n",
            )
            .file("environment/start.txt", "begun\n")
            .solve("cat start.txt >end.txt; echo $COLOUR >>end.txt; pwd >>end.txt")
            .check("[ \"$(tr '\\n' ' ' </app/end.txt)\" = 'begun red /app ' ] && [ \"$PWD\" = /app ]"),
        named("workdir", "").more("workdir = \"/srv\"").solve("pwd >done").check("[ \"$(cat done)\" = /srv ]"),
        named("made-workdir", "")
            .more("workdir = \"/made/for/it\"")
            .gives("none EnvironmentSetup", "none EnvironmentSetup")
            .differs("reward=1", "reward=0", "a working folder that the image lacks is made")
            .solve("pwd >done; cp done /opt")
            .check("[ \"$(cat /opt/done)\" = /made/for/it ]"),
        named("environment-env", "")
            .more(
                "[environment.env]\nSET = \"${LEGO_TEST_SET}\"\nUNSET = \"${LEGO_TEST_UNSET:-other}\"\n\
                 EMPTY = \"${LEGO_TEST_UNSET:-}\"\nPLAIN = \"as it is, $HOME\"\n",
            )
            .solve("echo \"$SET|$UNSET|$EMPTY|$PLAIN\" >/opt/done")
            .check("[ \"$(cat /opt/done)\" = 'given|other||as it is, $HOME' ] && [ \"$SET$UNSET\" = givenother ]")
            .always(),
        named(
            "phases-env",
            "[solution.env]\nWHAT = \"${LEGO_TEST_UNSET:-solved}\"\n[verifier.env]\nWANTED = \"${LEGO_TEST_UNSET:-solved}\"\nSET = \"${LEGO_TEST_SET}\"\n",
        )
        .solve("echo \"$WHAT$WANTED\" >/opt/done")
        .check("[ \"$(cat /opt/done)\" = \"$WANTED\" ] && [ \"$SET\" = given ] && [ -z \"$WHAT\" ]"),
        case("users", "[agent]\nuser = \"dev\"\n[verifier]\nuser = \"grader\"\n")
            .file(
                "environment/Dockerfile",
                "FROM IMAGE\nRUN useradd -m -u 1234 dev && useradd -m grader && mkdir -m 777 /app\nWORKDIR /app\n",
            )
            .solve("{ id -un; echo ~; } >done")
            .check("[ \"$(tr '\\n' ' ' <done)\" = 'dev /home/dev ' ] && [ \"$(id -un)\" = grader ]")
            .always(),
        case("user-numbers", "[agent]\nuser = 1234\n[verifier]\nuser = 0\n")
            .file("environment/Dockerfile", "FROM IMAGE\nRUN useradd -m -u 1234 dev && mkdir -m 777 /app\nWORKDIR /app\nUSER dev\n")
            .solve("id -u >done")
            .check("[ \"$(cat done)\" = 1234 ] && [ \"$(id -u)\" = 0 ]"),
        case("image-user", "")
            .file("environment/Dockerfile", "FROM IMAGE\nRUN useradd -m -u 1234 dev && mkdir -m 777 /app\nWORKDIR /app\nUSER dev\n")
            .solve("id -un >done")
            .check("[ \"$(cat done)\" = dev ] && [ \"$(id -un)\" = dev ]"),
        named("limits", "")
            .more("cpus = 0.5\nmemory_mb = 256\nstorage_mb = 512\n")
            .solve(LIMITS)
            .check("[ \"$(tr '\\n' ' ' </opt/done)\" = '268435456 50000 ' ]")
            .always(),
        named("old-limits", "version = \"1.0\"\n")
            .more("cpus = 1\nmemory = \"256M\"\nstorage = \"1G\"\nallow_internet = true\n")
            .solve(LIMITS)
            .check("[ \"$(tr '\\n' ' ' </opt/done)\" = '268435456 100000 ' ]"),
        named("healthcheck", "")
            .more(
                "[environment.healthcheck]\ncommand = \"echo x >>/opt/tries; [ $(wc -l </opt/tries) -ge 3 ]\"\n\
                 interval_sec = 0.1\ntimeout_sec = 5\nstart_period_sec = 0\nretries = 4\n",
            )
            .check("[ -e /opt/done ] && [ $(wc -l </opt/tries) = 3 ]"),
        named("unhealthy", "")
            .more("[environment.healthcheck]\ncommand = \"false\"\ninterval_sec = 0.1\nretries = 2\n")
            .gives("none EnvironmentSetup", "none EnvironmentSetup"),
        case("broken-build", "")
            .file("environment/Dockerfile", "FROM IMAGE\nRUN false\n")
            .gives("none EnvironmentSetup", "none EnvironmentSetup"),
        named(
            "described",
            "schema_version = \"1.4\"\nsource = \"somewhere\"\nnew_key = 1\n[task]\nname = \"org/described\"\ndescription = \"d\"\n\
             authors = [{ name = \"A\", email = \"a@example.org\" }]\nkeywords = [\"k\"]\n[metadata]\ndifficulty = \"easy\"\n\
             anything = [1, 2]\n[agent]\nnetwork_mode = \"public\"\nunknown = true\n[verifier]\nnetwork_mode = \"public\"\n",
        )
        .more(
            "os = \"Linux\"\ngpus = 0\ngpu_types = [\"T4\"]\nskills_dir = \"/skills\"\nnetwork_mode = \"public\"\n\
             [[environment.mcp_servers]]\nname = \"m\"\ntransport = \"stdio\"\ncommand = \"true\"\n",
        ),
        named("no-network", "[verifier]\nnetwork_mode = \"no-network\"\n").more("network_mode = \"no-network\"").online(),
        named("old-no-network", "").more("allow_internet = false").online(),
        named(
            "allowlist",
            "[agent]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"PyPI.org.\", \"*.example.org\", \"192.0.2.1\", \"198.51.100.0/24\"]\n\
             [verifier]\nnetwork_mode = \"public\"\n",
        )
        .online(),
    ]
}

/// Memory in bytes and quota of the processors, wherever the kernel says it.
const LIMITS: &str = "cd /sys/fs/cgroup\nif [ -e memory.max ]; then cat memory.max; cut -d' ' -f1 cpu.max\n\
    else cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us; fi >/opt/done";

impl Case {
    /// Further lines of task.toml, at its end.
    pub(super) fn more(mut self, lines: &str) -> Self {
        self.toml.push_str(lines);
        self.toml.push('\n');
        self
    }
}

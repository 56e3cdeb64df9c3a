//! A page for each check: what it looks at, why it matters, what to write instead. `lego diagnose explain ID` prints it.

/// One check, explained.
struct Page {
    id: &'static str,
    fatal: &'static str,
    warn: &'static str,
    why: &'static str,
    instead: &'static str,
}

const PAGES: &[Page] = &[
    Page {
        id: "paths",
        fatal: "a model, tokenizer, recording or index that is not there; a folder or a file without records where tasks should be; a task that the index names and that is gone or cannot be used; a run folder that cannot be written to",
        warn: "less disk than two checkpoints take (and, for engines in other processes, the weights they load)",
        why: "A run that finds this out after an hour has lost the hour, and one that fills the disk loses its newest step too.",
        instead: "`lego prepare index TASKS_DIR` writes an index again; paths in run.toml start from that file's folder.",
    },
    Page {
        id: "model-files",
        fatal: "weights that are cut off or not those of config.json; token ids beyond the embedding; `train.routing_replay` for a model without experts",
        warn: "",
        why: "Such files load somewhere, and then compute something else than the engine does.",
        instead: "Download or convert the model again, or name the tokenizer that it was trained with.",
    },
    Page {
        id: "chat-template",
        fatal: "no template; one that does not compile; one that cannot render a tool call and its result",
        warn: "one that does not show tools; one under which every turn would begin a new segment",
        why: "The template decides which tokens the policy sees. Where a later turn renders earlier ones differently, what was sampled is no longer a prefix, and each turn trains by itself.",
        instead: "A Jinja file as `chat_template` below `[policy]`.",
    },
    Page {
        id: "tool-parser",
        fatal: "a parser that does not read the format in which the model, or its template, writes tool calls",
        warn: "a model that is not known here, with a parser by name: verify it by hand",
        why: "A parser that never matches makes every episode one turn long. The reward still moves, and nothing of it is tool use.",
        instead: "`tool_parser = \"auto\"` below `[engine]` reads what the template writes; Qwen3.5 and 3.6 write `qwen3_coder`.",
    },
    Page {
        id: "engine",
        fatal: "no address, a wrong one, the same twice; an API key that is not in the environment; to train from a hosted API",
        warn: "a hosted API in a file that could train",
        why: "Training needs the ids and log-probs of sampled tokens, which a hosted API does not give.",
        instead: "`endpoints = [\"http://host:8000\"]` below `[engine]`, and the key by the name of its variable.",
    },
    Page {
        id: "engine-live",
        fatal: "a server that does not answer; one that serves another model; one that gives no token ids or log-probs",
        warn: "",
        why: "What is sampled elsewhere must be the same policy with the same tokens.",
        instead: "Start the server, or correct `engine.endpoints` and `engine.served_model`. Exit code 3: it cannot be reached.",
    },
    Page {
        id: "balance",
        fatal: "keys of `[balance]` that its `scheduler` does not look at; a scheduler where nothing can be held; `engine.weight_sync = \"rolling\"` without servers",
        warn: "`balance.policy` or `engine.weight_sync = \"rolling\"` with one server, of which nothing can be chosen",
        why: "A key that has no effect is a run that is not what its file says.",
        instead: "`scheduler = \"lease\"` below `[balance]`, several `endpoints` below `[engine]`, or no such key.",
    },
    Page {
        id: "async",
        fatal: "keys of `[async]` without `enabled`; a queue that is shorter than an update; `rollout.tail_kill` with `async.enabled`",
        warn: "`rollout.groups_per_step` beside `async.require_batches`, which takes its place",
        why: "A key that has no effect is a run that is not what its file says; a queue that holds less than an update takes never lets one begin.",
        instead: "`enabled = true` below `[async]`, or `lego train --async`. `lego train --plan` says what settings would come to.",
    },
    Page {
        id: "token-budget",
        fatal: "prompt and response together above the model's positions or `policy.max_model_len`; a micro-batch smaller than one row",
        warn: "",
        why: "A row that does not fit cannot be sampled to its end, or not be trained on.",
        instead: "Shorter rows, a wider window, or `train.max_tokens_per_micro_batch` at least as large as a row.",
    },
    Page {
        id: "memory",
        fatal: "an estimated peak above the device's memory, shown term by term",
        warn: "an estimate within a tenth of it",
        why: "A run that is killed for memory at its first long batch loses the step; exit code 137 is all that is left of it.",
        instead: "Smaller micro-batches (`train.max_tokens_per_micro_batch`), less `engine.kv_memory`, fewer `engine.max_running`.",
    },
    Page {
        id: "batch",
        fatal: "groups of one under an advantage that compares; mini-batches that do not divide the step; keys that a preset does not take; a cut distribution (`top_p`, `top_k`) or temperature 0",
        warn: "groups of fewer than four",
        why: "A group whose members all earn the same teaches nothing; log-probs of a cut distribution are not those that the update computes.",
        instead: "`group_size = 8`, `temperature = 1.0`, `top_p = 1.0`, and a `mini_batch` that divides `groups_per_step`.",
    },
    Page {
        id: "schedule",
        fatal: "a learning rate of zero, from the start or by the scheduler; a warm-up longer than the run",
        warn: "a rate above 0.1, at which a step forgets what the model knew",
        why: "Nothing would be learnt, and no error would say so.",
        instead: "`lr = 1e-6`, `scheduler = \"constant\"`, or `steps` where the scheduler falls to zero behind them.",
    },
    Page {
        id: "rollout-correction",
        fatal: "",
        warn: "importance weights of whole sequences with long responses",
        why: "A product over thousands of tokens is dominated by a few rows: the effective sample size collapses.",
        instead: "`rollout_is = \"token\"` below `[train.rollout_correction]`.",
    },
    Page {
        id: "routing-replay",
        fatal: "`r3` with an engine that returns no routing",
        warn: "a mixture of experts without `r3`",
        why: "Small differences of precision send tokens to other experts in the trainer than in the engine: log-probs differ, and ratios with them.",
        instead: "`routing_replay = \"r3\"` below `[train]`, and `routing = true` below `[capture]`.",
    },
    Page {
        id: "validation",
        fatal: "",
        warn: "no validation tasks; those that are trained on; validation that never runs",
        why: "Training reward alone does not tell learning from overfitting or from a reward that is got by another way.",
        instead: "`val = [\"val.parquet\"]` below `[data]` and `every` below `[eval]`.",
    },
    Page {
        id: "network",
        fatal: "tests of a task that fetch something while their phase reaches nothing; live: a hosted API that is not reached from here; the proxy, where a sandbox does not reach it",
        warn: "live: a registry that is not reached from here; a host that tasks may reach and that does not answer inside a sandbox",
        why: "Tests fail for want of what they fetch, and the reward is zero for all that the agent did; an agent that does not reach the model does nothing at all. Live, one sandbox is made and destroyed: what is reached from here need not be reached from there.",
        instead: "Put what is fetched into the image, or `allowed_hosts` in `[verifier]` of task.toml; for the proxy an address as `listen` below `[proxy]` that sandboxes reach.",
    },
    Page {
        id: "sandbox",
        fatal: "a setting of a backend that is not the one used",
        warn: "",
        why: "A setting without effect is a mistake that nobody sees.",
        instead: "Set the backend, or leave the key out.",
    },
    Page {
        id: "images",
        fatal: "a kubeconfig that is not there; live: a container engine that does not answer, an image of which no sandbox can be made",
        warn: "tasks on a cluster or engine that name more than a few images, without a mirror",
        why: "Hundreds of trials pull at the same time, each node every image, and whole; public registries also bound how much one address may pull.",
        instead: "`mirror` below `[sandbox]`: a registry near the nodes, best one from which they pull lazily (eStargz, Nydus).",
    },
    Page {
        id: "agent",
        fatal: "an agent whose program is not found, or whose keys do not fit it; an agent that Harbor does not have",
        warn: "",
        why: "Each trial would end before its first call.",
        instead: "Install it, or name its folder as `runtime_mount` below `[scaffold]`.",
    },
    Page {
        id: "secrets",
        fatal: "a key or token written in run.toml",
        warn: "",
        why: "run.toml is copied into every run directory, and shown on boards.",
        instead: "Name the environment variable (`api_key_env`), and change a key that was shared.",
    },
    Page {
        id: "run-live",
        fatal: "another process that works on this run directory",
        warn: "a full /dev/shm; ports that are taken",
        why: "Two writers of one run would destroy it.",
        instead: "Wait for it, stop it, or write another `name` below `[run]`.",
    },
    Page {
        id: "gpu",
        fatal: "a build without CUDA; a GPU that is not there; less free on it than weights and gradients take",
        warn: "another process that computes on it, told with those that it comes from",
        why: "A run that shares its GPU fails at its first long batch, or makes the other one fail.",
        instead: "End what works on it, or write another `device` below `[policy]`. Asked of `nvidia-smi`; where that is missing, nothing is looked at.",
    },
    Page {
        id: "clock",
        fatal: "",
        warn: "a server or container engine whose clock differs from this machine's by more than 5 s",
        why: "Certificates count as expired or not valid yet, and times in logs of two machines do not compare.",
        instead: "Set both by the same time server (NTP).",
    },
    Page {
        id: "cluster",
        fatal: "rights that are missing; a pod that does not become ready",
        warn: "commands in pods that cannot be kept from the cluster's network",
        why: "Looked at live: one pod is made and deleted.",
        instead: "`examples/kubernetes/rbac.yaml` has a role with all rights.",
    },
];

/// The page of a check, in Markdown; `None` where there is no such check.
pub fn page(id: &str) -> Option<String> {
    let page = PAGES.iter().find(|page| page.id == id)?;
    let mut text = format!("# {id}\n");
    for (title, body) in [
        ("FATAL", page.fatal),
        ("WARN", page.warn),
        ("Why it matters", page.why),
        ("What to write instead", page.instead),
    ] {
        if !body.is_empty() {
            text += &format!("\n## {title}\n\n{body}\n");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_check_has_a_page() {
        for id in crate::preflight::ids() {
            assert!(super::page(id).is_some(), "no page for `{id}`");
        }
        assert!(super::page("nothing").is_none());
    }
}

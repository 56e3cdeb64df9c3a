//! task.toml as Harbor's own models read it, field by field.

use std::path::{Path, PathBuf};

use lego::task::{NetworkPolicy, Task};
use serde_json::{Value, json};

use super::tasks::Case;
use super::{Bench, cases, read};

/// What the whole task says, as read.py has it.
fn fields(folder: &Path) -> Value {
    let task = Task::load(folder).unwrap();
    let (config, environment) = (&task.config, &task.config.environment);
    let reach = |policy: Option<NetworkPolicy>| {
        policy.map(|policy| {
            let mode = serde_json::to_value(policy.mode).unwrap();
            [vec![mode], policy.hosts.into_iter().map(Value::from).collect()].concat()
        })
    };
    let (agent, verifier) = (&config.agent, &config.verifier);
    let users = [&agent.user, &verifier.user].map(|user| user.as_ref().map(ToString::to_string));
    let time = [task.agent_timeout(), Some(task.verifier_timeout())];
    let time = time.map(|time| time.map(|time| time.as_secs_f64()));
    json!({
        "task": task.id,
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb(),
        "storage_mb": environment.storage_mb(),
        "workdir": environment.workdir,
        "build": task.build_timeout().as_secs_f64(),
        "network": [
            reach(Some(environment.network())),
            reach(NetworkPolicy::of(agent.network_mode, &agent.allowed_hosts)),
            reach(NetworkPolicy::of(verifier.network_mode, &verifier.allowed_hosts)),
        ],
        "users": users,
        "time": time,
        "steps": config.steps.iter().map(|step| &step.name).collect::<Vec<_>>(),
    })
}

/// 1 and 1.0 are one number.
fn floats(value: &mut Value) {
    match value {
        Value::Number(number) => *value = number.as_f64().into(),
        Value::Array(all) => all.iter_mut().for_each(floats),
        Value::Object(all) => all.values_mut().for_each(floats),
        _ => {}
    }
}

#[test]
fn task_toml_is_read_as_harbor_reads_it() {
    let cases: Vec<Case> = cases().collect();
    let bench = Bench::new(&cases, "image:1");
    let folders: Vec<PathBuf> = cases.iter().map(|case| bench.path("tasks").join(case.id)).collect();
    let mut theirs = read("tasks", &folders);
    let mut ours: Vec<Value> = folders.iter().map(|folder| fields(folder)).collect();
    theirs.iter_mut().chain(&mut ours).for_each(floats);
    assert_eq!(ours, theirs);
}

//! What a trial's phases reach beside the policy's API, from the run and the task.

use crate::config::SandboxSection;
use crate::task::{EnvironmentConfig, NetworkMode, NetworkPolicy, Stage, Task};

/// While the agent works: the run's word, else the task's for this phase, else what the task says of its environment,
/// else nothing. An agent that reaches the internet finds the fix there: a task must ask for it.
pub fn of_agent(task: &Task, stage: &Stage, section: &SandboxSection) -> NetworkPolicy {
    let environment = &task.config.environment;
    let said = stage.agent_network.clone();
    let said = said.or_else(|| says(environment).then(|| environment.network()));
    let own = said.unwrap_or_else(NetworkPolicy::none);
    match section.network {
        None => own,
        Some(NetworkMode::Allowlist) => NetworkPolicy {
            mode: NetworkMode::Allowlist,
            hosts: own.hosts,
        },
        Some(mode) => NetworkPolicy {
            mode,
            hosts: Vec::new(),
        },
    }
}

/// While the tests run: the task's word for this phase, else its environment's, which is everything if nothing is said.
pub fn of_verifier(task: &Task, stage: &Stage) -> NetworkPolicy {
    let environment = stage.verifier_environment.as_ref().unwrap_or(&task.config.environment);
    stage.verifier_network.clone().unwrap_or_else(|| environment.network())
}

fn says(environment: &EnvironmentConfig) -> bool {
    environment.network_mode.is_some() || environment.allow_internet.is_some() || !environment.allowed_hosts.is_empty()
}

#[cfg(test)]
mod tests {
    use crate::config::SandboxSection;
    use crate::task::{NetworkMode, NetworkPolicy, Task};

    fn of_agent(task: &Task, section: &SandboxSection) -> NetworkPolicy {
        super::of_agent(task, &task.stages().unwrap()[0], section)
    }

    fn of_verifier(task: &Task) -> NetworkPolicy {
        super::of_verifier(task, &task.stages().unwrap()[0])
    }

    /// The folder is gone when this is: what is asked for has been read.
    fn task(toml: &str) -> Task {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t");
        fs_err::create_dir_all(dir.join("tests")).unwrap();
        fs_err::write(dir.join("instruction.md"), "Do.").unwrap();
        fs_err::write(dir.join("tests/test.sh"), "").unwrap();
        fs_err::write(dir.join("task.toml"), toml).unwrap();
        Task::load(&dir).unwrap()
    }

    fn policy(mode: NetworkMode, hosts: &[&str]) -> NetworkPolicy {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        NetworkPolicy { mode, hosts }
    }

    #[test]
    fn each_phase_has_its_own_word_and_an_agent_nothing_unless_asked_for() {
        use NetworkMode::{Allowlist, NoNetwork, Public};
        let by_task = SandboxSection::default();
        let by_run = |mode| SandboxSection {
            network: Some(mode),
            ..SandboxSection::default()
        };
        let plain = task("");
        assert_eq!(of_agent(&plain, &by_task), policy(NoNetwork, &[]));
        assert_eq!(of_verifier(&plain), policy(Public, &[]));
        assert_eq!(of_agent(&plain, &by_run(Public)), policy(Public, &[]));
        let open = task("[environment]\nnetwork_mode = \"public\"\n[verifier]\nnetwork_mode = \"no-network\"\n");
        assert_eq!(of_agent(&open, &by_task), policy(Public, &[]));
        assert_eq!(of_verifier(&open), policy(NoNetwork, &[]));
        assert_eq!(of_agent(&open, &by_run(NoNetwork)), policy(NoNetwork, &[]));
        let listed = task("[environment]\nallow_internet = false\n[agent]\nallowed_hosts = [\"pypi.org\"]\n");
        assert_eq!(of_agent(&listed, &by_task), policy(Allowlist, &["pypi.org"]));
        assert_eq!(of_agent(&listed, &by_run(Allowlist)), policy(Allowlist, &["pypi.org"]));
        assert_eq!(of_verifier(&listed), policy(NoNetwork, &[]));
    }
}

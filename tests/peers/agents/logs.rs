//! What an agent that writes for ever leaves on the host.

use super::agent::Agent;
use super::script::{self, Script, calls, says};
use super::trial::Trial;
use crate::root;

#[test]
fn logs_are_cut_with_a_mark_and_counted() {
    let agent = Agent::CUSTOM;
    let program = root().join("tests/peers/agents/agent.py");
    let command = format!(
        "yes | head -c 20000000; echo kept >/logs/agent/a; head -c 80000000 /dev/zero >/logs/agent/b; \
         python3 {} policy; echo the end",
        program.display()
    );
    let script = Script::new([calls("I write it.", &[agent.bash(script::WRITE)]), says("Done.")]);
    let trial = Trial::new(agent, script).set(&format!("scaffold.command={:?}", ["sh", "-c", command.as_str()]));
    let (folder, episode) = trial.passes_and_stays();
    assert_eq!(episode.segments, 1);
    let logs = folder.path().join("out/trials/step_0000/hello__00");
    let printed = std::fs::read_to_string(logs.join("agent/custom.log")).unwrap();
    assert!(printed.len() < 9 << 20, "{}", printed.len());
    assert!(printed.contains("bytes left out …]") && printed.ends_with("the end\n"));
    let own: Vec<_> = std::fs::read_dir(logs.join("agent/own")).unwrap().flatten().collect();
    assert_eq!(own.len(), 1, "{own:?}");
    assert!(logs.join("agent/own.cut").is_file());
    let result = std::fs::read(logs.join("result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let metadata = &result["agent_result"]["metadata"];
    assert!(
        metadata["log_bytes_left_out"].as_u64().unwrap() > 11_000_000,
        "{metadata}"
    );
    assert_eq!(metadata["log_files_left_out"], true);
}

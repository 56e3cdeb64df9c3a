//! `gpu`, live: the GPU that the policy is to train on is there, has room, and nobody else works on it. Asked of the driver's
//! own program; this one needs no part of the driver.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lego_policy::cuda_available;
use tokio::process::Command;

use super::{Finding, memory, model};
use crate::config::{DeviceName, Loaded};

pub(super) const ID: &str = "gpu";
const KEY: &str = "policy.device";
/// The driver's program.
const PROGRAM: &str = "nvidia-smi";
/// Time for one answer: a driver that has to wake up takes seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// Processes that are named at most.
const NAMED: usize = 5;

/// A GPU, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Gpu {
    index: u32,
    uuid: String,
    name: String,
    total: u64,
    free: u64,
}

pub(super) async fn look(run: &Loaded) -> Vec<Finding> {
    let on_gpu = matches!(run.config.policy.device, DeviceName::Cuda(_));
    if let Some(error) = cuda_available().err().filter(|_| on_gpu) {
        let text = format!("{KEY} = \"{}\": {error}", run.config.policy.device);
        return vec![
            Finding::fatal(ID, text)
                .at(run, KEY)
                .help("write `device = \"cpu\"`, or build with CUDA"),
        ];
    }
    look_by(run, Path::new(PROGRAM)).await
}

async fn look_by(run: &Loaded, program: &Path) -> Vec<Finding> {
    let DeviceName::Cuda(index) = run.config.policy.device else {
        return Vec::new();
    };
    let listed = ask(program, "--query-gpu=index,uuid,name,memory.total,memory.free").await;
    let gpus = match listed {
        Ok(text) => gpus(&text),
        Err(reason) => {
            let text = format!("{}: {reason}: the GPUs were not looked at", program.display());
            return vec![Finding::skip(ID, text)];
        }
    };
    let Some(gpu) = gpus.iter().find(|gpu| gpu.index == index) else {
        let text = format!(
            "{KEY} = \"cuda:{index}\": this machine has {} GPUs, counted from 0",
            gpus.len()
        );
        let help = if gpus.is_empty() {
            "write `device = \"cpu\"`"
        } else {
            "write the number of one that is there"
        };
        return vec![Finding::fatal(ID, text).at(run, KEY).help(help)];
    };
    let shape = model::shape(&run.config.policy);
    // Weights and gradients lie there whatever else does; the optimizer stays on the host.
    let least = shape.map_or(0, |shape| 2 * memory::weight_bytes(&shape));
    let shown = memory::shown;
    if gpu.free < least {
        let text = format!(
            "GPU {index} ({}) has {} free of {}, and weights and gradients alone take {}",
            gpu.name,
            shown(gpu.free),
            shown(gpu.total),
            shown(least)
        );
        let help = if gpu.total < least {
            "a smaller model, or a larger GPU"
        } else {
            "end what works on it, or write another `device` below `[policy]`"
        };
        return vec![
            Finding::fatal(ID, with_users(text, program, &gpu.uuid).await)
                .at(run, KEY)
                .help(help),
        ];
    }
    let users = users(program, &gpu.uuid).await;
    if !users.is_empty() {
        let text = format!("GPU {index} ({}) is in use by {}", gpu.name, users.join(", "));
        let help = "end what works on it, or write another `device` below `[policy]`";
        return vec![Finding::warn(ID, text).at(run, KEY).help(help)];
    }
    let text = format!(
        "GPU {index} ({}) has {} free, and nobody works on it",
        gpu.name,
        shown(gpu.free)
    );
    vec![Finding::pass(ID, text)]
}

async fn with_users(text: String, program: &Path, uuid: &str) -> String {
    let users = users(program, uuid).await;
    if users.is_empty() {
        text
    } else {
        format!("{text}; in use by {}", users.join(", "))
    }
}

async fn ask(program: &Path, query: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command
        .args([query, "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER, command.output())
        .await
        .map_err(|_| format!("no answer within {ANSWER:?}"))?
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Err(said.trim().lines().next().unwrap_or("it failed").to_owned())
}

/// Lines `index, uuid, name, MiB in all, MiB free`.
fn gpus(text: &str) -> Vec<Gpu> {
    let mib = |text: &str| text.parse::<u64>().ok().map(|mib| mib << 20);
    let one = |line: &str| {
        let parts: Vec<&str> = line.split(", ").map(str::trim).collect();
        let [index, uuid, name, total, free] = parts.as_slice() else {
            return None;
        };
        Some(Gpu {
            index: index.parse().ok()?,
            uuid: (*uuid).to_owned(),
            name: (*name).to_owned(),
            total: mib(total)?,
            free: mib(free)?,
        })
    };
    text.lines().filter_map(one).collect()
}

/// Whoever computes on a GPU, with whom they were started by: processes of another container have no name here.
async fn users(program: &Path, uuid: &str) -> Vec<String> {
    let Ok(text) = ask(program, "--query-compute-apps=gpu_uuid,pid,used_memory").await else {
        return Vec::new();
    };
    let of_gpu = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.split(", ").map(str::trim).collect();
        let [of, pid, used] = parts.as_slice() else { return None };
        (*of == uuid).then(|| match used.parse::<u64>() {
            Ok(mib) => format!("{} ({})", process(pid), memory::shown(mib << 20)),
            Err(_) => process(pid),
        })
    });
    of_gpu.take(NAMED).collect()
}

/// `process 41 vllm, of 17 bash, of 1 init`: a process and those that it comes from.
fn process(pid: &str) -> String {
    let mut told = String::from("process ");
    let mut next = pid.to_owned();
    for generation in 0..4 {
        let name = std::fs::read_to_string(format!("/proc/{next}/comm"));
        if generation > 0 {
            told += ", of ";
        }
        told += &next;
        let Ok(name) = name else { break };
        told += &format!(" {}", name.trim());
        let Ok(status) = std::fs::read_to_string(format!("/proc/{next}/status")) else {
            break;
        };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        match parent.map(str::trim) {
            Some(parent) if parent != "0" => parent.clone_into(&mut next),
            _ => break,
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::{Layers, load};
    use crate::preflight::Status;

    /// What a driver's program would say, word for word, by its first argument.
    fn program(folder: &Path, gpus: &str, apps: &str) -> std::path::PathBuf {
        let path = folder.join("driver");
        let text =
            format!("#!/bin/sh\ncase $1 in\n  --query-gpu*) printf '{gpus}' ;;\n  *) printf '{apps}' ;;\nesac\n");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn run_on(device: &str) -> Loaded {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/policy");
        let text = format!("policy.device = \"{device}\"\npolicy.model = \"{}\"\n", model.display());
        load(&Layers::text(&text)).unwrap()
    }

    #[tokio::test]
    async fn a_gpu_is_judged_by_its_room_and_who_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "0, GPU-a, NVIDIA H200, 143771, 143000\\n1, GPU-b, NVIDIA H200, 143771, 2\\n";
        let own = format!("GPU-a, {}, 700\\n", std::process::id());
        for (device, apps, status, says) in [
            ("cuda:0", "", Status::Pass, "143000MiB free"),
            ("cuda:0", own.as_str(), Status::Warn, "is in use by process"),
            ("cuda:1", "", Status::Fatal, "weights and gradients alone take"),
            ("cuda:2", "", Status::Fatal, "this machine has 2 GPUs"),
        ] {
            let found = look_by(&run_on(device), &program(folder.path(), lines, apps)).await;
            assert_eq!((found.len(), found[0].status), (1, status), "{device}: {found:?}");
            assert!(found[0].detail.contains(says), "{device}: {found:?}");
        }
        let none = look_by(&run_on("cuda:0"), Path::new("/no/such/program")).await;
        assert_eq!(none[0].status, Status::Skip, "{none:?}");
        assert!(look_by(&run_on("cpu"), Path::new("/no/such/program")).await.is_empty());
    }

    #[test]
    fn a_process_is_named_with_those_it_comes_from() {
        let said = process(&std::process::id().to_string());
        assert!(
            said.contains(&format!("process {}", std::process::id())) && said.contains(", of "),
            "{said}"
        );
    }
}

//! Who runs inside, read from `/proc`, and ending them.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long processes started from outside are spared.
const SPARING: Duration = Duration::from_millis(300);

/// How long a killed command's processes are waited for before its end is told.
const DYING: Duration = Duration::from_millis(500);

/// One line of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    pub(super) dead: bool,
    /// Bytes.
    pub(super) resident: u64,
}

fn parse(stat: &str) -> Option<Process> {
    // The name may hold spaces and parentheses: the last `)` ends it.
    let (front, back) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = back.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    Some(Process {
        pid: front.split_once(' ')?.0.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X"),
        parent: number(1)? as i32,
        group: number(2)? as i32,
        session: number(3)? as i32,
        resident: number(21)?.max(0) as u64 * 4096,
    })
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(one)
        .collect()
}

fn one(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes that descend from `ancestor`, the dead ones too.
pub(super) fn descendants(ancestor: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        for process in all
            .iter()
            .filter(|process| process.parent == parent && process.pid != ancestor)
        {
            found.push(*process);
            next.push(process.pid);
        }
    }
    found
}

/// Kills a command's group, its session, and what descends from it, and waits a moment for their end.
pub(super) fn kill_command(pid: Pid) {
    let leader = pid.as_raw();
    // Before its children lose their parent.
    let mut doomed: Vec<i32> = descendants(leader).iter().map(|process| process.pid).collect();
    let _ = killpg(pid, Signal::SIGKILL);
    doomed.extend(
        all()
            .iter()
            .filter(|process| process.session == leader || process.group == leader)
            .map(|process| process.pid),
    );
    doomed.push(leader);
    for pid in &doomed {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    let start = Instant::now();
    while doomed.iter().any(|pid| one(*pid).is_some_and(|process| !process.dead)) && start.elapsed() < DYING {
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// What [`kill_all`] reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What descends from this process, which adopts orphans.
    Descendants,
    /// The same first, so that what was started from outside (our own relay) is spared; where that is not quick enough,
    /// everything in the namespace.
    NamespaceAtLast,
    /// Everything in the namespace, of which this is process 1.
    Namespace,
}

/// Kills all but this process and reaps what dies; gives the ended to `reaped`.
///
/// Gives how many lived. An error says how many are left after some seconds.
pub(super) fn kill_all(reach: Reach, mut reaped: impl FnMut(WaitStatus)) -> Result<usize, String> {
    let me = nix::unistd::getpid().as_raw();
    let start = Instant::now();
    let mut lived = None;
    loop {
        let left: Vec<Process> = descendants(me).into_iter().filter(|process| !process.dead).collect();
        let lived = *lived.get_or_insert(left.len());
        if reach == Reach::Namespace || (reach == Reach::NamespaceAtLast && start.elapsed() > SPARING) {
            // Process 1 reaches all others at once: no fork slips through.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        } else {
            for process in &left {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(nix::Error::EINTR) => break,
                Ok(status) => reaped(status),
                // No child is left, and orphans become ours: nobody is left.
                Err(_) => return Ok(lived),
            }
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{} processes did not end within {PATIENCE:?}", left.len()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills the largest process while all together hold more than `limit` bytes. Gives whether it had to.
pub(super) fn enforce_memory(limit: u64) -> bool {
    let mut living = descendants(nix::unistd::getpid().as_raw());
    let mut total: u64 = living.iter().map(|process| process.resident).sum();
    let mut killed = false;
    living.sort_by_key(|process| process.resident);
    while total > limit {
        let Some(largest) = living.pop() else { break };
        let _ = kill(Pid::from_raw(largest.pid), Signal::SIGKILL);
        total -= largest.resident;
        killed = true;
    }
    killed
}

/// How many processes the kernel has ended for this container's memory limit, as its control group counts them (in
/// either version's file).
pub(super) fn killed_for_memory() -> u64 {
    let files = [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ];
    let texts = files.into_iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| counted(&text)).max().unwrap_or(0)
}

fn counted(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{Process, counted, parse};

    #[test]
    fn both_versions_of_control_groups_count() {
        assert_eq!(counted("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(counted("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(counted("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn a_name_may_look_like_anything() {
        let line =
            "7 (a) S 1 ( b) R 3 7 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 100 4096000 25 18446744073709551615 1 1";
        let expected = Process {
            pid: 7,
            parent: 3,
            group: 7,
            session: 6,
            dead: false,
            resident: 25 * 4096,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("7 (cut"), None);
        assert_eq!(parse("7 (cut) R 1"), None);
    }
}

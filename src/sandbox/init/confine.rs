//! What every command gives up before it starts: capabilities, new privileges, dangerous calls, limits.
//!
//! Without namespaces also the file system outside its own folders, where the kernel has landlock.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule,
};

use super::Failure;
use crate::sandbox::control::wire::Setup;
use crate::sandbox::{local, sys};

/// Newest landlock that the rules are written for; older kernels enforce what they know.
const LANDLOCK: ABI = ABI::V6;

/// The limits of one sandbox, ready to be put around a command.
pub(super) struct Fence {
    filters: Vec<BpfProgram>,
    /// Whether commands keep what the container gave them: its capabilities, programs with a set-user bit.
    privileges: bool,
    landlock: Option<Folders>,
    pids: Option<u64>,
    file_size: Option<u64>,
}

struct Folders {
    scratch: std::path::PathBuf,
    read_only: Vec<std::path::PathBuf>,
    proxy_port: Option<u16>,
}

impl Fence {
    pub(super) fn namespaces(setup: &Setup) -> Result<Self, Failure> {
        // No command can bring a capability back; the init keeps its own to mount fresh folders.
        sys::limit_bounding_set(0);
        nix::sys::prctl::set_dumpable(false).map_err(|error| Failure::new("dumpable", error))?;
        Ok(Self {
            filters: filters(false)?.into(),
            privileges: false,
            landlock: None,
            pids: setup.pids.map(u64::from),
            file_size: setup.disk,
        })
    }

    pub(super) fn weak(setup: &Setup) -> Result<Self, Failure> {
        let folders = Folders {
            scratch: setup.scratch.clone(),
            read_only: setup.read_only.iter().map(|mount| mount.from.clone()).collect(),
            proxy_port: setup.proxy_port,
        };
        Ok(Self {
            filters: filters(true)?.into(),
            privileges: false,
            landlock: has_landlock().then_some(folders),
            // The kernel counts all processes of this user, not only those inside.
            pids: setup.pids.map(|pids| u64::from(pids) + processes_of_this_user()),
            file_size: setup.disk,
        })
    }

    /// The container is the fence: only what it has no setting for is added.
    pub(super) fn container(setup: &Setup) -> Result<Self, Failure> {
        // Root inside must not read this process's memory or descriptors.
        nix::sys::prctl::set_dumpable(false).map_err(|error| Failure::new("dumpable", error))?;
        Ok(Self {
            filters: Vec::new(),
            privileges: true,
            landlock: None,
            pids: None,
            file_size: setup.disk,
        })
    }

    pub(super) fn has_landlock(&self) -> bool {
        self.landlock.is_some()
    }

    /// Confines the calling process, which is about to run a command.
    pub(super) fn apply(&self) -> Result<(), String> {
        let fail = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        for (resource, limit) in [
            (Resource::RLIMIT_CORE, Some(0)),
            (Resource::RLIMIT_NPROC, self.pids),
            (Resource::RLIMIT_FSIZE, self.file_size),
        ] {
            if let Some(limit) = limit {
                let (_, hard) = getrlimit(resource).map_err(|error| fail("limits", &error))?;
                let limit = limit.min(hard);
                setrlimit(resource, limit, limit).map_err(|error| fail("limits", &error))?;
            }
        }
        if self.privileges {
            // Where memory runs out a command goes, not the init. Raising this is always allowed, and some clusters begin
            // high; where it is not there, the kernel's own choice stands.
            let _ = std::fs::write("/proc/self/oom_score_adj", "500")
                .or_else(|_| std::fs::write("/proc/self/oom_score_adj", "1000"));
            return Ok(());
        }
        nix::sys::prctl::set_no_new_privs().map_err(|error| fail("no_new_privs", &error))?;
        if let Some(folders) = &self.landlock {
            folders.restrict().map_err(|error| fail("landlock", &error))?;
        }
        sys::set_capabilities(0).map_err(|error| fail("capabilities", &error))?;
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(|error| fail("seccomp", &error))?;
        }
        Ok(())
    }
}

impl Folders {
    fn restrict(&self) -> Result<(), String> {
        let text = |error: landlock::RulesetError| error.to_string();
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))
            .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
            .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
            .and_then(Ruleset::create)
            .map_err(text)?;
        let own = local::FOLDERS.iter().map(|name| self.scratch.join(name));
        let write = own.chain(["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"].map(Into::into));
        let read = [
            "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/etc", "/proc", "/dev",
        ];
        let read = read.map(Into::into).into_iter().chain(self.read_only.iter().cloned());
        let granted = write
            .map(|path| (path, AccessFs::from_all(LANDLOCK)))
            .chain(read.map(|path| (path, AccessFs::from_read(LANDLOCK))));
        for (path, access) in granted {
            let Ok(fd) = PathFd::new(&path) else { continue };
            let access = if Path::is_dir(&path) {
                access
            } else {
                access & AccessFs::from_file(LANDLOCK)
            };
            rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(text)?;
        }
        if let Some(port) = self.proxy_port {
            rules = rules
                .add_rule(NetPort::new(port, AccessNet::ConnectTcp))
                .map_err(text)?;
        }
        match rules.restrict_self().map_err(text)?.ruleset {
            RulesetStatus::NotEnforced => Err("the kernel did not enforce it".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Whether this kernel enforces landlock rules at all.
fn has_landlock() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

fn processes_of_this_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let me = nix::unistd::getuid().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(|meta| meta.uid() == me)
        .count() as u64
}

/// Calls that no task needs and that reach past a sandbox: mounts, namespaces, modules, keys, foreign
/// sockets (a virtual machine's own channel to its host ignores network namespaces).
fn filters(weak: bool) -> Result<[BpfProgram; 2], Failure> {
    let denied = [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_userfaultfd,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_open_by_handle_at,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_syslog,
        libc::SYS_vhangup,
    ];
    let mut rules: BTreeMap<i64, Vec<Rule>> = denied.into_iter().map(|call| (call, Vec::new())).collect();
    let when = |argument, op, value| Condition::new(argument, Length::Dword, op, value);
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let build = || -> Result<[BpfProgram; 2], seccompiler::BackendError> {
        let clone = flags
            .iter()
            .map(|flag| Rule::new(vec![when(0, Op::MaskedEq(*flag as u64), *flag as u64)?]));
        rules.insert(libc::SYS_clone, clone.collect::<Result<_, _>>()?);
        let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        let foreign = families
            .iter()
            .map(|family| when(0, Op::Ne, *family as u64))
            .collect::<Result<_, _>>()?;
        let mut sockets = vec![Rule::new(foreign)?];
        if weak {
            // Landlock restricts TCP only.
            for family in [libc::AF_INET, libc::AF_INET6] {
                for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
                    let kind = when(1, Op::MaskedEq(0xf), kind as u64)?;
                    sockets.push(Rule::new(vec![when(0, Op::Eq, family as u64)?, kind])?);
                }
            }
        }
        rules.insert(libc::SYS_socket, sockets);
        let arch = std::env::consts::ARCH.try_into()?;
        let deny = SeccompAction::Errno(libc::EPERM as u32);
        let first = SeccompFilter::new(rules, SeccompAction::Allow, deny, arch)?;
        // Its flags are behind a pointer that no filter can read; libc falls back to `clone`.
        let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let second = SeccompFilter::new(
            absent,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
            arch,
        )?;
        Ok([first.try_into()?, second.try_into()?])
    };
    build().map_err(|error| Failure::refused("seccomp", error))
}

//! A real registry on this machine, for the time of a test.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::docker;

/// A registry with an empty store, its log in a file.
pub(crate) struct Registry {
    server: Child,
    pub(crate) address: String,
    folder: tempfile::TempDir,
}

impl Registry {
    pub(crate) fn start() -> Self {
        Self::with(|_| String::new())
    }

    /// One that wants to know who asks: `who` with the password `secret`, by this line of a password file.
    pub(crate) fn of_users(line: &str) -> Self {
        Self::with(|folder| {
            let path = folder.join("users");
            std::fs::write(&path, format!("{line}\n")).unwrap();
            format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", path.display())
        })
    }

    fn with(more: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n{}",
            folder.path().join("store").display(),
            more(folder.path())
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let server = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            server,
            address: address.to_string(),
            folder,
        }
    }

    /// Pushes a small image of our own; gives its digest. The engine forgets it.
    pub(crate) fn push(&self, name: &str, base: &str) -> String {
        let full = format!("{}/{name}", self.address);
        let context = self.folder.path().join("context");
        std::fs::create_dir_all(&context).unwrap();
        let files = "COPY small /\nWORKDIR /app\n";
        std::fs::write(
            context.join("Dockerfile"),
            format!("FROM scratch\n{files}LABEL name={name}\n"),
        )
        .unwrap();
        small(base, &context.join("small"));
        docker(&["build", "-q", "-t", &full, context.to_str().unwrap()]);
        docker(&["push", "-q", &full]);
        let digest = docker(&["inspect", "--format", "{{index .RepoDigests 0}}", &full]);
        docker(&["rmi", "-f", &full]);
        digest.trim().rsplit('@').next().unwrap().to_owned()
    }

    /// How often images' descriptions were put there.
    pub(crate) fn puts(&self) -> usize {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let put = |line: &&str| line.contains("\"PUT /v2/") && line.contains("/manifests/");
        log.lines().filter(put).count()
    }

    /// How often an image's description was asked for by its tag.
    pub(crate) fn pulls(&self, name: &str, tag: &str) -> usize {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let asked = format!("\"GET /v2/{name}/manifests/{tag}");
        let headed = format!("\"HEAD /v2/{name}/manifests/{tag}");
        log.lines()
            .filter(|line| line.contains(&asked) || line.contains(&headed))
            .count()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A root folder with nothing but a shell, chmod and their libraries, taken out of the test image.
fn small(base: &str, to: &Path) {
    if to.exists() {
        return;
    }
    let copy = "cd / && ldd /bin/sh /bin/chmod | tr ' \\t' '\\n' | grep '^/.*[^:]$' | sort -u >/tmp/list; echo /bin/sh /bin/chmod >>/tmp/list; \
                tar -chf - $(cat /tmp/list)";
    unpack(base, copy, to);
}

/// What a script in the test image writes as an archive, in a new folder.
fn unpack(base: &str, script: &str, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let mut out = Command::new("docker")
        .args(["run", "--rm", "--network", "none", base, "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unpacked = Command::new("tar")
        .arg("-C")
        .arg(to)
        .arg("-xf")
        .arg("-")
        .stdin(out.stdout.take().unwrap())
        .status();
    assert!(unpacked.unwrap().success() && out.wait().unwrap().success());
}

/// The name of an image with a shell's usual programs, git and Python alone: the test image takes long to push.
pub(crate) fn light(base: &str) -> String {
    let id = docker(&["image", "inspect", "--format", "{{.Id}}", base]);
    let name = format!("lego-test:light-{}", id.trim().trim_start_matches("sha256:"));
    let known = Command::new("docker")
        .args(["image", "inspect", &name])
        .output()
        .unwrap();
    if known.status.success() {
        return name;
    }
    let copy = "cd / && packages='dash coreutils findutils grep sed tar gzip mawk patch diffutils procps git'; \
                all=\"$(dpkg -L $packages | grep ^/usr/bin/) /bin/sh /usr/bin/awk /usr/bin/python3\"; \
                for program in $all; do [ -e $program ] && echo $program; done >/tmp/programs; \
                ldd $(cat /tmp/programs) /usr/lib/python3*/lib-dynload/*.so 2>/dev/null | tr ' \\t' '\\n' | grep '^/.*[^:]$' | sort -u >/tmp/list; \
                tar -chf - --exclude=__pycache__ --exclude=test $(cat /tmp/list /tmp/programs) /usr/lib/python3*";
    let context = tempfile::tempdir().unwrap();
    unpack(base, copy, &context.path().join("root"));
    let dockerfile = "FROM scratch\nCOPY root /\nRUN mkdir -p /tmp && chmod 1777 /tmp\n";
    std::fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
    docker(&["build", "-q", "-t", &name, context.path().to_str().unwrap()]);
    name
}

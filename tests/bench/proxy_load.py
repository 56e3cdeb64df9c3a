#!/usr/bin/env python3
"""What a proxy costs: CPU and added time of one request, lego beside others, in the same rounds.

    cargo build --release
    tests/bench/proxy_load.py [--vllm-router PROGRAM] [--litellm PROGRAM] [--size BYTES] [--rounds N] [--model DIR]

Needs wrk and nginx (Debian: wrk, nginx-light); pip install vllm-router, pip install 'litellm[proxy]' for those two, each in
a venv of its own. Behind all of them stands the same server without a model (mock_engine.rs). Every request of lego's
opens a session of its own, which is the dearest case; between rounds its sessions are finished, so that it runs on memory
that it has used before, as the others do. `cpu` is the CPU time of the proxy's process tree by request, `added` the median
time over that of the bare server in the same round. Medians of all rounds; the order of the targets alternates.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 100
ADMIN = "admin-of-the-bench"

WRK = """
local n, size, stream, most = 0, %(size)d, %(stream)s, %(requests)d
local words, length, i = {}, 0, 0
while length < size do i = i + 1; local w = "w" .. (i * 7919 %% 99991) .. " "; words[#words + 1] = w; length = length + #w end
local text = table.concat(words)
local headers = { ["content-type"] = "application/json", ["authorization"] = "Bearer none" }
request = function()
  n = n + 1
  local path = %(sessions)s and string.format("/sess/%(prefix)s%%d/v1/chat/completions", n) or "/v1/chat/completions"
  local body = '{"model":"mock","messages":[{"role":"system","content":"You are session ' .. n %% 64
    .. '"},{"role":"user","content":"' .. text .. '"}],"max_tokens":128,"temperature":1.0'
    .. (stream and ',"stream":true' or '') .. '}'
  return wrk.format("POST", path, headers, body)
end
response = function() if n >= most then wrk.thread:stop() end end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d\\n", summary.requests, e.connect + e.read + e.write + e.timeout + e.status,
    latency:percentile(50), latency:percentile(99)))
end
"""

NGINX = """
worker_processes 2; pid %(dir)s/pid; daemon off; error_log %(dir)s/err.log error; events { worker_connections 4096; }
http { access_log off; keepalive_requests 1000000; client_body_buffer_size 1m; client_max_body_size 64m;
 client_body_temp_path %(dir)s/b; proxy_temp_path %(dir)s/p; fastcgi_temp_path %(dir)s/f; uwsgi_temp_path %(dir)s/u; scgi_temp_path %(dir)s/s;
 upstream m { server 127.0.0.1:%(mock)d; keepalive 512; }
 server { listen 127.0.0.1:%(port)d backlog=4096;
  location / { proxy_pass http://m; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def tree(pid):
    found, todo = set(), [pid]
    while todo:
        pid = todo.pop()
        found.add(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                todo += [int(child) for child in children.read_text().split()]
            except OSError:
                pass
    return found


def cpu_seconds(pid):
    total = 0
    for member in tree(pid):
        for task in Path(f"/proc/{member}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text().split()[0])
            except OSError:
                pass
    return total / 1e9


def memory_mib(pid):
    total = 0
    for member in tree(pid):
        try:
            total += int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{member}/status").read_text()).group(1))
        except (OSError, AttributeError):
            pass
    return total / 1024


class Target:
    def __init__(self, name, port, argv=None, env=None, sessions=False):
        self.name, self.port, self.argv, self.sessions = name, port, argv, sessions
        self.env = {**os.environ, **(env or {})}
        self.process = None

    def start(self, log):
        if self.argv:
            self.process = subprocess.Popen(self.argv, env=self.env, stdout=log, stderr=log, start_new_session=True)
        body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 128}).encode()
        path = "/sess/first/v1/chat/completions" if self.sessions else "/v1/chat/completions"
        headers = {"content-type": "application/json", "authorization": "Bearer none"}
        end = time.time() + 90
        while True:
            try:
                call = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
                with urllib.request.urlopen(call, timeout=10) as answer:
                    assert b"content" in answer.read()
                return
            except OSError as error:
                if time.time() > end or (self.process and self.process.poll() is not None):
                    sys.exit(f"{self.name} does not answer: {error}; its output is in {log.name}")
                time.sleep(0.2)

    def stop(self):
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGTERM)
                self.process.wait(20)
            except (OSError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, signal.SIGKILL)

    def measure(self, folder, stream, conc, args, prefix):
        script = folder / "load.lua"
        lua = {"size": args.size, "stream": str(stream).lower(), "requests": args.requests if self.sessions else 10**9,
               "sessions": str(self.sessions).lower(), "prefix": prefix}
        script.write_text(WRK % lua)
        before = cpu_seconds(self.process.pid) if self.process else 0
        command = ["wrk", "-t1", f"-c{conc}", f"-d{args.seconds}s", "--timeout", "60s", "--latency", "-s", script]
        out = subprocess.run([*command, f"http://127.0.0.1:{self.port}"], capture_output=True, text=True, timeout=240)
        found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+)", out.stdout)
        if not found:
            sys.exit(f"wrk: {out.stdout}{out.stderr}")
        count, errors, p50, p99 = map(int, found.groups())
        cpu = (cpu_seconds(self.process.pid) - before) / max(1, count) * 1e6 if self.process else 0
        memory = memory_mib(self.process.pid) if self.process else 0
        if self.sessions:
            self.finish()
        return {"count": count, "errors": errors, "p50": p50, "p99": p99, "cpu": cpu, "memory": memory}

    def finish(self):
        """Ends the round's sessions."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"authorization": f"Bearer {ADMIN}"}
        link.request("GET", "/sess", headers=headers)
        for session in json.load(link.getresponse())["sessions"]:
            link.request("POST", f"/sess/{session['session']}/finish", '{"reward": 1.0}', headers)
            link.getresponse().read()
        link.close()


def roomy_model(folder):
    """The quickstart's policy, said to have a window that holds the requests."""
    model = folder / "model"
    if not model.exists():
        shutil.copytree(ROOT / "examples/quickstart/policy", model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131072}))
    return model


def targets(args, folder, mock, stream):
    run, model = folder / "run.toml", args.model or roomy_model(folder)
    run.write_text(f'[policy]\nmodel = "{model}"\n[data]\nmax_prompt_tokens = 16384\nmax_response_tokens = 16384\n'
                   f'[engine]\nkind = "vllm"\nendpoints = ["http://127.0.0.1:{mock}"]\n[rollout]\nmax_tokens = 1024\n')
    base = f"http://127.0.0.1:{mock}"
    yield Target("bare server", mock)
    port = free_port()
    nginx = folder / f"nginx-{port}"
    nginx.mkdir()
    (nginx / "nginx.conf").write_text(NGINX % {"dir": nginx, "mock": mock, "port": port})
    yield Target("nginx", port, [args.nginx, "-c", str(nginx / "nginx.conf"), "-p", str(nginx)])
    if args.vllm_router:
        port = free_port()
        yield Target("vllm-router", port, [args.vllm_router, "--host", "127.0.0.1", "--port", str(port), "--worker-urls",
                     base, "--policy", "consistent_hash", "--prometheus-port", str(free_port()), "--log-level", "error"])
    if args.litellm:
        port, config = free_port(), folder / "litellm.yaml"
        config.write_text("model_list:\n  - model_name: mock\n    litellm_params:\n      model: hosted_vllm/mock\n"
                          f"      api_base: {base}/v1\n      api_key: none\nlitellm_settings:\n  telemetry: false\n")
        yield Target("LiteLLM", port, [args.litellm, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
                     {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION",
                      "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"})
    for name, more in [("lego", []), ("lego, on disk", ["--capture", str(folder / f"shards-{mock}")])]:
        port = free_port()
        command = [args.lego, "serve-proxy", str(run), "--anonymous", "--admin-token", ADMIN, "--listen", f"127.0.0.1:{port}"]
        yield Target(name, port, [*command, *more], sessions=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", default=str(ROOT / "target/release/lego"))
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--vllm-router")
    parser.add_argument("--litellm")
    parser.add_argument("--model", help="folder of a model whose tokenizer is used; the quickstart's where it is not given")
    parser.add_argument("--conc", default="1,32")
    parser.add_argument("--requests", type=int, default=1000, help="of lego's in one measurement")
    parser.add_argument("--seconds", type=int, default=2, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=2048)
    args = parser.parse_args()
    if args.requests > 3500:
        parser.error("--requests: at most 3500, since no more than 4096 anonymous sessions may be open at once")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = folder / "mock_engine"
        source = ROOT / "tests/bench/mock_engine.rs"
        subprocess.run(["rustc", "-O", "--edition", "2024", source, "-o", engine], check=True)
        for stream, events in [(False, 1), (True, TOKENS)]:
            mock = free_port()
            server = subprocess.Popen([engine, str(mock), str(TOKENS), str(events)])
            running = []
            try:
                with open(folder / "log.txt", "ab") as log:
                    for target in targets(args, folder, mock, stream):
                        target.start(log)
                        running.append(target)
                compare(running, folder, stream, args)
            finally:
                for target in running:
                    target.stop()
                server.terminate()


def compare(running, folder, stream, args):
    kind = f"stream of {TOKENS} events" if stream else f"{args.size} bytes in, {TOKENS} tokens out"
    for conc in map(int, args.conc.split(",")):
        rows = {target.name: [] for target in running}
        # The first round warms up and does not count.
        for index in range(args.rounds + 1):
            bare = None
            for target in running if index % 2 == 0 else [running[0], *running[:0:-1]]:
                row = target.measure(folder, stream, conc, args, f"r{int(stream)}-{conc}-{index}-")
                bare = bare or row["p50"]
                row["added"] = row["p50"] - bare
                if index:
                    rows[target.name].append(row)
        print(f"\n{kind}, {conc} at a time")
        print(f"{'':15} {'cpu us':>8} {'x nginx':>8} {'added us':>9} {'p50 us':>8} {'p99 us':>8} {'MiB':>6} {'errors':>7}")
        middle = lambda name, key: statistics.median(row[key] for row in rows[name])
        for name in rows:
            ratio = middle(name, "cpu") / middle("nginx", "cpu")
            cells = "".join(f" {middle(name, key):{width}.0f}" for key, width in [("added", 9), ("p50", 8), ("p99", 8), ("memory", 6)])
            print(f"{name:15} {middle(name, 'cpu'):8.0f} {ratio:8.2f}{cells} {sum(row['errors'] for row in rows[name]):7}", flush=True)


if __name__ == "__main__":
    main()

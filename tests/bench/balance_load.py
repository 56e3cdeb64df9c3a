#!/usr/bin/env python3
"""What a balancer costs: `lego balance` beside nginx and other routers, in the same rounds.

    cargo build --release
    tests/bench/balance_load.py [--vllm-router PROGRAM] [--sglang-router PROGRAM] [--rounds N] [--seconds N]

Needs wrk and nginx (Debian: wrk, nginx-light); pip install vllm-router, pip install sglang-router for those two, each in a venv
of its own (0.3.2 and 0.1.17 import aiohttp, orjson, requests, uvicorn and fastapi). Behind all of them stands the same server without a model (mock_engine.rs), which answers 400 bytes at once or in
100 events. `cpu` is the CPU time of the balancer's process tree by request; `gap` the longest time between two events of one
stream over a connection that had served others before; `MiB` its memory while so many requests run. Medians of all rounds; the
order of the targets alternates.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from proxy_load import NGINX, ROOT, Target, free_port, memory_mib

SESSIONS = 10_000


def targets(args, folder, mock):
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
    if args.sglang_router:
        port = free_port()
        yield Target("sglang-router", port, [args.sglang_router, "launch", "--host", "127.0.0.1", "--port", str(port),
                     "--worker-urls", base, "--policy", "cache_aware", "--prometheus-port", str(free_port()),
                     "--log-level", "error"])
    for name, more in [("lego", []), ("lego, lease", ["--scheduler", "lease", "--capacity", "1000000000"])]:
        port = free_port()
        yield Target(name, port, [args.lego, "balance", "--replica", base, "--listen", f"127.0.0.1:{port}", *more])


def longest_gap(port, streams):
    """Between two events, over one connection, in seconds."""
    link, longest = http.client.HTTPConnection("127.0.0.1", port, timeout=60), 0.0
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    for _ in range(streams):
        link.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        response, last = link.getresponse(), None
        while response.readline():
            now = time.perf_counter()
            longest, last = max(longest, now - last if last else 0), now
        response.read()
    return longest


def many_sessions(target, count):
    """Memory after a turn of each of so many sessions."""
    link = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)
    for index in range(count):
        body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": f"task {index}"}]})
        link.request("POST", "/v1/chat/completions", body, {"content-type": "application/json", "x-session-id": f"s-{index:06d}"})
        link.getresponse().read()
    return memory_mib(target.process.pid)


def compare(running, folder, args, stream, size, conc):
    rows = {target.name: [] for target in running}
    options = argparse.Namespace(size=size, requests=0, seconds=args.seconds)
    # The first round warms up and does not count.
    for index in range(args.rounds + 1):
        for target in running if index % 2 == 0 else running[::-1]:
            row = target.measure(folder, stream, conc, options, "")
            row["rate"] = row["count"] / args.seconds
            if index:
                rows[target.name].append(row)
    middle = lambda name, key: statistics.median(row[key] for row in rows[name])
    kind = "stream of 100 events" if stream else f"{size} bytes"
    print(f"\n{kind}, {conc} at a time")
    print(f"{'':15} {'cpu us':>8} {'x nginx':>8} {'req/s':>8} {'p50 us':>8} {'p99 us':>8} {'MiB':>6} {'errors':>7}")
    for name in rows:
        nginx = middle("nginx", "cpu") or 1
        cells = "".join(f" {middle(name, key):8.0f}" for key in ["rate", "p50", "p99"])
        errors = sum(row["errors"] for row in rows[name])
        print(f"{name:15} {middle(name, 'cpu'):8.0f} {middle(name, 'cpu') / nginx:8.2f}{cells} "
              f"{middle(name, 'memory'):6.0f} {errors:7}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", default=str(ROOT / "target/release/lego"))
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--vllm-router")
    parser.add_argument("--sglang-router")
    parser.add_argument("--seconds", type=int, default=3, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = folder / "mock_engine"
        source = ROOT / "tests/bench/mock_engine.rs"
        subprocess.run(["rustc", "-O", "--edition", "2024", source, "-o", engine], check=True)
        for stream, cases in [(False, [(2048, 1), (2048, 32), (2048, 256), (400_000, 8)]), (True, [(2048, 1), (2048, 32)])]:
            mock = free_port()
            server = subprocess.Popen([engine, str(mock), "100", str(100 if stream else 1)])
            running = []
            try:
                with open(folder / "log.txt", "ab") as log:
                    for target in targets(args, folder, mock):
                        running.append(target)
                        target.start(log)
                for size, conc in cases:
                    compare(running, folder, args, stream, size, conc)
                if stream:
                    print("\nlongest gap between events of a kept connection, ms")
                    for target in running:
                        gaps = [longest_gap(target.port, 20) for _ in range(args.rounds)]
                        print(f"{target.name:15} {statistics.median(gaps) * 1e3:8.2f}", flush=True)
                    print(f"\nmemory after a turn of each of {SESSIONS} sessions, MiB")
                    for target in running[1:]:
                        print(f"{target.name:15} {many_sessions(target, SESSIONS):8.0f}", flush=True)
            finally:
                for target in running:
                    target.stop()
                server.terminate()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sessions that do not fit into an engine's cache together: what that costs, and what `scheduler = "lease"` saves.

    cargo build --release
    examples/balance/thrash.py [--lego target/release/lego] [--sessions N] [--turns N] [--cache TOKENS]

Starts `lego serve-proxy` over the embedded engine twice, without and with the scheduler, and lets the same sessions work on
each: a turn sends the whole conversation again, and a pause (the tool) lies between turns. The cache holds about two of five
sessions. What is computed again is what the engine fed through the model beyond what no cache could have spared: prompts
without what the session's last turn held, and samples.
"""

import argparse
import http.client
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of the quickstart's policy: 4 layers, keys and values of 2 heads of 32 numbers of 4 bytes.
BYTES_PER_TOKEN = 4 * 2 * 2 * 32 * 4


def roomy_model(folder):
    """The quickstart's policy, said to have a larger window: what it writes is of no interest here."""
    model = folder / "model"
    shutil.copytree(ROOT / "examples/quickstart/policy", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 32768}))
    return model


def start(args, model, scheduler, folder):
    run = folder / f"{scheduler}.toml"
    run.write_text(f"""
[policy]
model = "{model}"
[engine]
kv_memory = "{args.cache * BYTES_PER_TOKEN}B"
[rollout]
max_tokens = {args.answer}
[balance]
scheduler = "{scheduler}"
lease = "{args.lease}s"
max_hold = "{args.max_hold}s"
""")
    server = subprocess.Popen([args.lego, "serve-proxy", run, "--anonymous", "--admin-token", "example"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, server.stdout.readline().strip().removeprefix("http://")


class Session(threading.Thread):
    """One conversation, its pauses drawn by its own seed: the same whatever the server does."""

    def __init__(self, args, host, number):
        super().__init__(daemon=True)
        self.args, self.host, self.number, self.error = args, host, number, None
        self.waits, self.least = [], 0

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error

    def work(self):
        args, draw = self.args, random.Random(self.number)
        words = lambda count: " ".join(f"{draw.randrange(100000):05d}" for _ in range(count // 6))
        link = http.client.HTTPConnection(self.host, timeout=600)
        messages, held = [{"role": "user", "content": words(args.first)}], 0
        for turn in range(args.turns):
            if turn:
                time.sleep(draw.lognormvariate(0, 0.6) * args.pause)
            began = time.time()
            body = json.dumps({"model": "policy", "messages": messages, "max_tokens": args.answer})
            link.request("POST", f"/sess/s{self.number}/v1/chat/completions", body, {"content-type": "application/json"})
            response = link.getresponse()
            answer = json.loads(response.read())
            if response.status != 200:
                raise RuntimeError(answer)
            self.waits.append(time.time() - began)
            usage = answer["usage"]
            # The last token that was sampled has never been fed.
            self.least += usage["prompt_tokens"] - max(0, held - 1) + usage["completion_tokens"] - 1
            held = usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(answer["choices"][0]["message"])
            messages.append({"role": "user", "content": words(args.result)})
        link.request("POST", f"/sess/s{self.number}/finish", '{"reward": 1.0}', {"authorization": "Bearer example"})
        link.getresponse().read()


def metrics(host):
    link = http.client.HTTPConnection(host, timeout=60)
    link.request("GET", "/metrics")
    return {name: float(value) for name, value in re.findall(r"^(lego_\w+) (\S+)$", link.getresponse().read().decode(), re.M)}


def measure(args, model, scheduler, folder):
    server, host = start(args, model, scheduler, folder)
    try:
        sessions = [Session(args, host, number) for number in range(args.sessions)]
        began = time.time()
        for session in sessions:
            session.start()
        for session in sessions:
            session.join(1800)
        wall = time.time() - began
        for session in sessions:
            if session.error or session.is_alive():
                sys.exit(f"session {session.number}: {session.error or 'no end'}")
        found = metrics(host)
        waits = sorted(wait for session in sessions for wait in session.waits)
        prompt, cached = found["lego_proxy_prompt_tokens_total"], found["lego_proxy_cached_tokens_total"]
        sampled, least = found["lego_proxy_sampled_tokens_total"], sum(session.least for session in sessions)
        computed = found["lego_engine_computed_tokens_total"]
        return {"scheduler": scheduler, "wall_s": round(wall, 1), "hit_rate": round(cached / prompt, 3),
                "computed": int(computed), "recomputed": int(computed - least),
                "recomputed_per_output": round((computed - least) / sampled, 1),
                "turn_p50_s": round(waits[len(waits) // 2], 2), "turn_p90_s": round(waits[len(waits) * 9 // 10], 2),
                "held": int(found.get("lego_balance_held_total", 0)),
                "longest_hold_s": round(found.get("lego_balance_longest_hold_seconds", 0), 1)}
    finally:
        server.terminate()
        server.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", default=str(ROOT / "target/release/lego"))
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--cache", type=int, default=16384, help="tokens that the engine's cache holds")
    parser.add_argument("--first", type=int, default=1500, help="characters of the first prompt; a token is about one")
    parser.add_argument("--result", type=int, default=300, help="characters of a tool's result")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer at most")
    parser.add_argument("--pause", type=float, default=0.5, help="median seconds of a tool")
    parser.add_argument("--lease", type=int, default=3)
    parser.add_argument("--max-hold", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = roomy_model(folder)
        rows = [measure(args, model, scheduler, folder) for scheduler in ["off", "lease"]]
    if args.json:
        print(json.dumps(rows))
        return
    names = list(rows[0])
    for line in [names, *([str(row[name]) for name in names] for row in rows)]:
        print("  ".join(f"{cell:>{max(9, len(name))}}" for cell, name in zip(line, names)))
    off, lease = rows
    print(f"\nrecomputed {off['recomputed']} → {lease['recomputed']} tokens, wall time {off['wall_s']} → {lease['wall_s']} s")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What a long session costs the proxy: memory, and the time of a late turn beside that of an early one.

    cargo build --release
    tests/bench/session_cost.py [--lego PROGRAM] [--sessions N] [--turns N]

Sessions of about 85,000 tokens in 125 turns, on recorded answers, so that nothing is computed. The memory is the growth of
the process over all sessions, which stay open; a first session that does not count fills what is shared. A turn's time
holds that of this client, which sends the whole history again, as agents do.
"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def memory_mib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def play(url, session, turns):
    """The milliseconds of each turn, and the tokens of the last."""
    messages, times, tokens = [{"role": "user", "content": "begin"}], [], 0
    for _ in range(turns):
        body = json.dumps({"model": "policy", "messages": messages}).encode()
        call = urllib.request.Request(f"{url}/sess/{session}/v1/chat/completions", body, {"content-type": "application/json"})
        begun = time.perf_counter()
        answer = json.load(urllib.request.urlopen(call))
        times.append((time.perf_counter() - begun) * 1000)
        tokens = answer["usage"]["total_tokens"]
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "seven and then? " * 40}]
    return times, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", default=str(ROOT / "target/release/lego"))
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--turns", type=int, default=125)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "examples/quickstart/policy", folder / "model")
        config = json.loads((folder / "model/config.json").read_text())
        (folder / "model/config.json").write_text(json.dumps({**config, "max_position_embeddings": 131072}))
        turn = {"content": "lorem ipsum dolor sit amet " * 20}
        (folder / "answers.jsonl").write_text(json.dumps({"instance_id": "*", "turns": [turn] * args.turns}))
        (folder / "run.toml").write_text(
            '[policy]\nmodel = "model"\n[data]\nmax_prompt_tokens = 120000\nmax_response_tokens = 11000\n'
            '[engine]\nkind = "replay"\nrecording = "answers.jsonl"\n[rollout]\nmax_tokens = 4096\n')
        command = [args.lego, "serve-proxy", folder / "run.toml", "--anonymous", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as proxy:
            try:
                url = proxy.stdout.readline().strip()
                play(url, "first", args.turns)
                before = memory_mib(proxy.pid)
                for index in range(args.sessions):
                    times, tokens = play(url, f"s{index}", args.turns)
                each = (memory_mib(proxy.pid) - before) / args.sessions
            finally:
                proxy.terminate()
    print(f"{args.sessions} sessions of {tokens} tokens in {args.turns} turns: {each:.2f} MiB each, "
          f"{each / tokens * 1e5:.2f} MiB by 100,000 tokens")
    shown = sorted({1, 10, args.turns // 2, args.turns})
    print("turn " + ", ".join(f"{number}: {times[number - 1]:.2f} ms" for number in shown))


if __name__ == "__main__":
    main()

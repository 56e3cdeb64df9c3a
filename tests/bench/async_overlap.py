#!/usr/bin/env python3
"""Episodes a second in turns and side by side, where trials wait for their environment as long as an update computes.

    cargo build --release && tests/bench/async_overlap.py

The policy is the quickstart's with layers behind it that add nothing, so that it does the same and its update takes long. Every
trial's tests sleep; how long is measured first, so that a step's trials take as long as its update. A second part has one trial in
16 that sleeps twenty times as long as the others. Prints what each way came to, from its metrics.jsonl.
"""
import argparse
import json
import os
import pathlib
import subprocess
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples/quickstart"
# Parts of a step that are the trainer's.
UPDATE = ["timing_s/old_log_prob", "timing_s/ref", "timing_s/adv", "timing_s/update_actor"]


def deep_policy(folder, layers):
    """The quickstart's policy with so many layers; those that are new write zeros."""
    source, folder = QUICKSTART / "policy", pathlib.Path(folder)
    folder.mkdir()
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        (folder / name).write_bytes((source / name).read_bytes())
    config = json.loads((source / "config.json").read_text())
    own = config["num_hidden_layers"]
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    data = (source / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8 : 8 + length]), data[8 + length :]
    tensors = {name: (of, data[slice(*of["data_offsets"])]) for name, of in header.items() if name != "__metadata__"}
    for layer in range(own, layers):
        for name, (of, values) in list(tensors.items()):
            if name.startswith("model.layers.0."):
                silent = name.endswith(("o_proj.weight", "down_proj.weight"))
                new = name.replace("layers.0.", f"layers.{layer}.")
                tensors[new] = (of, bytes(len(values)) if silent else values)
    header, at = {}, 0
    for name, (of, values) in tensors.items():
        header[name] = {**of, "data_offsets": [at, at + len(values)]}
        at += len(values)
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(values)
    return folder


def tasks(folder, seconds, long=None):
    """The quickstart's tasks, whose tests sleep first."""
    lines = []
    for at, line in enumerate((QUICKSTART / "train.jsonl").read_text().splitlines()[:64]):
        record = json.loads(line)
        wait = long if long and at % 16 == 3 else seconds
        script = record["test"]
        head, _, rest = script.partition("\n") if script.startswith("#!") else ("", "", script)
        record["test"] = "\n".join(part for part in (head, f"sleep {wait:.2f}", rest) if part)
        lines.append(json.dumps(record))
    path = pathlib.Path(folder) / "tasks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(lego, policy, seconds, steps, *flags, long=None):
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            f"run.dir={folder}/runs",
            f"policy.model={policy}",
            f"data.train={tasks(folder, seconds, long)}",
            "data.val=[]",
            "eval.before_train=false",
            "eval.every=0",
            "checkpoint.every=1000",
            "rollout.groups_per_step=8",
            "rollout.group_size=8",
            "train.mini_batch=8",
            "train.bypass_old_logprob=false",
            "train.kl_coef=0.001",
            "sandbox.concurrency=64",
            "scaffold.max_turns=1",
            "rollout.max_tokens=16",
            *flags,
        ]
        command = [lego, "train", str(QUICKSTART / "run.toml"), "--steps", str(steps), "--format", "jsonl"]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RAYON_NUM_THREADS": "1"})
        if done.returncode != 0:
            sys.exit(done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        # The first step waits for everything to start.
        rows = [row for row in rows if row["step"] > 1]
        seconds_each = sum(row["timing_s/step"] for row in rows) / len(rows)
        mean = lambda name: sum(row.get(name, 0.0) for row in rows) / len(rows)
        return {
            "episodes_per_s": 64 / seconds_each,
            "step_s": seconds_each,
            "trials_s": mean("timing_s/gen"),
            "update_s": sum(mean(name) for name in UPDATE),
            "trainer_idle": mean("fully_async/trainer/idle_ratio"),
            "rollouter_idle": mean("fully_async/rollouter/idle_ratio"),
            "partial": mean("fully_async/partial/partial_ratio"),
            "lag": mean("fully_async/staleness/mean"),
            "max_lag": max(row.get("fully_async/staleness/max", 0) for row in rows),
        }


def show(name, result, base):
    print(
        f"{name:34} {result['episodes_per_s']:8.2f} episodes/s  {result['episodes_per_s'] / base['episodes_per_s']:5.2f}x"
        f"  step {result['step_s']:6.2f} s  update {result['update_s']:5.2f} s"
        f"  idle: trainer {result['trainer_idle']:.2f}, slots {result['rollouter_idle']:.2f}"
        f"  lag {result['lag']:.2f} (max {result['max_lag']:.0f})"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lego", default=str(ROOT / "target/release/lego"))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--layers", type=int, default=96, help="layers of the policy")
    parser.add_argument("--seconds", type=float, help="what tests sleep, instead of what is measured")
    arguments = parser.parse_args()
    lego, steps = arguments.lego, arguments.steps
    with tempfile.TemporaryDirectory() as folder:
        policy = deep_policy(f"{folder}/policy", arguments.layers)
        compare(lego, policy, steps, arguments.seconds)


def compare(lego, policy, steps, seconds):
    first = run(lego, policy, 0.0, 3)
    seconds = seconds or max(first["update_s"] - first["trials_s"], 0.0)
    print(
        f"an update takes {first['update_s']:.2f} s, a step's trials {first['trials_s']:.2f} s and the {seconds:.2f} s that their"
        f" tests sleep; {os.cpu_count()} cores, updates on one"
    )
    asynchronous = ["async.enabled=true"]
    base = run(lego, policy, seconds, steps)
    show("in turns", base, base)
    show("side by side, staleness 1", run(lego, policy, seconds, steps, *asynchronous), base)
    show("side by side, staleness 0", run(lego, policy, seconds, steps, *asynchronous, "async.staleness=0"), base)
    print("one trial in 16 sleeps 20 times as long:")
    long = 20 * seconds
    base = run(lego, policy, seconds, steps, long=long)
    show("in turns", base, base)
    show("side by side, partial", run(lego, policy, seconds, steps, *asynchronous, "async.staleness=3", long=long), base)
    whole = [*asynchronous, "async.staleness=3", "async.partial_rollout=false"]
    show("side by side, answers end first", run(lego, policy, seconds, steps, *whole, long=long), base)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Episodes a second in turns and side by side, where trials wait for their environment as long as an update computes.

    cargo build --release && tests/bench/async_overlap.py

Every trial's tests sleep; how long is measured first, so that a step's trials take as long as its update. A second part has one
trial that sleeps twenty times as long as the others. Prints what each way came to, from its metrics.jsonl.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples/quickstart"
# Parts of a step that are the trainer's.
UPDATE = ["timing_s/old_log_prob", "timing_s/ref", "timing_s/adv", "timing_s/update_actor"]


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


def run(lego, seconds, steps, *flags, long=None):
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            f"run.dir={folder}/runs",
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
    parser.add_argument("--seconds", type=float, help="what tests sleep, instead of the measured length of an update")
    arguments = parser.parse_args()
    lego, steps = arguments.lego, arguments.steps
    first = run(lego, 0.0, 3)
    seconds = arguments.seconds or first["update_s"]
    print(f"an update takes {first['update_s']:.2f} s; tests sleep {seconds:.2f} s; {os.cpu_count()} cores, updates on one")
    asynchronous = ["async.enabled=true"]
    base = run(lego, seconds, steps)
    show("in turns", base, base)
    show("side by side, staleness 1", run(lego, seconds, steps, *asynchronous), base)
    show("side by side, staleness 0", run(lego, seconds, steps, *asynchronous, "async.staleness=0"), base)
    print("one trial in 16 sleeps 20 times as long:")
    long = 20 * seconds
    base = run(lego, seconds, steps, long=long)
    show("in turns", base, base)
    show("side by side, partial", run(lego, seconds, steps, *asynchronous, "async.staleness=3", long=long), base)
    whole = [*asynchronous, "async.staleness=3", "async.partial_rollout=false"]
    show("side by side, answers end first", run(lego, seconds, steps, *whole, long=long), base)


if __name__ == "__main__":
    main()

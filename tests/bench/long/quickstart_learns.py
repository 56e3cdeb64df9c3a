#!/usr/bin/env python3
"""Does the quickstart learn, and only where it should?

    tests/bench/long/quickstart_learns.py [-o DIR] [--seeds 1 2 3] [--algorithms grpo rloo ppo gspo] [--lego PATH]

Trains examples/quickstart/run.toml once a seed and algorithm, and twice as a control that must not learn
(`train.control`; with grpo alone, and not with --no-controls). Prints pass@1 of the unseen validation tasks before and after, sampled at temperature 1 (four samples) and greedy, a kind
apart, and fails where a seed stays under 0.85 or a control gains more than 0.10. A run takes about four minutes on
two cores. Without --lego it builds the binary. Needs Python 3.9 and nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CONTROLS = ("negated_advantage", "shuffled_rewards")
#: What each algorithm needs beside its name: GSPO's ratio is a mean, with clips of its own size; PPO's critic is fresh.
ALGORITHMS = {
    "grpo": {},
    "rloo": {},
    "gspo": {"train.clip_low": 3e-4, "train.clip_high": 4e-4},
    "ppo": {"train.critic.lr": 3e-4},
}
REACHED, START, DRIFT = 0.85, 0.5, 0.10


def train(lego, directory, name, keys):
    """One run; its validations, first and last, and its seconds."""
    command = [lego, "train", str(ROOT / "examples/quickstart/run.toml"), "--no-progress", "--fresh"]
    for key, value in {"run.dir": f'"{directory}"', "run.name": f'"{name}"', **keys}.items():
        command += ["--set", f"{key}={value}"]
    began = time.monotonic()
    with open(directory / f"{name}.log", "w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}; see {log.name}")
    with open(directory / name / "metrics.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if "val/val/greedy" in row]
    return rows[0], rows[-1], time.monotonic() - began


def pair(first, last, key):
    """A validation figure before and after."""
    return f"{first[key]:.3f} → {last[key]:.3f}"


def main():
    """Runs all and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="where the runs go (default: a temporary folder)")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--algorithms", choices=ALGORITHMS, nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--lego", help="the binary (default: cargo build --release)")
    options = parser.parse_args()
    if not options.lego:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
        options.lego = ROOT / "target/release/lego"
    directory = (options.output or Path(tempfile.mkdtemp(prefix="quickstart-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)

    runs = [
        (f"{algorithm}-{seed}", {"run.seed": seed, "train.algorithm": f'"{algorithm}"', **ALGORITHMS[algorithm]})
        for algorithm in options.algorithms
        for seed in options.seeds
    ]
    if "grpo" in options.algorithms and not options.no_controls:
        runs += [(name, {"run.seed": 1, "train.control": f'"{name}"'}) for name in CONTROLS]
    faults, kinds = [], {}
    print(f"{'run':20} {'T=1':16} {'greedy':16} {'unseen kind T=1':16} {'greedy':16} seconds")
    for name, keys in runs:
        first, last, seconds = train(options.lego, directory, name, keys)
        columns = ["val/val/pass@1", "val/val/greedy", "val/val_unseen_kind/pass@1", "val/val_unseen_kind/greedy"]
        print(f"{name:20} " + " ".join(f"{pair(first, last, key):16}" for key in columns) + f" {seconds:7.0f}", flush=True)
        for key in columns[:2]:
            if name in CONTROLS and last[key] > first[key] + DRIFT:
                faults.append(f"{name}: {key} went from {first[key]:.3f} to {last[key]:.3f}; at most +{DRIFT} is chance")
            if name not in CONTROLS and not (first[key] < START and last[key] >= REACHED):
                faults.append(f"{name}: {key} {pair(first, last, key)}; expected from under {START} to {REACHED} or more")
        if name not in CONTROLS:
            for key in first:
                part = key.split("/")
                if part[:2] == ["val", "val"] and len(part) == 4 and part[3] in ("pass@1", "greedy"):
                    kinds.setdefault(part[2], {})[name, part[3]] = pair(first, last, key)

    print(f"\n{'kind':20} " + " ".join(f"{name + ' T=1':16} {'greedy':16}" for name, _ in runs if name not in CONTROLS))
    for kind, cells in kinds.items():
        print(f"{kind:20} " + " ".join(f"{cell:16}" for cell in cells.values()))
    print(f"\nruns: {directory}")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write the quickstart's tasks and the demonstrations of its warm start.

    generate.py tasks [-o DIR]                 train.jsonl, val.jsonl, val_unseen_kind.jsonl
    generate.py demos --stage clean -o DIR     tasks.jsonl and demonstrations.jsonl
    generate.py verify                         runs every task: faulty 0, solution 1, wrong fix 0

The same arguments give the same bytes. Validation names are never used in training, but are made
of the same syllables. Needs Python 3.10 or later and nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from kinds import HELD_OUT, MISLED, TRAINED, Bug

SYLLABLES = "BA BE BI DO DU FA FI GO KA KE LI LO MA MI NO NU PA PI RA RO SU TA VE ZU".split()
TEST = """#!/bin/sh
# Hidden tests. Each line of cases: arguments | expected output.
tests=${{LEGO_TESTS_DIR:-/tests}} logs=${{LEGO_LOGS_DIR:-/logs}} reward=1
ulimit -t 2
while IFS='|' read -r args want; do
  [ "$(sh {f}.sh $args 2>&1 </dev/null)" = "$want" ] || reward=0
done <"$tests/cases"
echo $reward >"$logs/verifier/reward.txt"
"""
CHECK = """if [ "$(sh {f}.sh {args})" = "{want}" ]; then echo pass; else echo fail; exit 1; fi
"""
SETTINGS = {"agent": {"timeout_sec": 10}, "verifier": {"timeout_sec": 20}}


def names() -> tuple[list[str], list[str]]:
    """Training and validation names: disjoint, made of the same syllables."""
    every = [x + y for x in SYLLABLES for y in SYLLABLES if x != y]
    Random("names").shuffle(every)
    return every[92:], every[:92]


def make(kind: str, rng: Random, pool: list[str]) -> tuple[str, Bug]:
    """One faulty program of this kind, under the file name that is returned with it."""
    f, a, b = rng.sample(pool, 3)
    return f, (TRAINED | HELD_OUT)[kind](rng, f, a, b)


def record(instance_id: str, kind: str, f: str, bug: Bug) -> dict:
    """The inline record that `lego prepare` turns into a task folder."""
    args, want = bug.shown
    return {
        "instance_id": instance_id,
        "data_source": kind,
        "problem_statement": bug.issue,
        "files": {f"{f}.sh": bug.program, "check.sh": CHECK.format(f=f, args=args, want=want)},
        "test": TEST.format(f=f),
        "test_files": {"cases": "".join(f"{args}|{want}\n" for args, want in bug.hidden)},
        "solution": f"#!/bin/sh\nsed -i '{bug.right}' {f}.sh\n",
        "task": SETTINGS | {"metadata": {"kind": kind}},
    }


def tasks(prefix: str, kinds: list[str], count: int, pool: list[str]) -> list[tuple[dict, str, Bug]]:
    """`count` different tasks, the kinds in turn."""
    rng, seen, found = Random(prefix), set(), []
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        f, bug = make(kind, rng, pool)
        if (bug.program, bug.issue) in seen:
            continue
        seen.add((bug.program, bug.issue))
        found.append((record(f"{prefix}-{len(found):05d}", kind, f, bug), f, bug))
    return found


def demonstration(instance_id: str, f: str, fix: str) -> dict:
    """One recorded episode: look, edit, check, say that it is done."""
    commands = [f"cat {f}.sh", f"sed -i '{fix}' {f}.sh", "sh check.sh"]
    calls = [{"content": "", "tool_calls": [{"name": "bash", "arguments": {"command": c}}]} for c in commands]
    return {"instance_id": instance_id, "turns": [*calls, {"content": "done", "tool_calls": []}]}


def demos(stage: str, count: int, seed: int, misled: float, slips: float) -> list[tuple[dict, dict]]:
    """Pairs of task and demonstration under training names.

    `clean` shows the right fix. `mixed` shows the wrong one in a share `misled` of the misled
    kinds, and in a share `slips` of the others.
    """
    rng = Random(f"{stage}-{seed}")
    pairs = []
    for task, f, bug in tasks(f"demo-{stage}-{seed}", [*TRAINED, *HELD_OUT], count, names()[0]):
        share = 0.0 if stage == "clean" else misled if task["data_source"] in MISLED else slips
        fix = bug.wrong if rng.random() < share else bug.right
        pairs.append((task, demonstration(task["instance_id"], f, fix)))
    return pairs


def sets() -> dict[str, list[tuple[dict, str, Bug]]]:
    """The committed task files by name."""
    train, unseen = names()
    return {
        "train": tasks("train", list(TRAINED), 560, train),
        "val": tasks("val", list(TRAINED), 84, unseen),
        "val_unseen_kind": tasks("val_unseen_kind", list(HELD_OUT), 24, unseen),
    }


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    print(f"{path}: {len(rows)}", file=sys.stderr)


def reward(task: dict, edit: str | None) -> float:
    """Run `edit` in a fresh copy of the task and then its hidden tests, outside any sandbox."""
    with tempfile.TemporaryDirectory() as top:
        work, tests, logs = (Path(top, n) for n in ("work", "tests", "logs"))
        for folder in (work, tests, logs / "verifier"):
            folder.mkdir(parents=True)
        for folder, files in ((work, task["files"]), (tests, task["test_files"])):
            for name, text in files.items():
                (folder / name).write_text(text)
        if edit:
            subprocess.run(["sh", "-c", edit], cwd=work, check=True)
        env = {"PATH": "/usr/bin:/bin", "LEGO_TESTS_DIR": str(tests), "LEGO_LOGS_DIR": str(logs)}
        subprocess.run(["sh", "-c", task["test"]], cwd=work, env=env, check=True)
        return float((logs / "verifier" / "reward.txt").read_text())


def verify() -> int:
    """Every committed task: the faulty program and the wrong fix fail, the solution passes."""
    bad = 0
    for rows in sets().values():
        for task, f, bug in rows:
            got = reward(task, None), reward(task, task["solution"]), reward(task, f"sed -i '{bug.wrong}' {f}.sh")
            if got != (0.0, 1.0, 0.0):
                bad += 1
                print(f"{task['instance_id']}: faulty, solved, wrong fix gave {got}, expected (0, 1, 0)", file=sys.stderr)
    print("all tasks behave" if not bad else f"{bad} tasks do not behave", file=sys.stderr)
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("tasks", help="the RL and validation tasks")
    shown = commands.add_parser("demos", help="tasks with recorded episodes")
    commands.add_parser("verify", help="run every task")
    for sub in (made, shown):
        sub.add_argument("-o", "--out", type=Path, default=Path(__file__).parent)
    shown.add_argument("--stage", choices=("clean", "mixed"), required=True)
    shown.add_argument("--count", type=int, default=4096)
    shown.add_argument("--seed", type=int, default=0)
    shown.add_argument("--misled", type=float, default=0.8, help="share of wrong fixes in the misled kinds")
    shown.add_argument("--slips", type=float, default=0.1, help="share of wrong fixes in the other kinds")
    args = parser.parse_args()
    if args.command == "verify":
        return verify()
    if args.command == "tasks":
        for name, rows in sets().items():
            write(args.out / f"{name}.jsonl", [task for task, _, _ in rows])
        return 0
    pairs = demos(args.stage, args.count, args.seed, args.misled, args.slips)
    write(args.out / "tasks.jsonl", [task for task, _ in pairs])
    write(args.out / "demonstrations.jsonl", [demo for _, demo in pairs])
    return 0


if __name__ == "__main__":
    sys.exit(main())

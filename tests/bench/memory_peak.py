#!/usr/bin/env python3
"""Compare preflight's estimate of memory with the peak of real runs on the embedded trainer.

    tests/bench/memory_peak.py target/debug/lego [ROWS...]

Two random models whose answers never end, so that windows are full: one small with a wide cache, one deeper. Each row trains
one step and reads the peak of the trainer's resident memory (VmHWM). Needs Python 3.10 and nothing else; a minute or two a row.
"""

import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

QUICKSTART = Path(__file__).resolve().parents[2] / "examples/quickstart"
# hidden, layers, query heads, key heads, head size, MLP, vocabulary
SHAPES = {"wide": (256, 4, 4, 4, 64, 512, 512), "deep": (384, 8, 6, 2, 64, 1024, 512)}
# shape, what differs from the base
ROWS = {
    "wide, weights alone": ("wide", {"data.max_response_tokens": 64, "rollout.max_tokens": 64}),
    "wide, a row at a time": ("wide", {"train.max_tokens_per_micro_batch": 1100}),
    "wide, eight rows at a time": ("wide", {}),
    "wide, log-probs computed anew": ("wide", {"train.bypass_old_logprob": "false"}),
    "wide, sixteen sessions": ("wide", {"train.max_tokens_per_micro_batch": 1100, "rollout.group_size": 8}),
    "deep, weights alone": ("deep", {"data.max_response_tokens": 64, "rollout.max_tokens": 64}),
    "deep, a row at a time": ("deep", {"data.max_response_tokens": 512, "rollout.max_tokens": 512,
                                       "train.max_tokens_per_micro_batch": 560}),
    "deep, eight rows at a time": ("deep", {"data.max_response_tokens": 512, "rollout.max_tokens": 512}),
}
BASE = {
    "run.name": "run", "data.max_prompt_tokens": 32, "rollout.reward_unfinished": "true", "data.max_response_tokens": 1024, "rollout.max_tokens": 1024,
    "scaffold.max_turns": 1, "rollout.groups_per_step": 2, "rollout.group_size": 4, "train.steps": 1, "train.mini_batch": 2,
    "train.max_tokens_per_micro_batch": 9216, "train.bypass_old_logprob": "true", "eval.every": 0,
    "eval.before_train": "false", "sandbox.concurrency": 16, "sandbox.timeouts.agent": "30m", "policy.max_model_len": 8192,
    "data.val": "[]",
}
REWARD = '#!/bin/sh\necho $(($(od -An -N1 -tu1 /dev/urandom) % 2)) >"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt"\n'


def write_model(folder, shape):
    hidden, layers, queries, keys, size, mlp, vocab = shape
    config = json.loads((QUICKSTART / "policy/config.json").read_text())
    config |= {"vocab_size": vocab, "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers,
               "num_attention_heads": queries, "num_key_value_heads": keys, "head_dim": size,
               "max_position_embeddings": 32768}
    shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(layers):
        for name, of in {
            "input_layernorm": (hidden,), "self_attn.q_proj": (queries * size, hidden),
            "self_attn.k_proj": (keys * size, hidden), "self_attn.v_proj": (keys * size, hidden),
            "self_attn.o_proj": (hidden, queries * size), "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden), "mlp.down_proj": (hidden, mlp),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = of
    shapes["model.norm.weight"] = (hidden,)
    source = random.Random(1)
    noise = [source.gauss(0, 1) for _ in range(65536)]
    head, parts, at = {}, [], 0
    for name, of in shapes.items():
        count = of[0] * (of[1] if len(of) > 1 else 1)
        if len(of) == 1:
            values = array("f", [1.0]) * count
        else:
            embeds = "embed" in name
            scale = (3 if embeds else 1) / hidden**0.5
            start = source.randrange(65536)
            values = array("f", (noise[(start + 7 * i + i // 65536) % 65536] * scale for i in range(count)))
            if embeds:
                # The token that ends an answer is as likely as one of 50,000.
                values[2 * hidden : 3 * hidden] = array("f", [0.0]) * hidden
        head[name] = {"dtype": "F32", "shape": list(of), "data_offsets": [at, at + 4 * count]}
        at += 4 * count
        parts.append(values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in parts:
            file.write(values.tobytes())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(QUICKSTART / "policy" / name, folder)


def peak(command, log):
    """MiB of resident memory that a command came to, asked for as long as it runs."""
    process = subprocess.Popen(command, stdout=log, stderr=log)
    most = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except FileNotFoundError:
            break
        lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        most = max([most, *(int(line.split()[1]) for line in lines)])
        time.sleep(0.02)
    if process.wait() != 0:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}: see {log.name}")
    return most / 1024


def mib(text):
    units = {"GiB": 1024.0, "MiB": 1.0}
    return next(float(text.removesuffix(unit)) * by for unit, by in units.items() if text.endswith(unit))


def main():
    lego, wanted = sys.argv[1], sys.argv[2:] or list(ROWS)
    folder = Path(tempfile.mkdtemp(prefix="lego-memory-"))
    for name, shape in SHAPES.items():
        write_model(folder / name, shape)
    tasks = [json.loads(line) | {"test": REWARD} for line in (QUICKSTART / "train.jsonl").read_text().splitlines()[:4]]
    (folder / "tasks.jsonl").write_text("\n".join(json.dumps(task) for task in tasks))
    print(f"{'':<32} {'estimate':>9} {'peak':>9}   off   terms, in MiB")
    for row in wanted:
        shape, more = ROWS[row]
        runs = folder / "runs"
        shutil.rmtree(runs, ignore_errors=True)
        keys = BASE | {"run.dir": runs, "policy.model": folder / shape, "data.train": folder / "tasks.jsonl"} | more
        arguments = [str(QUICKSTART / "run.toml"), *(part for key in keys.items() for part in ("--set", "{}={}".format(*key)))]
        said = subprocess.run([lego, "preflight", *arguments, "--static", "--only", "memory", "--json"], capture_output=True,
                              text=True, check=True).stdout
        told = json.loads(said)[-1]["detail"]
        estimate = mib(told.split("about ")[1].split(" at most")[0])
        terms = told.split("at most: ")[1].rsplit(" of ", 1)[0]
        with open(folder / "log", "wb") as log:
            measured = peak([lego, "train", *arguments, "-q"], log)
        print(f"{row:<32} {estimate:>6.0f}MiB {measured:>6.0f}MiB {100 * (estimate / measured - 1):>+4.0f}%   {terms}", flush=True)
    shutil.rmtree(folder)


main()

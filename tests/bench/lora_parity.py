#!/usr/bin/env python3
"""Adapters that PEFT makes, trained by `lego`, and the other way round: log-probs, gradients, files.

    cargo build --example policy_bench
    python3 tests/bench/lora_parity.py target/debug/examples [--seed N]

Needs torch, transformers, peft and safetensors. transformers makes a tiny random model, PEFT adapters with random factors;
`policy_bench` loads both, scores rows, gives the adapters' gradients, makes two steps and writes the adapters, which PEFT
then loads and merges. Exit code 1 if a figure is out of its bound.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from transformers_parity import SIZES, log_probs, rows

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FAMILIES = {
    "llama": (transformers.LlamaConfig, {}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=16)),
}


def fresh(family):
    kind, more = FAMILIES[family]
    model = transformers.AutoModelForCausalLM.from_config(kind(**SIZES, **more), attn_implementation="eager").float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    return model


def loss_of(model, given):
    loss = 0
    for row in given:
        weights = torch.tensor(row["coefficients"]) * torch.tensor(row["mask"])
        loss = loss - (log_probs(model, row["tokens"], row["start"], 0.9) * weights).sum()
    return loss


def by_module(model, of):
    """A and then B of each module, flat, under its name in the base model."""
    found = {}
    for name, parameter in sorted(model.named_parameters()):
        if ".lora_" in name:
            module = name.removeprefix("base_model.model.").split(".lora_")[0] + ".lora"
            value = of(parameter).reshape(-1)
            found[module] = torch.cat([found[module], value]) if module in found else value
    return found


def far(ours, theirs):
    return max(float((torch.as_tensor(a) - torch.as_tensor(b)).abs().max()) for a, b in zip(ours, theirs))


def apart(mine, theirs):
    """Relative distance of two sets of tensors by name."""
    if mine.keys() != theirs.keys():
        raise SystemExit(f"other tensors: {sorted(mine.keys() ^ theirs.keys())}")
    difference = sum((torch.as_tensor(mine[n]) - theirs[n]).double().pow(2).sum() for n in mine)
    return float((difference / sum(t.double().pow(2).sum() for t in theirs.values())).sqrt())


def compare(examples, family, seed, folder):
    torch.manual_seed(seed)
    base = fresh(family)
    base.save_pretrained(folder / "model")
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder / "adapter")
    given = rows(random.Random(seed))
    (folder / "rows.json").write_text(json.dumps(given))
    subprocess.run([examples / "policy_bench", "parity", folder, "cpu"], check=True)
    found = json.loads((folder / "out.json").read_text())
    with torch.no_grad():
        scored = [log_probs(model, row["tokens"], row["start"], 0.9) for row in given]
        whole = [log_probs(model, row["tokens"], 1, 1.0) for row in given]
    yield "log-probs", far(found["logprobs"], scored), 1e-4
    yield "log-probs, decoded with the merged weights", far(found["decoded"], whole), 1e-4
    loss = loss_of(model, given)
    loss.backward()
    yield "loss, relative", abs(found["sft"]["loss"] / loss.item() - 1), 1e-5
    yield "gradient of the adapters, relative", apart(found["sft"]["gradients"], by_module(model, lambda p: p.grad)), 1e-4

    back = peft.PeftModel.from_pretrained(fresh(family), folder / "adapter_after")
    state = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).state_dict()
    names = {name: name.replace(".weight", ".base_layer.weight").replace(".bias", ".base_layer.bias") for name in state}
    own = back.base_model.model.state_dict()
    back.base_model.model.load_state_dict({n if n in own else names[n]: t for n, t in state.items()}, strict=False)
    merged = back.merge_and_unload().state_dict()
    stepped = {name: torch.tensor(value) for name, value in found["stepped"].items()}
    mine = {name: stepped[name] for name in merged if name in stepped}
    yield "weights, merged by PEFT from our file", far(mine.values(), [merged[n].reshape(-1) for n in mine]), 1e-5
    moved = [n for n in mine if not torch.equal(mine[n], state[n].reshape(-1))]
    if len(moved) != SIZES["num_hidden_layers"] * len(TARGETS):
        raise SystemExit(f"{family}: {len(moved)} tensors have moved")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path, help="folder of the built examples")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {args.seed}; peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    failed = 0
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            for what, figure, bound in compare(args.examples.resolve(), family, args.seed, Path(folder)):
                failed += figure > bound
                print(f"{'ok ' if figure <= bound else 'FAR'} {family:8} {what:44} {figure:.2e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Tiny random checkpoints that transformers makes, in and out of `lego`: log-probs, gradients, routes, names.

    cargo build --example policy_bench --example update_dump
    python3 tests/bench/transformers_parity.py target/debug/examples [--seed N] [--families llama qwen3_moe …]

Needs torch, transformers and safetensors. For each family transformers writes a checkpoint; `policy_bench` scores
rows, decodes them token by token and gives gradients; `update_dump` makes a step and writes the weights, which
transformers loads again, every tensor found and none left over. Exit code 1 if a figure is out of its bound.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

SIZES = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
             intermediate_size=80, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
             bos_token_id=0, eos_token_id=1)  # fmt: skip
FAMILIES = {
    "llama": (transformers.LlamaConfig, {}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=16)),
    "qwen3_moe": (transformers.Qwen3MoeConfig, dict(
        head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True)),
    "qwen3_moe_plain": (transformers.Qwen3MoeConfig, dict(
        head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=False,
        mlp_only_layers=[1])),
    "mixtral": (transformers.MixtralConfig, dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=None)),
}  # fmt: skip


def rows(dice):
    """Prompts and responses of random tokens, some of them masked."""
    def row(place):
        start, response = dice.randint(1, 5), 8 + 9 * place
        return {
            "tokens": [dice.randrange(97) for _ in range(start + response)], "start": start,
            "mask": [int(dice.random() < 0.8) for _ in range(response)],
            "old": [-4.5] * response, "reference": [-4.5] * response, "advantages": [1.0] * response,
            "coefficients": [dice.random() * 0.05 for _ in range(response)],
        }  # fmt: skip
    return [row(place) for place in range(4)]


def log_probs(model, tokens, start, temperature):
    logits = model(torch.tensor([tokens])).logits[0, start - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[start:])[:, None])[:, 0]


def by_our_names(model):
    """Gradients under the names that `lego` has for them: gate and up of all experts one behind the other."""
    found = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        if name.endswith("experts.gate_up_proj"):
            gate, up = gradient.chunk(2, dim=1)
            found[ours(name, "gate_proj")], found[ours(name, "up_proj")] = gate, up
        elif name.endswith("experts.down_proj"):
            found[ours(name, "down_proj")] = gradient
        elif ".experts." in name:
            layer, _, rest = name.partition(".experts.")
            part = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.get(rest.split(".")[1], rest.split(".")[1])
            found.setdefault(ours(name, part), []).append(gradient)
        else:
            found[name] = gradient
    return {name: torch.stack(value) if isinstance(value, list) else value for name, value in found.items()}


def ours(name, part):
    return ".".join(name.split(".")[:3]) + f".mlp.experts.{part}.weight"


def unified(name):
    return name.replace("block_sparse_moe.gate", "mlp.gate")


def compare(examples, family, seed, folder):
    """Name, figure and bound of everything compared."""
    torch.manual_seed(seed)
    kind, more = FAMILIES[family]
    model = transformers.AutoModelForCausalLM.from_config(kind(**SIZES, **more), attn_implementation="eager").float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    model.save_pretrained(folder / "model")
    given = rows(random.Random(seed))
    (folder / "rows.json").write_text(json.dumps(given))
    subprocess.run([examples / "policy_bench", "parity", folder, "cpu"], check=True)
    found = json.loads((folder / "out.json").read_text())
    with torch.no_grad():
        scored = [log_probs(model, row["tokens"], row["start"], 0.9) for row in given]
        whole = [log_probs(model, row["tokens"], 1, 1.0) for row in given]
    far = lambda ours, theirs: max(float((torch.tensor(a) - b).abs().max()) for a, b in zip(ours, theirs))
    yield "log-probs", far(found["logprobs"], scored), 1e-4
    yield "log-probs, decoded token by token", far(found["decoded"], whole), 1e-4
    loss = 0
    for row in given:
        weights = torch.tensor(row["coefficients"]) * torch.tensor(row["mask"])
        loss = loss - (log_probs(model, row["tokens"], row["start"], 0.9) * weights).sum()
    loss.backward()
    yield "loss, relative", abs(found["sft"]["loss"] / loss.item() - 1), 1e-5
    theirs = {unified(name): value for name, value in by_our_names(model).items()}
    mine = {unified(name): torch.tensor(value) for name, value in found["sft"]["gradients"].items()}
    if theirs.keys() != mine.keys():
        raise SystemExit(f"{family}: other tensors: {sorted(theirs.keys() ^ mine.keys())}")
    difference = sum((mine[name] - theirs[name].reshape(-1)).double().pow(2).sum() for name in mine)
    yield "gradient, relative", float((difference / sum(g.double().pow(2).sum() for g in theirs.values())).sqrt()), 1e-4
    routers = [name for name in theirs if name.endswith("mlp.gate.weight")]
    if routers:
        yield "smallest router gradient over the largest", -min(float(mine[name].norm()) for name in routers) / max(
            float(mine[name].norm()) for name in routers), -1e-4  # fmt: skip
    yield "weights that come back", written(examples, folder, model, given), 1e-4


def written(examples, folder, model, given):
    """Has `lego` make a step too small to be seen and write its weights; how far off they are when loaded again."""
    episodes = [
        {"id": f"e{place}", "group": "g", "reward": None, "outcome": "completed", "temperature": 1.0, "segments": [
            {"prompt": row["tokens"][: row["start"]], "response": row["tokens"][row["start"] :],
             "mask": [1] * len(row["mask"]), "logprobs": None}]}
        for place, row in enumerate(given)
    ]  # fmt: skip
    case = {"train": {"algorithm": "sft", "lr": 1e-9}, "prompt_window": 64, "response_window": 64, "steps": 1,
            "episodes": episodes}  # fmt: skip
    (folder / "policy").symlink_to("model")
    (folder / "case.json").write_text(json.dumps(case))
    subprocess.run([examples / "update_dump", folder], check=True)
    back, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "after", output_loading_info=True, dtype=torch.float32)  # fmt: skip
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        raise SystemExit(f"transformers does not load what was written as it stands: {wrong}")
    pairs = zip(model.state_dict().items(), back.state_dict().items())
    return max(float((a - b).abs().max()) if name == other else float("inf") for (name, a), (other, b) in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path, help="folder of the built examples")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--families", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {args.seed}; transformers {transformers.__version__}, torch {torch.__version__}")
    failed = 0
    for family in args.families:
        with tempfile.TemporaryDirectory() as folder:
            for what, figure, bound in compare(args.examples.resolve(), family, args.seed, Path(folder)):
                failed += figure > bound
                print(f"{'ok ' if figure <= bound else 'FAR'} {family:16} {what:44} {abs(figure):.2e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

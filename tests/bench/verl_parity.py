#!/usr/bin/env python3
"""verl's own functions against `lego`'s on the same random inputs: advantages, losses, KL estimates, rollout correction.

    cargo build --example objective_dump
    python3 tests/bench/verl_parity.py target/debug/examples/objective_dump [--seed N] [--cases N]

Needs torch, and `pip install verl --no-deps` with what its `core_algos` and `rollout_corr_helper` import (omegaconf,
tensordict, ray, transformers, codetiming, hydra-core, pybind11 and so on, whatever version imports). Both modules
are called as they are. Prints the seed, verl's version and the hashes of the two sources, and the largest relative
difference of each quantity; exit code 1 if one is above 1e-5.
"""
import argparse
import hashlib
import importlib.metadata
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

BOUND = 1e-5
torch.set_num_threads(1)
# Masked sums of some hundred tokens: what is compared is f32 against the definition.
torch.set_default_dtype(torch.float64)


def draw(seed):
    """Rows of different lengths with holes in their masks; groups of two to five; a group of one; ratios of all sizes."""
    dice = random.Random(seed)
    longest = dice.randint(12, 24)
    rows = []
    for group, size in enumerate([dice.randint(2, 5) for _ in range(dice.randint(3, 5))] + [1]):
        greedy = dice.choice([0.0, 0.5, 1.0])
        for _ in range(size):
            length = dice.randint(2, longest)
            mask = [int(dice.random() < 0.75) for _ in range(length)]
            mask[dice.randrange(length)] = 1
            normal = lambda scale, centre=0.0: [dice.gauss(centre, scale) for _ in range(length)]
            old = [-abs(x) for x in normal(2.0)]
            near = lambda scale: [x + dice.gauss(0, scale) * dice.choice([0.01, 0.1, 1, 1, 8]) for x in old]
            rows.append({
                "group": f"g{group:02}", "score": dice.choice([0.0, 1.0, 0.25, dice.random()]), "greedy": greedy,
                "mask": mask, "penalties": normal(0.1), "logprobs": near(0.3), "old": old, "recorded": near(0.4),
                "reference": near(0.5), "advantages": normal(1.0), "old_values": normal(0.5), "values": normal(0.8),
                "returns": normal(1.0), "importance": [dice.random() * 2 for _ in range(length)],
            })  # fmt: skip
    single = lambda rule, threshold: {"rollout_rs": [rule], "rollout_rs_threshold": [threshold]}
    corrections = [
        {"rollout_is": level, "rollout_is_threshold": bound, "rollout_is_batch_normalize": normalize}
        for level in ("token", "sequence")
        for bound in ("2.0", "0.5_3.0")
        for normalize in (False, True)
    ]
    corrections += [
        single(rule, "0.7_1.6" if rule.endswith("k1") else f"{dice.uniform(0.01, 0.3):.4f}")
        for rule in sorted(rollout_corr_helper.SUPPORTED_ROLLOUT_RS_OPTIONS)
    ]
    corrections.append({
        "rollout_is": "token", "rollout_is_threshold": "1.5",
        "rollout_rs": ["token_k3", "seq_mean_k1"], "rollout_rs_threshold": ["0.5", "2.0"],
    })  # fmt: skip
    return {
        "gamma": dice.uniform(0.9, 1.0), "lambda": dice.uniform(0.8, 1.0), "clip_low": 0.2, "clip_high": 0.28,
        "cliprange_value": 0.5, "longest": longest, "corrections": corrections, "rows": rows,
    }  # fmt: skip


class Batch:
    """The case as padded tensors of what f32 holds, which is what `lego` reads."""

    def __init__(self, case):
        self.case, self.rows, self.width = case, case["rows"], case["longest"]
        self.mask = self.padded("mask")
        self.index = numpy.array([row["group"] for row in self.rows])

    def padded(self, name):
        pad = lambda values: values + [0.0] * (self.width - len(values))
        return torch.tensor([pad(row[name]) for row in self.rows], dtype=torch.float32).double()

    def scalars(self, name):
        return torch.tensor([row[name] for row in self.rows], dtype=torch.float32).double()

    def rewards(self):
        """Token rewards: penalties off at trained tokens, the score at the last of them."""
        rewards = -self.padded("penalties") * self.mask
        for row, (mask, score) in enumerate(zip(self.mask, self.scalars("score"))):
            rewards[row, int(mask.nonzero().max())] += score
        return rewards

    def trained(self, tensor):
        return [values[mask > 0].tolist() for values, mask in zip(tensor, self.mask)]


class Comparison:
    def __init__(self):
        self.worst = {}
        self.failed = 0

    def add(self, name, found, expected):
        found, expected = flat(found), flat(expected)
        if len(found) != len(expected):
            raise SystemExit(f"{name}: {len(found)} numbers, verl has {len(expected)}")
        for a, b in zip(found, expected):
            difference = 0.0 if a == b else abs(a - b) / max(1.0, abs(a), abs(b))
            self.worst[name] = max(self.worst.get(name, 0.0), math.inf if math.isnan(difference) else difference)


def flat(values):
    return [x for part in values for x in flat(part)] if isinstance(values, (list, tuple)) else [float(values)]


def compare(case, found, comparison):
    batch = Batch(case)
    advantages(case, batch, found, comparison)
    losses(case, batch, found, comparison)
    for kind in ("k1", "k2", "k3"):
        expected = core_algos.kl_penalty(batch.padded("logprobs"), batch.padded("reference"), kind)
        comparison.add(f"kl/{kind}", found["kl"][kind], batch.trained(expected))
    correction(case, batch, found, comparison)


def advantages(case, batch, found, comparison):
    rewards, mask, index = batch.rewards(), batch.mask, batch.index
    config = AlgoConfig(gamma=case["gamma"])
    both = {
        "grpo": core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, index),
        "dr_grpo": core_algos.compute_grpo_outcome_advantage(rewards.clone(), mask, index, norm_adv_by_std_in_grpo=False),
        "rloo": core_algos.compute_rloo_outcome_advantage(rewards.clone(), mask, index),
        "opo": core_algos.compute_opo_outcome_advantage(rewards.clone(), mask, index),
        "remax": core_algos.compute_remax_outcome_advantage(rewards.clone(), batch.scalars("greedy"), mask),
        "reinforce_plus_plus": core_algos.compute_reinforce_plus_plus_outcome_advantage(rewards.clone(), mask, config=config),
        "reinforce_plus_plus_baseline":
            core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards.clone(), mask, index),
        "gae": core_algos.compute_gae_advantage_return(
            rewards.clone(), batch.padded("old_values"), mask, case["gamma"], case["lambda"]),
    }  # fmt: skip
    for name, (advantage, returns) in both.items():
        comparison.add(f"advantage/{name}", found["advantages"][name], batch.trained(advantage))
        # `lego` names the return of ReMax before its baseline is off as its advantage: the same number twice.
        if name != "remax" and name != "reinforce_plus_plus_baseline":
            comparison.add(f"returns/{name}", found["returns"][name], batch.trained(returns))


POLICY_LOSSES = {
    "clipped": core_algos.compute_policy_loss_vanilla,
    "gspo": core_algos.compute_policy_loss_gspo,
    "cispo": core_algos.compute_policy_loss_cispo,
}


def losses(case, batch, found, comparison):
    tokens = float(batch.mask.sum())
    actor = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, ppo_micro_batch_size_per_gpu=1,
                        clip_ratio_low=case["clip_low"], clip_ratio_high=case["clip_high"])  # fmt: skip
    for name, ours in found["losses"].items():
        loss, mode, *weighed = name.split("/")
        logprobs = batch.padded("logprobs").requires_grad_(True)
        weights = batch.padded("importance") if weighed else None
        value, metrics = POLICY_LOSSES[loss](
            batch.padded("old"), logprobs, batch.padded("advantages"), batch.mask, mode, actor, weights)  # fmt: skip
        value.backward()
        comparison.add(f"loss/{name}", ours["loss"], value.item())
        comparison.add(f"gradient/{name}", ours["slopes"], batch.trained(logprobs.grad))
        comparison.add(f"clipfrac/{loss}", ours["clipped"] / tokens, metrics["actor/pg_clipfrac"])
        comparison.add(f"clipfrac_lower/{loss}", ours["clipped_lower"] / tokens, metrics["actor/pg_clipfrac_lower"])
        comparison.add(f"ppo_kl/{loss}", ours["neg_log_ratio"] / tokens, metrics["actor/ppo_kl"])
    for mode, ours in found["value_losses"].items():
        values = batch.padded("values").requires_grad_(True)
        value, clipfrac = core_algos.compute_value_loss(
            values, batch.padded("returns"), batch.padded("old_values"), batch.mask, case["cliprange_value"], mode)  # fmt: skip
        value.backward()
        comparison.add(f"value_loss/{mode}", ours["loss"], value.item())
        comparison.add(f"value_gradient/{mode}", ours["slopes"], batch.trained(values.grad))
        comparison.add("value_clipfrac", ours["clipped"] / tokens, clipfrac.item())


def correction(case, batch, found, comparison):
    old, recorded = batch.padded("old"), batch.padded("recorded")
    for asked, ours in zip(case["corrections"], found["corrections"]):
        rules = asked.get("rollout_rs", [])
        try:
            weights, mask, metrics = rollout_corr_helper.compute_rollout_correction_and_rejection_mask(
                old, recorded, batch.mask,
                rollout_is=asked.get("rollout_is"), rollout_is_threshold=asked.get("rollout_is_threshold", 2.0),
                rollout_is_batch_normalize=asked.get("rollout_is_batch_normalize", False),
                rollout_rs=",".join(rules) or None,
                rollout_rs_threshold=",".join(asked.get("rollout_rs_threshold", [])) or None,
            )  # fmt: skip
        except ZeroDivisionError:
            # verl divides by the mean of squared weights, which is 0 where all of them are out of bounds.
            comparison.failed += 1
            if any(flat(ours["weights"])):
                raise SystemExit("verl finds every weight out of bounds, and `lego` does not") from None
            continue
        weighed = [f"{asked['rollout_is']} {asked['rollout_is_threshold']}"] if "rollout_is" in asked else []
        kind = "+".join(weighed + rules)
        if weights is not None:
            comparison.add(f"weights/{kind}", ours["weights"], batch.trained(weights.batch["rollout_is_weights"]))
        if rules:
            kept = [[float(kept) for kept in row] for row in ours["kept"]]
            comparison.add(f"kept/{kind}", kept, batch.trained(mask))
        for name, expected in metrics.items():
            if name.startswith(("rollout_corr/rollout_is", "rollout_corr/rollout_rs")):
                comparison.add(f"metrics/{kind}", ours["metrics"].pop(name), expected)
        if ours["metrics"]:
            raise SystemExit(f"verl has no {sorted(ours['metrics'])}")
    expected = rollout_corr_helper.compute_offpolicy_metrics(old, recorded, batch.mask)
    for name, value in expected.items():
        comparison.add(f"off-policy/{name}", found["off_policy"][f"rollout_corr/{name}"], value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--cases", type=int, default=20)
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.cases} cases; verl {importlib.metadata.version('verl')}, torch {torch.__version__}")
    for module in (core_algos, rollout_corr_helper):
        digest = hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
        print(f"{module.__name__} sha256 {digest}")
    comparison = Comparison()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        for number in range(args.cases):
            case = draw(args.seed + number)
            path.write_text(json.dumps(case))
            output = subprocess.run([args.binary, path], check=True, capture_output=True, text=True).stdout
            compare(case, json.loads(output), comparison)
    for name, worst in sorted(comparison.worst.items()):
        print(f"{'ok  ' if worst <= BOUND else 'FAR '} {worst:9.2e}  {name}")
    far = [name for name, worst in comparison.worst.items() if worst > BOUND]
    print(f"{len(comparison.worst)} quantities, {len(far)} further apart than {BOUND}; "
          f"{comparison.failed} corrections that verl itself divides by zero in")  # fmt: skip
    sys.exit(1 if far else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Losses, gradients and weights of `lego`'s updates against an independent PyTorch computation.

    cargo build --example update_dump
    python3 tests/bench/grpo_parity.py target/debug/examples/update_dump

Needs torch, numpy and safetensors. A random small decoder and random episodes are written to a folder; the
binary makes two updates of each recipe; this script makes the same updates from the definitions (decoder,
advantage, loss, aggregation, clipping of the gradient's norm, AdamW: nothing is shared) and compares.
Exit code 1 if a figure is further away than its bound.
"""
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FF, EPS, THETA = 48, 32, 2, 4, 2, 8, 64, 1e-5, 10000.0
RESPONSE_WINDOW, LR, STEPS = 24, 1e-3, 2
torch.set_default_dtype(torch.float64)  # what is compared is f32; the measure of it is not
torch.set_num_threads(1)


def init_weights():
    generator = torch.Generator().manual_seed(7)
    normal = lambda *shape: torch.randn(*shape, generator=generator) * 0.15
    weights = {"model.embed_tokens.weight": normal(VOCAB, HIDDEN), "model.norm.weight": 1 + normal(HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        weights |= {
            at + "input_layernorm.weight": 1 + normal(HIDDEN),
            at + "post_attention_layernorm.weight": 1 + normal(HIDDEN),
            at + "self_attn.q_proj.weight": normal(HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD_DIM),
            at + "mlp.gate_proj.weight": normal(FF, HIDDEN),
            at + "mlp.up_proj.weight": normal(FF, HIDDEN),
            at + "mlp.down_proj.weight": normal(HIDDEN, FF),
        }
    return {name: value.float() for name, value in weights.items()}


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "intermediate_size": FF,
    "vocab_size": VOCAB, "rope_theta": THETA, "rms_norm_eps": EPS, "tie_word_embeddings": True, "hidden_act": "silu",
    "max_position_embeddings": 256, "torch_dtype": "float32", "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


def norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * gain


def rotate(x):
    """x: [length, heads, head_dim]."""
    half = HEAD_DIM // 2
    angle = torch.arange(x.shape[0])[:, None] * THETA ** (-torch.arange(half) / half)
    cos, sin = (f(angle)[:, None, :].repeat(1, 1, 2) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def log_softmax(w, tokens, temperature):
    """Log-probs over the vocabulary of tokens[1:], [length − 1, vocab]."""
    x = w["model.embed_tokens.weight"][torch.tensor(tokens)]
    n = len(tokens)
    future = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        h = norm(x, w[at + "input_layernorm.weight"])
        q = rotate((h @ w[at + "self_attn.q_proj.weight"].T).view(n, HEADS, HEAD_DIM))
        k = rotate((h @ w[at + "self_attn.k_proj.weight"].T).view(n, KV_HEADS, HEAD_DIM))
        v = (h @ w[at + "self_attn.v_proj.weight"].T).view(n, KV_HEADS, HEAD_DIM)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(HEAD_DIM)
        mixed = torch.einsum("hij,jhd->ihd", scores.masked_fill(future, -math.inf).softmax(-1), v)
        x = x + mixed.reshape(n, -1) @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, w[at + "post_attention_layernorm.weight"])
        gated = torch.nn.functional.silu(h @ w[at + "mlp.gate_proj.weight"].T) * (h @ w[at + "mlp.up_proj.weight"].T)
        x = x + gated @ w[at + "mlp.down_proj.weight"].T
    logits = norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T
    return (logits[:-1] / temperature).log_softmax(-1)


def score(w, segment, temperature):
    """Log-probs and entropies of the response's tokens."""
    tokens = segment["prompt"] + segment["response"]
    table = log_softmax(w, tokens, temperature)[len(segment["prompt"]) - 1 :]
    logp = table.gather(1, torch.tensor(segment["response"])[:, None])[:, 0]
    return logp, -(table.exp() * table).sum(-1)


def make_episodes():
    draw = random.Random(3)
    tokens = lambda low, high: [draw.randrange(2, VOCAB) for _ in range(draw.randint(low, high))]
    rewards = {"a": [1, 0, 0, 0], "b": [1, 1, 0, 0.5], "c": [1, 1, 0, 0], "d": [0, 0, 0, 0]}
    episodes = []
    for group, values in rewards.items():
        for place, reward in enumerate(values):
            segments = []
            for _ in range(2 if place == 1 else 1):
                response = tokens(3, 12)
                mask = [1] + [draw.randint(0, 1) for _ in response[1:]]
                segments.append({"prompt": tokens(2, 7), "response": response, "mask": mask})
            outcome = "infra_error" if (group, place) == ("c", 3) else "completed"
            episodes.append({
                "id": f"{group}{place}", "group": group, "reward": reward, "outcome": outcome,
                "temperature": 0.7 if group == "b" else 1.0, "segments": segments,
            })  # fmt: skip
    return episodes


def record(weights, episodes):
    """Log-probs of an older policy, so that ratios differ from 1 and some are clipped."""
    generator = torch.Generator().manual_seed(11)
    for episode in episodes:
        for segment in episode["segments"]:
            logp, _ = score(weights, segment, episode["temperature"])
            noise = 0.25 * torch.randn(len(logp), generator=generator)
            segment["logprobs"] = [float(x) * m for x, m in zip(logp + noise, segment["mask"])]


def advantages(kind, episodes):
    groups = {}
    for episode in episodes:
        groups.setdefault(episode["group"], []).append(episode)
    found = {}
    for members in groups.values():
        rewards = torch.tensor([float(m["reward"]) for m in members])
        n, centred = len(rewards), rewards - rewards.mean()
        values = {"grpo": centred / (rewards.std() + 1e-6), "dr_grpo": centred, "rloo": centred * n / (n - 1)}[kind]
        found |= {m["id"]: float(v) for m, v in zip(members, values)}
    return found


def token_loss(case, logp, old, mask, advantage):
    log_ratio = (logp - old).clamp(-20, 20)
    ratio = log_ratio.exp()
    low, high = case["clips"]
    if case["loss"] == "gspo":
        sequence = ((logp - old) * mask).sum() / mask.sum()
        ratio = (logp - logp.detach() + sequence.detach()).clamp(max=10).exp()
    if case["loss"] in ("clipped", "gspo"):
        plain, bounded = -advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high)
        worse = torch.maximum(plain, bounded)
        if case["loss"] == "clipped" and advantage < 0:
            worse = torch.minimum(worse, torch.full_like(worse, -3 * advantage))
        return worse
    if case["loss"] == "cispo":
        return -ratio.clamp(1 - low, 1 + high).detach() * advantage * logp
    return -advantage * logp if case["loss"] == "reinforce" else -logp


def kl_term(kind, logp, ref):
    if kind == "k1":
        return logp - ref
    if kind == "k2":
        return 0.5 * (logp - ref) ** 2
    x = (ref - logp).clamp(-20, 20)
    return (x.exp() - x - 1).clamp(-10, 10)


def aggregate(mode, losses):
    """losses: one tensor of trained tokens' losses an episode."""
    if mode == "token-mean":
        return torch.cat(losses).mean()
    parts = {"seq-mean-token-sum": lambda l: l.sum(), "seq-mean-token-mean": lambda l: l.mean(),
             "seq-mean-token-sum-norm": lambda l: l.sum() / RESPONSE_WINDOW}  # fmt: skip
    return torch.stack([parts[mode](loss) for loss in losses]).mean()


def expected(case, weights, episodes):
    """Loss and gradient norm of each step, and the weights after the last."""
    w = {name: value.double().clone().requires_grad_() for name, value in weights.items()}
    frozen = {name: value.detach().clone() for name, value in w.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=case["weight_decay"])
    supervised = case["loss"] == "sft"
    kept = episodes if supervised else [e for e in episodes if e["outcome"] == "completed"]
    credit = {e["id"]: 1.0 for e in kept} if supervised else advantages(case["advantage"], kept)
    steps = []
    for _ in range(STEPS):
        losses, policy_losses = [], []
        for episode in kept:
            tokens, policy_tokens = [], []
            for segment in episode["segments"]:
                temperature = 1.0 if supervised else episode["temperature"]
                logp, entropy = score(w, segment, temperature)
                mask = torch.tensor(segment["mask"], dtype=torch.float64)
                old = torch.tensor(segment["logprobs"]) if case["bypass"] else logp.detach()
                loss = token_loss(case, logp, old, mask, credit[episode["id"]])
                policy_tokens.append(loss[mask == 1])
                if case["kl"]:
                    with torch.no_grad():
                        ref, _ = score(frozen, segment, temperature)
                    loss = loss + case["kl"][1] * kl_term(case["kl"][0], logp, ref)
                loss = loss - case["entropy"] * entropy
                tokens.append(loss[mask == 1])
            losses.append(torch.cat(tokens))
            policy_losses.append(torch.cat(policy_tokens))
        optimizer.zero_grad()
        aggregate(case["agg"], losses).backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        steps.append({"loss": aggregate(case["agg"], policy_losses).item(), "grad_norm": float(grad_norm)})
    return steps, credit, {name: value.detach() for name, value in w.items()}


def case(name, train, loss, agg, advantage="grpo", clips=(0.2, 0.28), kl=None, entropy=0.0, bypass=True, decay=0.0):
    return {"name": name, "loss": loss, "agg": agg, "advantage": advantage, "clips": clips, "kl": kl,
            "entropy": entropy, "bypass": bypass, "weight_decay": decay, "train": train}  # fmt: skip


CASES = [
    case("grpo", {"algorithm": "grpo"}, "clipped", "token-mean"),
    case("grpo, old computed", {"algorithm": "grpo"}, "clipped", "token-mean", bypass=False),
    case("grpo + k3 + entropy + decay", {"algorithm": "grpo", "kl_coef": 0.05, "entropy_coeff": 0.01, "weight_decay": 0.1},
         "clipped", "token-mean", kl=("k3", 0.05), entropy=0.01, decay=0.1),
    case("grpo + k1", {"algorithm": "grpo", "kl_coef": 0.05, "kl_estimator": "k1"}, "clipped", "token-mean", kl=("k1", 0.05)),
    case("grpo + k2", {"algorithm": "grpo", "kl_coef": 0.05, "kl_estimator": "k2"}, "clipped", "token-mean", kl=("k2", 0.05)),
    case("gspo", {"algorithm": "gspo"}, "gspo", "seq-mean-token-mean", clips=(3e-4, 4e-4)),
    case("dr_grpo", {"algorithm": "dr_grpo"}, "clipped", "seq-mean-token-sum-norm", advantage="dr_grpo"),
    case("rloo", {"algorithm": "rloo"}, "clipped", "token-mean", advantage="rloo"),
    case("cispo", {"algorithm": "grpo", "loss": "cispo"}, "cispo", "token-mean"),
    case("reinforce", {"algorithm": "rloo", "loss": "reinforce", "loss_agg_mode": "seq-mean-token-sum"},
         "reinforce", "seq-mean-token-sum", advantage="rloo"),
    case("sft", {"algorithm": "sft"}, "sft", "token-mean", bypass=False),
]  # fmt: skip


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    weights, episodes = init_weights(), make_episodes()
    with torch.no_grad():
        record({name: value.double() for name, value in weights.items()}, episodes)
    print(f"{'recipe':30} {'loss':>10} {'Δloss':>8} {'grad norm':>10} {'Δrel':>8} {'Δadvantage':>10} {'Δweights':>9}")
    worst_of = {"loss": 0.0, "grad": 0.0, "advantage": 0.0, "weights": 0.0}
    for c in CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "policy").mkdir()
            save_file(weights, folder / "policy" / "model.safetensors", metadata={"format": "pt"})
            (folder / "policy" / "config.json").write_text(json.dumps(CONFIG))
            # Three rows a micro-batch or so: the cut must not show.
            train = {"lr": LR, "bypass_old_logprob": c["bypass"], "max_tokens_per_micro_batch": 40} | c["train"]
            (folder / "case.json").write_text(json.dumps({
                "train": train, "prompt_window": 64, "response_window": RESPONSE_WINDOW, "steps": STEPS,
                "episodes": episodes,
            }))  # fmt: skip
            subprocess.run([sys.argv[1], folder], check=True)
            found = json.loads((folder / "result.json").read_text())
            after = load_file(folder / "after" / "model.safetensors")
        steps, credit, wanted = expected(c, weights, episodes)
        name = "actor/loss" if c["loss"] == "sft" else "actor/pg_loss"
        loss = max(abs(f[name] - s["loss"]) for f, s in zip(found, steps))
        grad = max(abs(f["actor/grad_norm"] / s["grad_norm"] - 1) for f, s in zip(found, steps))
        extremes = [("max", max), ("min", min)]
        advantage = max(abs(found[0][f"critic/advantages/{n}"] - f(credit.values())) for n, f in extremes)
        moved = torch.cat([(wanted[n] - weights[n].double()).flatten() for n in wanted]).norm()
        apart = torch.cat([(wanted[n] - after[n].double()).flatten() for n in wanted]).norm()
        for key, value in (("loss", loss), ("grad", grad), ("advantage", advantage), ("weights", float(apart / moved))):
            worst_of[key] = max(worst_of[key], value)
        print(f"{c['name']:30} {steps[0]['loss']:10.6f} {loss:8.1e} {steps[0]['grad_norm']:10.6f} {grad:8.1e}"
              f" {advantage:10.1e} {float(apart / moved):9.1e}")  # fmt: skip
    bounds = {"loss": 1e-5, "grad": 1e-4, "advantage": 1e-6, "weights": 1e-3}
    print("worst:", {key: f"{value:.1e}" for key, value in worst_of.items()}, "bounds:", bounds)
    if any(not worst_of[key] <= bound for key, bound in bounds.items()):
        sys.exit(1)


main()

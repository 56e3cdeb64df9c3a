#!/usr/bin/env python3
"""Train the quickstart's tokenizer: tokenizer.json and tokenizer_config.json, into policy/.

A byte-level BPE over transcripts of training seeds only. Needs `pip install tokenizers jinja2`.
Syllables of names, digits and signs are split off first, so that each is the same token wherever
it stands and can be copied; everything between them may merge across words. The fixed text around a bash call is one
token each side, declared in MARKS.
"""

import argparse
import json
from pathlib import Path

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from generate import demos

VOCABULARY = 512
SYSTEM = "Fix the program."
EMPTY = "(no output)"
FAILED = "fail\n[exit 1]"
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command in the project folder.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    },
}
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = [
    "<tool_call>",
    "</tool_call>",
    '<tool_call>\n{"name": "bash", "arguments": {"command": "',
    '"}}\n</tool_call>',
]
SPLIT = r"[A-Z]{1,2}|[-0-9+*/,:=@%$<]|[^-A-Z0-9+*/,:=@%$<\n]+\n?|\n"

# ChatML with nothing between <|im_end|> and the next <|im_start|>, so that a rendered conversation
# is always a prefix of its continuation.
TEMPLATE = (
    "{% set start = '<|im_start|>' %}{% set end = '<|im_end|>' %}"
    "{% if tools or (messages and messages[0].role == 'system') %}"
    "{{ start + 'system\\n' }}"
    "{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% if tools %}{{ '\\nTools:' }}{% for tool in tools %}{% set f = tool.function if tool.function else tool %}"
    "{{ ' ' + f.name + '(' + (f.parameters.properties | join(', ')) + ')' }}{% endfor %}{% endif %}"
    "{{ end }}{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'system' and loop.first %}"
    "{% elif message.role == 'assistant' %}"
    "{{ start + 'assistant\\n' }}{% if message.content %}{{ message.content }}{% endif %}"
    "{% if message.tool_calls %}{% for tool_call in message.tool_calls %}"
    "{% set call = tool_call.function if tool_call.function else tool_call %}"
    "{% if message.content or not loop.first %}{{ '\\n' }}{% endif %}"
    "{{ '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' }}"
    "{% if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}"
    "{{ '}\\n</tool_call>' }}{% endfor %}{% endif %}{{ end }}"
    "{% else %}{{ start + message.role + '\\n' }}{% if message.content %}{{ message.content }}{% endif %}{{ end }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ start + 'assistant\\n' }}{% endif %}"
)


def renderer():
    """The template as transformers compiles it."""
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string(TEMPLATE).render


def conversation(task: dict, demo: dict) -> list[dict]:
    """The messages of a demonstration with what the tools answer."""
    program = next(iter(task["files"].values()))
    solved = demo["turns"][1]["tool_calls"][0]["arguments"]["command"] in task["solution"]
    outputs = [program.rstrip(), EMPTY, "pass" if solved else FAILED]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task["problem_statement"]}]
    for turn, output in zip(demo["turns"], [*outputs, None]):
        messages.append({"role": "assistant", **turn})
        if output is not None:
            messages.append({"role": "tool", "content": output})
    return messages


def train(transcripts: list[str]) -> Tokenizer:
    """Byte-level BPE; every byte is in the vocabulary, so any text encodes and decodes to itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[*CONTROLS, *MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(transcripts, trainer)
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path(__file__).parent / "policy")
    parser.add_argument("--count", type=int, default=4096)
    args = parser.parse_args()
    render = renderer()
    transcripts = []
    for seed, stage in enumerate(("clean", "mixed")):
        for task, demo in demos(stage, args.count, 1000 + seed, misled=0.5, slips=0.5):
            text = render(messages=conversation(task, demo), tools=[BASH])
            # The marks are tokens of their own: what the merges learn from is the text between them.
            for mark in sorted([*CONTROLS, *MARKS], key=len, reverse=True):
                text = text.replace(mark, "\0")
            transcripts.extend(part for part in text.split("\0") if part)
    tokenizer = train(transcripts)
    saved = json.loads(tokenizer.to_str())
    for token in saved["added_tokens"]:
        token["special"] = token["content"] in CONTROLS  # calls are text that a parser reads
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "tokenizer.json").write_text(json.dumps(saved, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
        "chat_template": TEMPLATE,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

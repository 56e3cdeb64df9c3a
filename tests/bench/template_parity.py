"""Renders conversations as transformers' `apply_chat_template` does, for comparison with `lego`.

    python tests/bench/template_parity.py src/prompt/fixtures/renderings.json [NAME=TEMPLATE.jinja ...]

Where transformers is installed, its own renderer is what `apply_chat_template` calls, and is called here. Elsewhere Jinja2 is
enough: the environment below is the one that transformers sets up (transformers/utils/chat_template_utils.py).
Without NAME=TEMPLATE arguments the templates beside the output file are taken. To compare templates that are not
committed, write to another file and run the unit tests with LEGO_TEMPLATE_RENDERINGS=FILE.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOKENS = {
    "deepseek": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "mistral": ("<s>", "</s>"),
    "llama": ("<|begin_of_text|>", "<|eot_id|>"),
    "glm": ("", "<|user|>"),
}


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: only marks what the assistant says."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_say"), [], [], body).set_lineno(line)

    def _say(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def call(name, arguments, identity):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    """Name, messages, tools. Ids have nine letters, which every family accepts."""
    tools = [
        {"type": "function", "function": {"name": "bash", "description": "Runs <a> & 'b' \"c\" é.", "parameters": {
            "type": "object", "properties": {
                "command": {"type": "string", "description": "What to run."},
                "args": {"type": "array", "items": {"type": "string"}},
                "timeout": {"type": "integer", "default": 30}},
            "required": ["command"]}}},
        {"type": "function", "function": {"name": "submit", "description": "Ends.", "parameters": {
            "type": "object", "properties": {}}}},
    ]
    system = {"role": "system", "content": "Be <brief>. "}
    user = {"role": "user", "content": "  List the files, 日本語 🦀.\n"}
    nested = {"command": "ls -l\n\t\"x\" \\ é", "args": ["a", "<b>"], "timeout": 1.5, "wait": True, "nothing": None, "deep": {"n": None, "t": True}}
    bash = {"role": "assistant", "content": "", "tool_calls": [call("bash", nested, "abcdefgh1")]}
    said = {"role": "assistant", "content": "Look:\n", "reasoning_content": "\nHm.\n",
            "tool_calls": [call("bash", {"command": "ls"}, "abcdefgh1")]}
    two = {"role": "assistant", "content": "", "tool_calls": [
        call("bash", {"command": "a"}, "abcdefgh1"), call("bash", {"command": "b"}, "abcdefgh2")]}
    result = {"role": "tool", "content": "a.txt\n<b>", "tool_call_id": "abcdefgh1"}
    second = {"role": "tool", "content": "", "tool_call_id": "abcdefgh2"}
    done = {"role": "assistant", "content": "<think>\nold\n</think>\n\nDone. ", }
    again = {"role": "user", "content": "Again."}
    yield "one question", [user], None
    yield "system", [system, user], None
    yield "system and tools", [system, user], tools
    yield "tools alone", [user], tools
    yield "call", [system, user, bash], tools
    yield "call and result", [system, user, bash, result], tools
    yield "text, thinking and call", [user, said, result], tools
    yield "parallel calls", [system, user, two, result, second], tools
    yield "after the result", [system, user, bash, result, done], tools
    yield "next question", [system, user, bash, result, done, again], tools
    yield "thinking in history", [user, {**done, "reasoning_content": "New."}, again, done], None
    yield "two systems", [system, user, done, system, again], None


# Forms of messages with calls, the usual one first; `lego` looks for the first that keeps call and result.
SHAPES = [(False, False), (True, False), (False, True), (True, True)]


def shaped(messages, text_arguments, null_content):
    copy = json.loads(json.dumps(messages))
    for message in copy:
        for one in message.get("tool_calls", []):
            if text_arguments:
                one["function"]["arguments"] = json.dumps(one["function"]["arguments"], ensure_ascii=False)
        if null_content and message.get("tool_calls") and not message["content"]:
            message["content"] = None
    return copy


def shape_of(render):
    probe = [{"role": "user", "content": "a"},
             {"role": "assistant", "content": "", "tool_calls": [call("probe_tool", {"x": "probe-arg"}, "abcdefgh1")]},
             {"role": "tool", "content": "probe-result", "tool_call_id": "abcdefgh1"}]
    for shape in SHAPES:
        try:
            text = render(shaped(probe, *shape), None, True)
        except Exception:
            continue
        if all(word in text for word in ("probe_tool", "probe-arg", "probe-result")):
            return shape
    return SHAPES[0]


def renderer(source, **tokens):
    """What renders (messages, tools, add_generation_prompt)."""
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError:
        template = environment().from_string(source)
        return lambda messages, tools, generation: template.render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=generation, **tokens)
    return lambda messages, tools, generation: render_jinja_template(
        [messages], tools=tools, chat_template=source, add_generation_prompt=generation, **tokens)[0][0]


def cases_of(name, source):
    bos, eos = next((pair for key, pair in TOKENS.items() if key in name), ("", "<|im_end|>"))
    render = renderer(source, bos_token=bos, eos_token=eos)

    shape = shape_of(render)
    for title, messages, tools in conversations():
        for generation in (True, False):
            case = {"conversation": title, "add_generation_prompt": generation}
            try:
                case["expected"] = render(shaped(messages, *shape), tools, generation)
            except Exception as error:  # what the template refuses must be refused
                case["error"] = f"{type(error).__name__}: {error}"
            yield case


def main():
    output = Path(sys.argv[1])
    named = dict(argument.split("=", 1) for argument in sys.argv[2:])
    if not named:
        named = {path.stem: str(path) for path in sorted(output.parent.glob("*.jinja"))}
    made = []
    for name, path in named.items():
        source = Path(path).read_text(encoding="utf-8")
        bos, eos = next((pair for key, pair in TOKENS.items() if key in name), ("", "<|im_end|>"))
        cases = list(cases_of(name, source))
        refused = sum("error" in case for case in cases)
        print(f"{name}: {len(cases)} renderings, {refused} refused", file=sys.stderr)
        made.append({"template": name, "bos_token": bos, "eos_token": eos, "cases": cases,
                     **({} if len(sys.argv) == 2 else {"source": source})})
    given = {title: {"messages": messages, "tools": tools} for title, messages, tools in conversations()}
    made = {"conversations": given, "templates": made}
    output.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


main()

//! Tokenizer and templates for tests.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{ChatTemplate, PromptBuilder, Tokenizer};

/// ChatML with a newline behind `<|im_end|>`, which drops thinking from all but the answers behind the last
/// question and adds an empty thinking block to the last one, as Qwen3's template does.
pub(crate) const DROPS_THINKING: &str = r#"{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- set ns = namespace(last_query=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' %}
        {%- set ns.searching = false %}{%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > ns.last_query and (loop.last or message.reasoning_content) %}
            {{- '<think>\n' + (message.reasoning_content or '').strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {%- generation %}{{- message.content }}{% endgeneration %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"#;

pub(crate) fn quickstart_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/policy")
}

/// The quickstart's tokenizer and template.
pub(crate) fn quickstart() -> PromptBuilder {
    PromptBuilder::load(&quickstart_dir(), None).unwrap()
}

/// The quickstart's tokenizer under another template.
pub(crate) fn with_template(source: &str) -> PromptBuilder {
    let template = ChatTemplate::new(source.to_owned(), &Value::Null).unwrap();
    PromptBuilder::new(Tokenizer::load(&quickstart_dir()).unwrap(), template)
}

/// The tool of the quickstart.
pub(crate) fn bash_tool() -> Value {
    json!({"type": "function", "function": {"name": "bash", "description": "Run a command in the project folder.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string", "description": "The command."}},
        "required": ["command"]}}})
}

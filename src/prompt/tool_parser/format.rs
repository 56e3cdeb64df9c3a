//! The formats in which policies write tool calls: names, marks, and how one is recognised.

use super::opening::Opening;
use super::running::ToolParser;
use super::schema::ToolSchemas;
use super::{ParsedCall, json_calls, marked_calls, pythonic_calls};

/// How a policy writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`
    Qwen3Coder,
    /// `{"name": …, "parameters": {…}}` alone, or behind `<|python_tag|>`; several joined by `;`
    Llama3Json,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or `[TOOL_CALLS]NAME[ARGS]{…}`
    Mistral,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>`
    Glm,
    /// `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` in a section
    KimiK2,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, then fenced JSON (V3, R1) or JSON alone (V3.1)
    DeepseekV3,
    /// `[name(key="value"), …]`
    Pythonic,
}

/// Where a call that has begun is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// At this mark; where there are values, only directly behind the end of one.
    Mark(&'static str, Option<Values>),
    /// Where the brackets are closed again.
    Brackets,
}

/// Values that are written as plain text, which may hold any mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Values {
    /// What opens one.
    pub(super) open: &'static str,
    /// What may stand before the mark that ends the call.
    pub(super) before_end: &'static [&'static str],
}

const QWEN_VALUES: Values = Values {
    open: "<parameter=",
    before_end: &["</parameter>", "</function>"],
};
const GLM_VALUES: Values = Values {
    open: "<arg_value>",
    before_end: &["</arg_value>"],
};

const FORMATS: [(ToolFormat, &[&str]); 8] = [
    (ToolFormat::Hermes, &["hermes"]),
    (ToolFormat::Qwen3Coder, &["qwen3_coder", "qwen3_xml"]),
    (ToolFormat::Llama3Json, &["llama3_json"]),
    (ToolFormat::Mistral, &["mistral"]),
    (ToolFormat::Glm, &["glm", "glm45"]),
    (ToolFormat::KimiK2, &["kimi_k2"]),
    (ToolFormat::DeepseekV3, &["deepseek_v3"]),
    (ToolFormat::Pythonic, &["pythonic"]),
];

/// Texts that only the templates of one format hold; the more telling ones come first.
const SIGNS: [(&str, ToolFormat); 8] = [
    ("<｜tool▁call▁begin｜>", ToolFormat::DeepseekV3),
    ("<|tool_call_argument_begin|>", ToolFormat::KimiK2),
    ("<arg_key>", ToolFormat::Glm),
    // `<function=` inside hermes' own tags is another format, which JSON parsing would refuse throughout.
    ("<function=", ToolFormat::Qwen3Coder),
    ("<tool_call>", ToolFormat::Hermes),
    ("[TOOL_CALLS]", ToolFormat::Mistral),
    ("(params_name1=", ToolFormat::Pythonic),
    ("<|python_tag|>", ToolFormat::Llama3Json),
];

/// `model_type` of config.json, where the template gives nothing away.
const FAMILIES: [(&str, ToolFormat); 10] = [
    ("qwen2", ToolFormat::Hermes),
    ("qwen2_moe", ToolFormat::Hermes),
    ("qwen3", ToolFormat::Hermes),
    ("qwen3_moe", ToolFormat::Hermes),
    ("mistral", ToolFormat::Mistral),
    ("mistral3", ToolFormat::Mistral),
    ("glm4_moe", ToolFormat::Glm),
    ("kimi_k2", ToolFormat::KimiK2),
    ("deepseek_v3", ToolFormat::DeepseekV3),
    ("llama4", ToolFormat::Pythonic),
];

impl ToolFormat {
    /// The format of this name in run.toml; `auto` is not one, see [`detect`](Self::detect).
    pub fn from_name(name: &str) -> Option<Self> {
        let found = FORMATS.iter().find(|(_, names)| names.contains(&name))?;
        Some(found.0)
    }

    /// The name in run.toml and in shards.
    pub fn name(self) -> &'static str {
        let found = FORMATS.iter().find(|(format, _)| *format == self);
        found.map_or("", |(_, names)| names[0])
    }

    /// Every format, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(|(format, _)| *format)
    }

    /// Reads the format off a chat template, which renders earlier calls as the policy writes them; a template
    /// that knows tools but shows no format goes by `model_type` of config.json.
    pub fn detect(template: &str, model_type: Option<&str>) -> Option<Self> {
        if let Some((_, format)) = SIGNS.iter().find(|(sign, _)| template.contains(sign)) {
            return Some(*format);
        }
        if !template.contains("tools") {
            return None;
        }
        let llama = template.contains("\"parameters\": ").then_some(Self::Llama3Json);
        let family = FAMILIES.iter().find(|(family, _)| model_type == Some(family));
        family
            .map(|(_, format)| *format)
            .or(llama.filter(|_| model_type.is_none_or(|family| family == "llama")))
    }

    /// A parser for one answer.
    pub fn parser(self) -> ToolParser {
        ToolParser::new(self)
    }

    /// Whether the policy writes arguments as plain text, whose types only the tools' schemas tell.
    pub fn has_plain_arguments(self) -> bool {
        matches!(self, Self::Qwen3Coder | Self::Glm)
    }

    /// How a call begins.
    pub(super) fn opening(self) -> Opening {
        match self {
            Self::Hermes | Self::Glm => Opening::marks(&["<tool_call>"]),
            Self::Qwen3Coder => Opening::marks(&["<tool_call>", "<function="]),
            Self::Llama3Json => Opening::marks(&["<|python_tag|>"]).or_at_start(json_calls::begins_call),
            Self::Mistral => Opening::marks(&["[TOOL_CALLS]"]),
            Self::KimiK2 => Opening::marks(&["<|tool_call_begin|>"])
                .with_noise(&["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"]),
            Self::DeepseekV3 => Opening::marks(&["<｜tool▁call▁begin｜>"])
                .with_noise(&["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"]),
            Self::Pythonic => Opening::marks(&["<|python_start|>"]).or_at_start(pythonic_calls::begins_call),
        }
    }

    /// Where a call that began with `opener` is over; an empty opener is one at the start of an answer.
    pub(super) fn ending(self, opener: &str) -> Ending {
        match (self, opener) {
            (Self::Hermes, _) => Ending::Mark("</tool_call>", None),
            (Self::Qwen3Coder, "<function=") => Ending::Mark("</function>", Some(QWEN_VALUES)),
            (Self::Qwen3Coder, _) => Ending::Mark("</tool_call>", Some(QWEN_VALUES)),
            (Self::Glm, _) => Ending::Mark("</tool_call>", Some(GLM_VALUES)),
            (Self::KimiK2, _) => Ending::Mark("<|tool_call_end|>", None),
            (Self::DeepseekV3, _) => Ending::Mark("<｜tool▁call▁end｜>", None),
            (Self::Pythonic, "<|python_start|>") => Ending::Mark("<|python_end|>", None),
            (Self::Llama3Json | Self::Mistral | Self::Pythonic, _) => Ending::Brackets,
        }
    }

    /// What may stand between two calls beside white space.
    pub(super) fn separator(self) -> Option<char> {
        match self {
            Self::Llama3Json => Some(';'),
            _ => None,
        }
    }

    /// The calls in `body`, which stood behind `opener` and before the end; the error is a reason for people.
    pub(super) fn calls(self, opener: &str, body: &str, schemas: &ToolSchemas) -> Result<Vec<ParsedCall>, String> {
        let one = |call: Result<ParsedCall, String>| call.map(|call| vec![call]);
        match self {
            Self::Hermes => one(json_calls::named(body)),
            Self::Llama3Json => json_calls::llama(body),
            Self::Mistral => json_calls::mistral(body),
            Self::KimiK2 => one(json_calls::kimi(body)),
            Self::DeepseekV3 => one(json_calls::deepseek(body)),
            Self::Qwen3Coder => one(marked_calls::qwen3_coder(opener, body, schemas)),
            Self::Glm => one(marked_calls::glm(body, schemas)),
            Self::Pythonic => pythonic_calls::calls(body),
        }
    }
}

//! `tool-parser`: what the template writes, the parser reads: answers with calls are rendered, encoded, decoded and parsed
//! in many pieces, and must say the same and render the same again.

use serde_json::{Value, json};

use super::{Check, Context, Finding, Purpose, model};
use crate::config::{EngineKind, Loaded};
use crate::prompt::{AnswerParser, Message, PromptBuilder, PromptError, Role, ToolCall, ToolFormat, ToolSchemas};

pub(super) struct ToolParser;

const KEY: &str = "engine.tool_parser";
/// Pieces of these sizes, in characters; a size of 0 is the whole at once.
const PIECES: [usize; 5] = [0, 1, 2, 3, 7];

/// Families of models of which it is known what they write: a part of the model's name, and the parser that reads it.
const KNOWN: [(&str, &str); 4] = [
    ("qwen3.5", "qwen3_coder"),
    ("qwen3.6", "qwen3_coder"),
    ("qwen3_5", "qwen3_coder"),
    ("qwen3-coder", "qwen3_coder"),
];
/// A model whose agents need different ones.
const BY_AGENT: (&str, &[(&str, &str)]) = (
    "qwen3-30b-a3b",
    &[("claude-code", "qwen3_coder"), ("openhands", "hermes")],
);

impl Check for ToolParser {
    fn id(&self) -> &'static str {
        "tool-parser"
    }

    fn title(&self) -> &'static str {
        "tool calls come back from the parser as the template writes them"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let (policy, engine) = (&run.config.policy, &run.config.engine);
        if !context.purpose.samples() || engine.kind == EngineKind::Openai || !model::tokenizer_dir(policy).is_dir() {
            return Vec::new();
        }
        if let Some(finding) = known(run) {
            return vec![finding];
        }
        // What is wrong with these files is told by other checks.
        let Ok(builder) = PromptBuilder::load(model::tokenizer_dir(policy), policy.chat_template.as_deref()) else {
            return Vec::new();
        };
        if builder.template().tool_trouble().is_some() {
            return Vec::new();
        }
        let detected = builder.detected_tool_format();
        let format = match engine.tool_parser.as_str() {
            "auto" => detected,
            name => ToolFormat::from_name(name),
        };
        let Some(format) = format else {
            // An answer in which no call can be read ends the episode.
            let text =
                "engine.tool_parser = \"auto\": the template does not show how tool calls are written, so none is read";
            let finding = Finding::warn(self.id(), text)
                .at(run, KEY)
                .help("name the parser of this model");
            return if context.purpose == Purpose::Whole {
                vec![finding]
            } else {
                Vec::new()
            };
        };
        match conforms(&builder, format) {
            Ok(()) => Vec::new(),
            Err(trouble) => {
                let written = detected.filter(|detected| *detected != format);
                let help = written.map_or_else(
                    || "use the parser and the template of this model".to_owned(),
                    |detected| format!("write `tool_parser = \"{}\"`, or leave the key out", detected.name()),
                );
                let text = format!(
                    "engine.tool_parser: `{}` does not read what the template writes: {trouble}",
                    format.name()
                );
                vec![Finding::fatal(self.id(), text).at(run, KEY).help(help)]
            }
        }
    }
}

/// What is known of the model by its name.
fn known(run: &Loaded) -> Option<Finding> {
    let (policy, engine) = (&run.config.policy, &run.config.engine);
    if engine.tool_parser == "auto" {
        return None;
    }
    let config = model::read_json(&policy.model.join("config.json")).unwrap_or(Value::Null);
    let own = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let folder = policy
        .model
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let names = format!(
        "{folder} {} {} {}",
        own("_name_or_path"),
        own("model_type"),
        engine.served_model
    )
    .to_lowercase();
    let agent = run.config.scaffold.name.as_str();
    let wanted = KNOWN
        .iter()
        .find(|(part, _)| names.contains(part))
        .map(|(part, parser)| (*part, *parser, String::new()))
        .or_else(|| {
            let (_, parser) = BY_AGENT.1.iter().find(|(name, _)| *name == agent)?;
            names
                .contains(BY_AGENT.0)
                .then(|| (BY_AGENT.0, *parser, format!(" under `{agent}`")))
        });
    let (part, parser, under) = wanted.filter(|(_, parser, _)| *parser != engine.tool_parser)?;
    let text = format!(
        "engine.tool_parser = \"{}\": a model of the family `{part}` writes `{parser}`{under}",
        engine.tool_parser
    );
    Some(
        Finding::fatal("tool-parser", text)
            .at(run, KEY)
            .help(format!("write `tool_parser = \"{parser}\"`")),
    )
}

fn answers() -> Vec<Message> {
    let call = |command: &str| ToolCall::new(Some("call_0".to_owned()), "bash", json!({ "command": command }));
    let with = |calls: Vec<ToolCall>| Message {
        tool_calls: calls,
        ..Message::text(Role::Assistant, "")
    };
    vec![
        Message::text(Role::Assistant, "done"),
        with(vec![call("ls")]),
        with(vec![call("grep -n 'a b' file.txt | head -3")]),
        with(vec![call("cat > x.py <<'END'\nprint(\"<a> & {b}\")\nEND")]),
    ]
}

/// Renders, encodes, decodes, parses in pieces and renders again.
fn conforms(builder: &PromptBuilder, format: ToolFormat) -> Result<(), String> {
    let tools = [
        json!({"type": "function", "function": {"name": "bash", "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}),
    ];
    for answer in answers() {
        let shown = || match answer.tool_calls.first() {
            Some(call) => format!("the call {}", call.function.arguments),
            None => format!("the text `{}`", answer.content),
        };
        let ids = match builder.answer(&answer) {
            Ok(ids) => ids,
            // A template that cannot be continued is told by its own check.
            Err(PromptError::NotContinuable(_)) => return Ok(()),
            Err(error) => return Err(format!("{} cannot be rendered: {error}", shown())),
        };
        let text = builder.tokenizer().decode(&ids[..ids.len().saturating_sub(1)]);
        for size in PIECES {
            let parser = AnswerParser::new(Some(format), builder.thinking(), || "call_0".to_owned());
            let mut parser = parser.with_schemas(ToolSchemas::of(&tools));
            let characters: Vec<char> = text.chars().collect();
            for piece in characters.chunks(if size == 0 { characters.len().max(1) } else { size }) {
                parser.push(&piece.iter().collect::<String>());
            }
            parser.finish();
            let back = parser.message();
            if !answer.says_the_same_as(back) || parser.malformed() > 0 {
                let found = match back.tool_calls.first() {
                    Some(call) => format!("the call {} of `{}`", call.function.arguments, call.function.name),
                    None => format!("no call, and the text {:?}", back.content),
                };
                let pieces = if size == 0 {
                    "at once".to_owned()
                } else {
                    format!("in pieces of {size}")
                };
                return Err(format!("{} came back, read {pieces}, as {found}", shown()));
            }
            let again = builder.answer(&Message {
                content: answer.content.clone(),
                ..back.clone()
            });
            if again.as_ref().ok() != Some(&ids) {
                return Err(format!("{} renders to other tokens after it was parsed", shown()));
            }
        }
    }
    Ok(())
}

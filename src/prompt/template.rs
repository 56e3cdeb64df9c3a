//! The model's own chat template, rendered as transformers renders it.

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde_json::Value;

use super::template_shape::{Shape, lost, probe};
use super::tokenizer::{hex_digest, read, read_json, token_text};
use super::{Message, PromptError, python_text, template_functions};

const NAME: &str = "chat_template";

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    sha256: String,
    shape: Shape,
    tool_trouble: Option<String>,
}

/// What one rendering is given.
#[derive(Debug, Clone, Copy)]
pub struct Rendering<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Tool definitions, as the agent sent them.
    pub tools: Option<&'a [Value]>,
    /// Whether the header of the next answer is appended.
    pub add_generation_prompt: bool,
}

impl ChatTemplate {
    /// Finds the template of a model folder: `file` where given, else `chat_template.jinja`, else
    /// `chat_template` of `tokenizer_config.json` (a text, or a list of named ones of which `default` counts).
    pub fn load(dir: &Path, file: Option<&Path>) -> Result<Self, PromptError> {
        let config_path = dir.join("tokenizer_config.json");
        let config = read_json(&config_path)?.unwrap_or(Value::Null);
        let beside = dir.join("chat_template.jinja");
        let path = file.map(Path::to_owned).or_else(|| beside.exists().then_some(beside));
        let (path, source) = if let Some(path) = path {
            let text = String::from_utf8(read(&path)?).map_err(|error| PromptError::Malformed {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            (path, text)
        } else {
            let text = named_template(&config["chat_template"]);
            (
                config_path,
                text.ok_or_else(|| PromptError::NoTemplate(dir.to_owned()))?,
            )
        };
        Self::new(source, &config).map_err(|reason| PromptError::Malformed { path, reason })
    }

    /// Compiles a template. `config` gives `bos_token` and its like. The error is minijinja's, with its line.
    pub fn new(source: String, config: &Value) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        template_functions::add_to(&mut environment);
        python_text::add_to(&mut environment);
        for key in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            if let Some(text) = token_text(config, key) {
                environment.add_global(key, text);
            }
        }
        environment
            .add_template_owned(NAME, without_generation_tags(&source))
            .map_err(|error| format!("{error:#}"))?;
        let sha256 = hex_digest(source.as_bytes());
        let mut template = Self {
            environment,
            source,
            sha256,
            shape: Shape::default(),
            tool_trouble: None,
        };
        template.find_shape();
        Ok(template)
    }

    /// What goes wrong when a conversation with a tool call is rendered, whatever form it is given in.
    pub fn tool_trouble(&self) -> Option<&str> {
        self.tool_trouble.as_deref()
    }

    /// Whether tool definitions show up in the prompt.
    pub fn shows_tools(&self) -> bool {
        let (messages, [name, ..]) = probe();
        let tools = [
            serde_json::json!({"type": "function", "function": {"name": name, "description": "d",
            "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}}}}),
        ];
        let rendered = self.render(Rendering {
            messages: &messages[..1],
            tools: Some(&tools),
            add_generation_prompt: true,
        });
        rendered.is_ok_and(|text| text.contains(name))
    }

    /// Settles on the first shape in which a call and its result come out; if there is none, on the usual one.
    fn find_shape(&mut self) {
        let (messages, words) = probe();
        let mut first_trouble = None;
        for shape in Shape::all() {
            self.shape = shape;
            let rendered = self.render(Rendering {
                messages: &messages,
                tools: None,
                add_generation_prompt: true,
            });
            let trouble = match rendered {
                Err(error) => error.to_string(),
                Ok(text) => match lost(&text, &words) {
                    None => return,
                    Some(word) => format!("`{word}` of a tool call or its result does not show up in the prompt"),
                },
            };
            first_trouble.get_or_insert(trouble);
        }
        self.shape = Shape::default();
        self.tool_trouble = first_trouble;
    }

    /// Renders a conversation to text.
    pub fn render(&self, rendering: Rendering<'_>) -> Result<String, PromptError> {
        let refused = |error: minijinja::Error| PromptError::Template(format!("{error:#}"));
        let template = self.environment.get_template(NAME).map_err(refused)?;
        let Rendering {
            messages,
            tools,
            add_generation_prompt,
        } = rendering;
        let messages = if self.shape == Shape::default() {
            minijinja::Value::from(Serde(messages))
        } else {
            let shaped = self.shape.apply(messages);
            minijinja::Value::from(Serde(shaped.map_err(|error| PromptError::Template(error.to_string()))?))
        };
        let rendered = match tools {
            Some(tools) => {
                let tools = minijinja::Value::from(Serde(tools));
                template.render(context! { messages, tools, add_generation_prompt })
            }
            None => template.render(context! { messages, tools => (), add_generation_prompt }),
        };
        rendered.map_err(refused)
    }

    /// Its Jinja text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// SHA-256 of its text, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

fn named_template(value: &Value) -> Option<String> {
    let named = |value: &Value| {
        let list = value.as_array()?;
        let default = list
            .iter()
            .find(|entry| entry["name"] == "default")
            .or_else(|| list.first())?;
        default["template"].as_str().map(str::to_owned)
    };
    value.as_str().map(str::to_owned).or_else(|| named(value))
}

/// `{% generation %}` marks what the assistant says, for other trainers' masks; here it is an empty block.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at..].find("%}").map(|end| end + 2) else {
            break;
        };
        let tag = &rest[at..at + length];
        let inner = tag[2..length - 2].trim_matches(['-', '+']).trim();
        text.push_str(&rest[..at]);
        match inner {
            "generation" => text.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => text.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => text.push_str(tag),
        }
        rest = &rest[at + length..];
    }
    text.push_str(rest);
    text
}

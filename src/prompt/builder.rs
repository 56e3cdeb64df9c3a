//! Prompts: the first rendered in full, every later one recorded tokens + rendered delta (proxy.md §2).
//!
//! The delta is what the template emits after the recorded answer. It is found with a short synthetic
//! prefix whose last answer holds a mark: everything behind the mark and the answer's end token is delta.
//! Recorded history is never rendered again, so templates that render it differently later on (Qwen3 drops
//! earlier thinking) still give prompts that extend what was sampled.

use std::path::Path;

use serde_json::{Value, json};

use super::template::{ChatTemplate, Rendering};
use super::tokenizer::{Tokenizer, read_json};
use super::{Message, PromptError, Role, Thinking, ToolCall, ToolFormat};
use crate::trajectory::TokenId;

/// Stands in for the recorded answer; no template and no message has a reason to contain it.
const MARK: &str = "⟦recorded answer⟧";
/// Stands in for the recorded system message.
const SYSTEM: &str = "⟦system⟧";

/// Tokenizer and template of one policy.
#[derive(Debug)]
pub struct PromptBuilder {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    /// Whether deltas come out differently when the template is given the tools again.
    tools_in_delta: bool,
    prefix_stable: bool,
    thinking: Thinking,
    /// Of an answer without calls, and of one with calls; `None` where the template cannot be continued.
    closings: [Option<Closing>; 2],
    /// `model_type` of config.json.
    family: Option<String>,
}

/// How a template closes an answer.
#[derive(Debug)]
struct Closing {
    /// Text of the end token; `None` where the header of the next message is one (GLM).
    stop: Option<String>,
    /// How often the synthetic prefix renders the mark.
    marks: usize,
    /// What comes behind the end token.
    tail: Vec<TokenId>,
}

/// What follows recorded tokens.
#[derive(Debug, Clone, Copy)]
pub struct Continuation<'a> {
    /// The last recorded token.
    pub last_token: Option<TokenId>,
    /// The recorded answer, as it was parsed.
    pub answer: &'a Message,
    /// Whether the conversation began with a system message.
    pub has_system: bool,
    /// What the agent has added since.
    pub new: &'a [Message],
    /// Tool definitions, as the agent sent them.
    pub tools: Option<&'a [Value]>,
}

impl PromptBuilder {
    /// Reads tokenizer and template of a model folder; `chat_template` names a Jinja file to use instead.
    pub fn load(dir: &Path, chat_template: Option<&Path>) -> Result<Self, PromptError> {
        let config = read_json(&dir.join("config.json"))?.unwrap_or(Value::Null);
        Ok(Self {
            family: config["model_type"].as_str().map(str::to_owned),
            ..Self::new(Tokenizer::load(dir)?, ChatTemplate::load(dir, chat_template)?)
        })
    }

    /// Puts both together and tries out what the template does.
    pub fn new(tokenizer: Tokenizer, template: ChatTemplate) -> Self {
        let mut builder = Self {
            tokenizer,
            template,
            tools_in_delta: true,
            prefix_stable: false,
            thinking: Thinking::None,
            closings: [None, None],
            family: None,
        };
        builder.closings =
            [Message::text(Role::Assistant, "a"), probe_answer()].map(|answer| builder.probe_closing(&answer));
        builder.tools_in_delta = builder.probe_tools_in_delta();
        builder.prefix_stable = builder.probe_prefix_stable();
        builder.thinking = builder.probe_thinking();
        builder
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// How the policy writes tool calls, read off its template and the family of the model.
    pub fn detected_tool_format(&self) -> Option<ToolFormat> {
        ToolFormat::detect(self.template.source(), self.family.as_deref())
    }

    /// Whether the template renders history the same when more follows. Where it does not, later prompts
    /// still extend the recorded tokens, and differ from what a full rendering would give.
    pub fn is_prefix_stable(&self) -> bool {
        self.prefix_stable
    }

    /// With thinking read otherwise than the template suggests.
    #[must_use]
    pub fn with_thinking(self, thinking: Thinking) -> Self {
        Self { thinking, ..self }
    }

    /// What the template makes of thinking.
    pub fn thinking(&self) -> Thinking {
        self.thinking
    }

    /// The first prompt of a conversation: the whole of it, rendered.
    pub fn first(&self, messages: &[Message], tools: Option<&[Value]>) -> Result<Vec<TokenId>, PromptError> {
        let text = self.template.render(Rendering {
            messages,
            tools,
            add_generation_prompt: true,
        })?;
        self.tokenizer.encode(&text)
    }

    /// Tries to continue an answer with a tool call; the error says why that is impossible.
    pub fn try_tool_result(&self) -> Result<(), PromptError> {
        let new = [Message::tool_result("call_0", "y")];
        let continuation = Continuation {
            last_token: None,
            answer: &probe_answer(),
            has_system: true,
            new: &new,
            tools: None,
        };
        self.delta(continuation).map(drop)
    }

    /// What follows recorded tokens: the end of the answer where it was cut before sampling one, what the
    /// template puts after that, the new messages, and the header of the next answer. All of it is context.
    pub fn delta(&self, continuation: Continuation<'_>) -> Result<Vec<TokenId>, PromptError> {
        let text = self.delta_text(continuation)?;
        let ids = self.tokenizer.encode(&text)?;
        // Tokens must not reach across the cut: what comes first is the end token, on its own.
        let (&first, rest) = ids
            .split_first()
            .ok_or(PromptError::NotContinuable("nothing follows an answer"))?;
        if !self.tokenizer.is_stop(first) {
            return Err(PromptError::NotContinuable("its end-of-turn text is not one token"));
        }
        Ok(if continuation.last_token == Some(first) {
            rest.to_vec()
        } else {
            ids
        })
    }

    /// An answer as the policy would have sampled it: what the template renders for it, up to and with its end token.
    pub fn answer(&self, answer: &Message) -> Result<Vec<TokenId>, PromptError> {
        let question = Message::text(Role::User, "?");
        let header = self.template.render(Rendering {
            messages: std::slice::from_ref(&question),
            tools: None,
            add_generation_prompt: true,
        })?;
        let whole = self.template.render(Rendering {
            messages: &[question, answer.clone()],
            tools: None,
            add_generation_prompt: false,
        })?;
        let text = whole.strip_prefix(&header).ok_or(PromptError::NotContinuable(
            "an answer does not begin where the generation prompt ends",
        ))?;
        let mut ids = self.tokenizer.encode(text)?;
        let end = ids
            .iter()
            .position(|&id| self.tokenizer.is_stop(id))
            .ok_or(PromptError::NotContinuable(
                "it puts no end-of-turn token behind an answer",
            ))?;
        ids.truncate(end + 1);
        Ok(ids)
    }

    /// An answer that is written out: its text and the end token, thinking and tool calls as the policy writes them.
    pub fn written(&self, text: &str) -> Result<Vec<TokenId>, PromptError> {
        let mut ids = self.tokenizer.encode(text)?;
        let end = self.answer(&Message::text(Role::Assistant, "."))?;
        ids.extend(end.last());
        Ok(ids)
    }

    /// What the template emits after the answer's end token: context that every continuation begins with.
    pub fn tail(&self, answer: &Message) -> &[TokenId] {
        self.closing(answer).map_or(&[], |closing| &closing.tail)
    }

    /// From the end token of the marked answer on.
    fn delta_text(&self, continuation: Continuation<'_>) -> Result<String, PromptError> {
        let Continuation {
            answer,
            has_system,
            new,
            tools,
            ..
        } = continuation;
        let closing = self.closing(answer).ok_or(PromptError::NotContinuable(
            "it puts no end-of-turn token behind an answer",
        ))?;
        let mut messages = synthetic_prefix(answer, has_system);
        messages.extend_from_slice(new);
        let tools = tools.filter(|_| self.tools_in_delta);
        let text = self.template.render(Rendering {
            messages: &messages,
            tools,
            add_generation_prompt: true,
        })?;
        // What closes the answer must be the same with and without what follows it.
        let behind = behind_mark(&text, closing.marks);
        let after = if let Some(stop) = &closing.stop {
            behind
                .and_then(|behind| self.first_stop_on(behind))
                .filter(|after| after.starts_with(stop))
        } else {
            let alone = self.template.render(Rendering {
                messages: &messages[..messages.len() - new.len()],
                tools,
                add_generation_prompt: false,
            })?;
            let close = behind_mark(&alone, closing.marks).unwrap_or_default();
            let after = behind.and_then(|behind| behind.strip_prefix(close));
            after.filter(|after| self.stop_at_start(after).is_some())
        };
        let after = after.ok_or(PromptError::NotContinuable(
            "it closes an answer differently when more follows",
        ))?;
        // Mistral's puts the system message before the last question. The recorded tokens hold it already.
        let said = new.iter().any(|message| message.content.contains(SYSTEM));
        if has_system && !said && after.contains(SYSTEM) {
            return self.delta_text(Continuation {
                has_system: false,
                ..continuation
            });
        }
        Ok(after.to_owned())
    }

    fn closing(&self, answer: &Message) -> Option<&Closing> {
        self.closings[usize::from(!answer.tool_calls.is_empty())].as_ref()
    }

    /// A text from its first end token on.
    fn first_stop_on<'t>(&self, text: &'t str) -> Option<&'t str> {
        let stops = self.tokenizer.stops().iter();
        let at = stops.filter_map(|stop| text.find(&stop.text)).min()?;
        Some(&text[at..])
    }

    /// The end token with which a text begins.
    fn stop_at_start(&self, text: &str) -> Option<&str> {
        let stops = self.tokenizer.stops().iter();
        stops.map(|stop| stop.text.as_str()).find(|stop| text.starts_with(stop))
    }

    /// How the template closes an answer of this shape, behind which nothing follows.
    fn probe_closing(&self, answer: &Message) -> Option<Closing> {
        let messages = synthetic_prefix(answer, true);
        let rendering = Rendering {
            messages: &messages,
            tools: None,
            add_generation_prompt: false,
        };
        let text = self.template.render(rendering).ok()?;
        let marks = text.matches(MARK).count();
        let behind = behind_mark(&text, marks)?;
        let Some(after) = self.first_stop_on(behind) else {
            return Some(Closing {
                stop: None,
                marks,
                tail: Vec::new(),
            });
        };
        let stop = self.stop_at_start(after)?.to_owned();
        let tail = self.tokenizer.encode(&after[stop.len()..]).ok()?;
        Some(Closing {
            stop: Some(stop),
            marks,
            tail,
        })
    }

    fn probe_tools_in_delta(&self) -> bool {
        let answer = probe_answer();
        let tools = [
            json!({"type": "function", "function": {"name": "probe", "description": "", "parameters": {
            "type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}}}),
        ];
        let new = [Message::tool_result("call_0", "y"), Message::text(Role::User, "z")];
        let render = |tools| {
            self.delta_text(Continuation {
                last_token: None,
                answer: &answer,
                has_system: true,
                new: &new,
                tools,
            })
            .ok()
        };
        match (render(None), render(Some(&tools[..]))) {
            (Some(without), Some(with)) => without != with,
            _ => true,
        }
    }

    fn probe_thinking(&self) -> Thinking {
        if !self.template.source().contains("</think>") {
            return Thinking::None;
        }
        let messages = [Message::text(Role::User, "a")];
        let rendered = self.template.render(Rendering {
            messages: &messages,
            tools: None,
            add_generation_prompt: true,
        });
        match rendered {
            Ok(text) if text.trim_end().ends_with("<think>") => Thinking::Opened,
            _ => Thinking::Tagged,
        }
    }

    fn probe_prefix_stable(&self) -> bool {
        let thinking = Message {
            reasoning_content: Some("w".into()),
            ..Message::text(Role::Assistant, "b")
        };
        let whole = [Message::text(Role::User, "a"), thinking, Message::text(Role::User, "c")];
        let render = |messages, add_generation_prompt| {
            self.template.render(Rendering {
                messages,
                tools: None,
                add_generation_prompt,
            })
        };
        match (render(&whole[..2], false), render(&whole, true)) {
            (Ok(prefix), Ok(whole)) => whole.starts_with(&prefix),
            _ => false,
        }
    }
}

/// What comes behind the last of `marks` marks. New messages may hold the mark too, so those of the prefix are
/// counted.
fn behind_mark(text: &str, marks: usize) -> Option<&str> {
    let (at, mark) = text.match_indices(MARK).nth(marks.checked_sub(1)?)?;
    Some(&text[at + mark.len()..])
}

/// The shortest conversation that ends as the recorded one does: an answer of the same shape, marked.
fn synthetic_prefix(answer: &Message, has_system: bool) -> Vec<Message> {
    let mut messages = Vec::with_capacity(3);
    if has_system {
        messages.push(Message::text(Role::System, SYSTEM));
    }
    messages.push(Message::text(Role::User, "u"));
    let mut marked = Message::text(Role::Assistant, MARK);
    // The ids of the calls are kept, since some templates look for them; of the arguments only a mark.
    let last = answer.tool_calls.len().saturating_sub(1);
    let calls = answer.tool_calls.iter().enumerate().map(|(index, call)| {
        let mark = if index == last { MARK } else { "" };
        ToolCall::new(call.id.clone(), call.function.name.clone(), json!({ "mark": mark }))
    });
    marked.tool_calls = calls.collect();
    messages.push(marked);
    messages
}

fn probe_answer() -> Message {
    let call = ToolCall::new(Some("call_0".to_owned()), "probe", json!({"x": "y"}));
    Message {
        tool_calls: vec![call],
        ..Message::text(Role::Assistant, "a")
    }
}

//! `chat-template`: the tokenizer has a template, and it can say what a tool answered.

use super::{Check, Context, Finding, model};

pub(super) struct ChatTemplate;

impl Check for ChatTemplate {
    fn id(&self) -> &'static str {
        "chat-template"
    }

    fn title(&self) -> &'static str {
        "there is a template that renders tool results"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let policy = &run.config.policy;
        if !model::tokenizer_dir(policy).is_dir() {
            return vec![Finding::skip(self.id(), "there is no tokenizer folder to read")];
        }
        let key = if policy.chat_template.is_some() {
            "policy.chat_template"
        } else if policy.tokenizer.is_some() {
            "policy.tokenizer"
        } else {
            "policy.model"
        };
        match model::chat_template(policy) {
            Err(what) => vec![
                Finding::fatal(self.id(), format!("{what}: a conversation cannot be rendered"))
                    .at(run, key)
                    .help("write a Jinja file as `chat_template` below `[policy]`"),
            ],
            Ok((text, path)) if !text.contains("tool") => vec![
                Finding::fatal(
                    self.id(),
                    format!(
                        "the template of {} never mentions tools: a tool's answer would be lost",
                        path.display()
                    ),
                )
                .at(run, key)
                .help("use a template with tools, as `chat_template` below `[policy]`"),
            ],
            Ok(_) => Vec::new(),
        }
    }
}

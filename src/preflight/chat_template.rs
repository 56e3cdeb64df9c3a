//! `chat-template`: the tokenizer has a template; a tool call, its result and the tools come out of it; and a
//! conversation can be continued under it.

use super::{Check, Context, Finding, model};
use crate::prompt::{self, PromptBuilder};

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
        } else {
            model::tokenizer_key(policy)
        };
        let fatal = |what: String| Finding::fatal(self.id(), what).at(run, key);
        let (_, path) = match model::chat_template(policy) {
            Ok(found) => found,
            Err(what) => {
                return vec![
                    fatal(format!("{what}: a conversation cannot be rendered"))
                        .help("write a Jinja file as `chat_template` below `[policy]`"),
                ];
            }
        };
        let path = path.display();
        let folder = model::tokenizer_dir(policy);
        let template = match prompt::ChatTemplate::load(folder, policy.chat_template.as_deref()) {
            Ok(template) => template,
            Err(error) => return vec![fatal(format!("the template of {path} cannot be compiled: {error}"))],
        };
        if let Some(trouble) = template.tool_trouble() {
            return vec![
                fatal(format!(
                    "the template of {path} cannot render a tool call and its result: {trouble}"
                ))
                .help("use a template with tools, as `chat_template` below `[policy]`"),
            ];
        }
        let mut findings = Vec::new();
        if !template.shows_tools() {
            let what = format!("the template of {path} does not show the tools that an agent offers");
            findings.push(
                Finding::warn(self.id(), what)
                    .at(run, key)
                    .help("fine if the policy knows its tools from training; else use a template with `tools`"),
            );
        }
        // What is wrong with the tokenizer's own files is another check's business.
        if let Ok(builder) = PromptBuilder::load(folder, policy.chat_template.as_deref())
            && let Err(error) = builder.try_tool_result()
        {
            let what =
                format!("after a tool result, every turn would begin a new segment under the template of {path}");
            findings.push(Finding::warn(self.id(), format!("{what}: {error}")).at(run, key));
        }
        findings
    }
}

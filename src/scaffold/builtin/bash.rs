//! The tool `bash`: from a call to the text that the model reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::sandbox::{ExecOutput, ExecRequest, Sandbox, SandboxError};

use super::chat::ToolCall;

/// Characters of a command's output that the model reads, half from the beginning and half from the end.
const OUTPUT_CHARS: usize = 2000;
/// The sandbox keeps the time-out of a command; one that does not answer this long after it is broken.
const GRACE: Duration = Duration::from_secs(30);

/// Runs commands of one episode.
pub(super) struct BashTool<'a> {
    pub(super) sandbox: &'a dyn Sandbox,
    pub(super) env: &'a BTreeMap<String, String>,
    /// Who commands run as; `None` is the image's user.
    pub(super) user: &'a Option<String>,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
}

impl BashTool<'_> {
    /// The content of the tool message that answers `call`: a refused call is told why, and is no failure.
    pub(super) async fn answer(&self, call: &ToolCall) -> Result<String, SandboxError> {
        match command(call) {
            Ok(command) => self.run(command).await,
            Err(refusal) => Ok(refusal),
        }
    }

    async fn run(&self, command: String) -> Result<String, SandboxError> {
        let mut request = ExecRequest::shell(command);
        request.env.clone_from(self.env);
        request.user.clone_from(self.user);
        request.timeout = self
            .timeout
            .min(self.deadline.saturating_duration_since(Instant::now()));
        let bound = request.timeout;
        match tokio::time::timeout(bound + GRACE, self.sandbox.exec(request)).await {
            Ok(output) => Ok(render(&output?, bound)),
            Err(_elapsed) => Err(SandboxError::Exec {
                name: "builtin".to_owned(),
                reason: format!("a command with a time-out of {bound:?} had not ended {GRACE:?} after it"),
            }),
        }
    }
}

/// The command that a call asks for, or what the model is told instead.
fn command(call: &ToolCall) -> Result<String, String> {
    if call.name != "bash" {
        return Err(format!(
            "error: there is no tool `{}`; the only tool is `bash`",
            call.name
        ));
    }
    let arguments: Cow<'_, Value> = match &call.arguments {
        Value::String(text) => Cow::Owned(
            serde_json::from_str(text).map_err(|error| format!("error: the arguments are not JSON: {error}"))?,
        ),
        value => Cow::Borrowed(value),
    };
    match arguments.get("command") {
        Some(Value::String(command)) => Ok(command.clone()),
        Some(_) => Err("error: the argument `command` is not a text".to_owned()),
        None => Err("error: the argument `command` is missing".to_owned()),
    }
}

/// What the model reads of a command.
fn render(output: &ExecOutput, bound: Duration) -> String {
    let text = cut(output.output.trim_end(), output.truncated);
    let text = if text.is_empty() { "(no output)" } else { &text };
    let stopped = if output.timed_out {
        format!("\n[stopped after {} s]", bound.as_secs())
    } else {
        String::new()
    };
    let exit = if output.exit_code == 0 {
        String::new()
    } else {
        format!("\n[exit {}]", output.exit_code)
    };
    format!("{text}{stopped}{exit}")
}

/// The first and the last half of `OUTPUT_CHARS`; `missing` is what the sandbox has left out already.
fn cut(text: &str, missing: u64) -> String {
    let length = text.chars().count();
    if length <= OUTPUT_CHARS {
        return text.to_owned();
    }
    let half = OUTPUT_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    let left_out = (length - OUTPUT_CHARS) as u64 + missing;
    format!("{head}\n[… {left_out} characters left out]\n{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn output(text: &str, exit_code: i32) -> ExecOutput {
        ExecOutput {
            exit_code,
            output: text.to_owned(),
            truncated: 0,
            timed_out: exit_code == 124,
            duration: Duration::ZERO,
        }
    }

    fn call(name: &str, arguments: Value) -> ToolCall {
        ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            arguments,
        }
    }

    #[test]
    fn results_read_as_the_policy_was_taught() {
        let bound = Duration::from_secs(7);
        assert_eq!(render(&output("pass\n", 0), bound), "pass");
        assert_eq!(render(&output("fail\n", 1), bound), "fail\n[exit 1]");
        assert_eq!(render(&output(" \n", 2), bound), "(no output)\n[exit 2]");
        assert_eq!(render(&output("x", 124), bound), "x\n[stopped after 7 s]\n[exit 124]");
    }

    #[test]
    fn long_output_keeps_its_ends() {
        let text = format!("{}{}{}", "é".repeat(1000), "m".repeat(5), "z".repeat(1000));
        let rendered = render(&output(&text, 0), Duration::ZERO);
        assert_eq!(
            rendered,
            format!("{}\n[… 5 characters left out]\n{}", "é".repeat(1000), "z".repeat(1000))
        );
        assert_eq!(cut(&"a".repeat(2000), 0).len(), 2000);
    }

    #[test]
    fn arguments_come_as_text_or_as_an_object() {
        assert_eq!(
            command(&call("bash", json!("{\"command\": \"ls\"}"))).as_deref(),
            Ok("ls")
        );
        assert_eq!(command(&call("bash", json!({"command": "ls"}))).as_deref(), Ok("ls"));
    }

    #[test]
    fn a_refused_call_is_told_why() {
        let refusal = |name, arguments| command(&call(name, arguments)).unwrap_err();
        assert!(refusal("python", json!({})).contains("no tool `python`"));
        assert!(refusal("bash", json!("{\"command\": ")).contains("not JSON"));
        assert!(refusal("bash", json!({"cmd": "ls"})).contains("`command` is missing"));
        assert!(refusal("bash", json!({"command": 3})).contains("not a text"));
    }
}

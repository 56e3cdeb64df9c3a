//! `mini-swe-agent`: Chat Completions with a tool `bash`. Seen with 2.4.

use super::adapter::{Adapter, Endpoint, Launch, env, words};

pub(crate) struct MiniSweAgent;

impl Adapter for MiniSweAgent {
    fn name(&self) -> &'static str {
        "mini-swe-agent"
    }

    fn program(&self) -> &'static str {
        "mini"
    }

    fn version_args(&self) -> Option<&'static [&'static str]> {
        // It tells its version above any help.
        Some(&["--help"])
    }

    fn install(&self) -> &'static str {
        "pip install mini-swe-agent"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let mut argv = words(&["mini", "-c", "mini.yaml"]);
        for setting in [
            format!("model.model_kwargs.api_base={}", endpoint.v1()),
            format!("agent.step_limit={}", endpoint.max_turns),
        ] {
            argv.extend(["-c".to_owned(), setting]);
        }
        let model = format!("openai/{}", endpoint.model);
        let trajectory = format!("{}/traj.json", endpoint.logs);
        argv.extend(words(&[
            "-m",
            &model,
            "-y",
            "--exit-immediately",
            "-o",
            &trajectory,
            "-t",
            endpoint.instruction,
        ]));
        Launch {
            argv,
            env: env([
                ("OPENAI_API_KEY", endpoint.token.to_owned()),
                ("MSWEA_CONFIGURED", "true".to_owned()),
                // The policy has no price.
                ("MSWEA_COST_TRACKING", "ignore_errors".to_owned()),
                ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
            ]),
            ..Launch::default()
        }
    }
}

//! `balance`: keys of a pool that has none of what they are about.

use super::{Check, Context, Finding};
use crate::config::{BalanceSection, EngineKind, SessionScheduler, WeightSync};

pub(super) struct Balance;

/// Keys that say how turns are held, and the one scheduler that looks at them; `None`: each does.
const HOLDING: [(&str, Option<SessionScheduler>); 8] = [
    ("balance.capacity", None),
    ("balance.max_hold", None),
    ("balance.idle_ttl", None),
    ("balance.lease", Some(SessionScheduler::Lease)),
    ("balance.tax", Some(SessionScheduler::Lease)),
    ("balance.high_watermark", Some(SessionScheduler::Watermark)),
    ("balance.hit_threshold", Some(SessionScheduler::Watermark)),
    ("balance.idle_grace", Some(SessionScheduler::Watermark)),
];

impl Check for Balance {
    fn id(&self) -> &'static str {
        "balance"
    }

    fn title(&self) -> &'static str {
        "what is said of replicas has an effect"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        let config = &context.run.config;
        let plain = !config.engine.kind.is_remote() && config.balance == BalanceSection::default();
        plain.then_some("the engine is in this process, and no turn is held: there is nothing to balance")
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        if !context.purpose.samples() {
            return Vec::new();
        }
        let (engine, balance) = (&run.config.engine, &run.config.balance);
        let mut found = Vec::new();
        let mut fatal = |text: String, key: &str, help: &str| {
            found.push(Finding::fatal(self.id(), text).at(run, key).help(help));
        };
        for (key, of) in HOLDING.iter().filter(|(key, _)| run.location(key).is_some()) {
            let is_of = of.is_none_or(|of| of == balance.scheduler);
            if balance.scheduler == SessionScheduler::Off {
                fatal(
                    format!("{key} without balance.scheduler: no turn is held, and the key has no effect"),
                    key,
                    "write `scheduler = \"lease\"` below `[balance]`, or take the key out",
                );
            } else if !is_of {
                fatal(
                    format!("{key} has no effect: balance.scheduler is another one than it is about"),
                    key,
                    "take the key out",
                );
            }
        }
        if balance.scheduler == SessionScheduler::Watermark && engine.kind.is_remote() {
            fatal(
                "balance.scheduler = \"watermark\": servers do not say what they have cached of a prompt, by which it decides"
                    .to_owned(),
                "balance.scheduler",
                "write `scheduler = \"lease\"`, which counts for itself what fits",
            );
        }
        let has_cache = !matches!(engine.kind, EngineKind::Replay | EngineKind::Openai);
        if balance.scheduler != SessionScheduler::Off && !has_cache {
            fatal(
                "balance.scheduler: recordings and hosted APIs have no cache that turns could wait for".to_owned(),
                "balance.scheduler",
                "take the key out, or sample from `embedded`, `vllm` or `sglang`",
            );
        }
        let rolls = engine.weight_sync == WeightSync::Rolling;
        if rolls && !engine.kind.is_remote() {
            fatal(
                "engine.weight_sync = \"rolling\": engine.kind says that there are no servers to give weights to"
                    .to_owned(),
                "engine.weight_sync",
                "take the key out, or sample from `vllm` or `sglang`",
            );
        }
        let alone = !engine.kind.is_remote() || engine.endpoints.len() < 2;
        let chooses = balance.policy != BalanceSection::default().policy;
        let idle = [
            ("balance.policy", alone && chooses),
            ("engine.weight_sync", alone && rolls && engine.kind.is_remote()),
        ];
        for (key, _) in idle.into_iter().filter(|(_, is_idle)| *is_idle) {
            let text = format!("{key} has no effect: it is about several servers, and one samples here");
            found.push(
                Finding::warn(self.id(), text)
                    .at(run, key)
                    .help("name the others in `engine.endpoints`, or take the key out"),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight::fixture::report;
    use crate::preflight::{Purpose, Status};

    #[test]
    fn keys_without_effect_are_found_and_named() {
        let servers = "engine.kind=\"vllm\" engine.endpoints=[\"http://a:1\",\"http://b:1\"]";
        let server = "engine.kind=\"vllm\" engine.endpoints=[\"http://a:1\"]";
        for (changes, status, key) in [
            ("balance.lease=\"5s\"", Status::Fatal, "balance.lease"),
            ("balance.idle_ttl=\"5s\"", Status::Fatal, "balance.idle_ttl"),
            (
                "engine.kind=\"replay\" balance.scheduler=\"lease\"",
                Status::Fatal,
                "balance.scheduler",
            ),
            (
                "balance.scheduler=\"watermark\" balance.tax=0.1",
                Status::Fatal,
                "balance.tax",
            ),
            (
                "balance.scheduler=\"lease\" balance.idle_grace=\"9s\"",
                Status::Fatal,
                "balance.idle_grace",
            ),
            (
                &format!("balance.scheduler=\"watermark\" {servers}"),
                Status::Fatal,
                "balance.scheduler",
            ),
            ("engine.weight_sync=\"rolling\"", Status::Fatal, "engine.weight_sync"),
            (
                &format!("engine.weight_sync=\"rolling\" {server}"),
                Status::Warn,
                "engine.weight_sync",
            ),
            ("balance.policy=\"least-load\"", Status::Warn, "balance.policy"),
        ] {
            let report = report(changes, Purpose::Whole);
            let found = report.findings.iter().filter(|finding| finding.check == "balance");
            let found: Vec<_> = found.map(|finding| (finding.status, finding.key.as_deref())).collect();
            assert_eq!(found, [(status, Some(key))], "{changes}: {:?}", report.findings);
        }
        for changes in [
            &format!("engine.weight_sync=\"rolling\" balance.policy=\"priced\" {servers}"),
            "balance.scheduler=\"watermark\" balance.max_hold=\"1m\" balance.hit_threshold=0.5",
            "balance.scheduler=\"lease\" balance.tax=0.1 balance.capacity=100",
        ] {
            let report = report(changes, Purpose::Whole);
            let found = report.findings.iter().find(|finding| finding.check == "balance");
            assert_eq!(found.map(|finding| finding.status), Some(Status::Pass), "{changes}");
        }
    }
}

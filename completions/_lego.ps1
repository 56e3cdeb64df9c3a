
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'lego' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'lego'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'lego' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('prepare', 'prepare', [CompletionResultType]::ParameterValue, 'Turn issues and datasets into task folders and an index')
            [CompletionResult]::new('preflight', 'preflight', [CompletionResultType]::ParameterValue, 'Check whether a run may start')
            [CompletionResult]::new('serve-proxy', 'serve-proxy', [CompletionResultType]::ParameterValue, 'Serve an OpenAI and Anthropic API in front of the policy and record exact tokens')
            [CompletionResult]::new('balance', 'balance', [CompletionResultType]::ParameterValue, 'Serve several engines as one, each session where its cache is; or say what such a pool would do under a load')
            [CompletionResult]::new('rollout', 'rollout', [CompletionResultType]::ParameterValue, 'Sample episodes from the policy and write them as Parquet shards')
            [CompletionResult]::new('train', 'train', [CompletionResultType]::ParameterValue, 'Train the policy: rollouts, update, new weights, step by step')
            [CompletionResult]::new('dashboard', 'dashboard', [CompletionResultType]::ParameterValue, 'Show runs in a browser, live')
            [CompletionResult]::new('diagnose', 'diagnose', [CompletionResultType]::ParameterValue, 'Say what is wrong with a run, on evidence')
            [CompletionResult]::new('generate', 'generate', [CompletionResultType]::ParameterValue, 'Print a generated file')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;prepare' {
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'Folder for the tasks')
            [CompletionResult]::new('--out', '--out', [CompletionResultType]::ParameterName, 'Folder for the tasks')
            [CompletionResult]::new('--index', '--index', [CompletionResultType]::ParameterName, 'The index of all tasks in the folder; absent: `index.parquet` in it')
            [CompletionResult]::new('--stage', '--stage', [CompletionResultType]::ParameterName, 'What is done, in this order')
            [CompletionResult]::new('--family', '--family', [CompletionResultType]::ParameterName, 'Read all records as this family, whatever their fields')
            [CompletionResult]::new('--template', '--template', [CompletionResultType]::ParameterName, 'What agents are told: a file with {problem_statement}, {hints}, {repo}, {workdir} and {version}')
            [CompletionResult]::new('--allow-leaks', '--allow-leaks', [CompletionResultType]::ParameterName, 'What the text of a record may give away of its solution: `patch`, `commit`, `tests`')
            [CompletionResult]::new('--repo-cache', '--repo-cache', [CompletionResultType]::ParameterName, 'Folder with repositories (mirrors, clones, bundles): tasks then hold their files, and nothing is cloned')
            [CompletionResult]::new('--base-image', '--base-image', [CompletionResultType]::ParameterName, 'Base image for a language, in place of the usual and of the records'' own; can be repeated')
            [CompletionResult]::new('--network', '--network', [CompletionResultType]::ParameterName, 'What the tasks reach while they are worked on and judged')
            [CompletionResult]::new('--where', '--where', [CompletionResultType]::ParameterName, 'Keep tasks that fit, such as `pass_rate > 0 && pass_rate < 1`')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Leave out tasks of these ids, one a line')
            [CompletionResult]::new('--exclude-index', '--exclude-index', [CompletionResultType]::ParameterName, 'Leave out tasks of this index, and those that resemble one of it')
            [CompletionResult]::new('--resemblance', '--resemblance', [CompletionResultType]::ParameterName, 'Share of common word sequences from which tasks resemble each other')
            [CompletionResult]::new('--split', '--split', [CompletionResultType]::ParameterName, 'A split of a share of the tasks, by whole repositories, or of the ids in a file; the rest is `train`; can be repeated')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Decides which repositories a share takes')
            [CompletionResult]::new('--push', '--push', [CompletionResultType]::ParameterName, 'Push what `build` builds to this registry, as `REGISTRY/<task id, lower-cased>`: `sandbox.registry = "REGISTRY/"` finds it')
            [CompletionResult]::new('--run', '--run', [CompletionResultType]::ParameterName, 'Run config with sandboxes, agent and policy')
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set a key above it, such as `--set sandbox.timeouts.verifier=5m`; can be repeated')
            [CompletionResult]::new('--backend', '--backend', [CompletionResultType]::ParameterName, 'What provides the sandboxes (`sandbox.backend`)')
            [CompletionResult]::new('-j', '-j', [CompletionResultType]::ParameterName, 'Trials at a time (`sandbox.concurrency`); tasks whose images `build` makes at a time, 4 where it is absent')
            [CompletionResult]::new('--jobs', '--jobs', [CompletionResultType]::ParameterName, 'Trials at a time (`sandbox.concurrency`); tasks whose images `build` makes at a time, 4 where it is absent')
            [CompletionResult]::new('--repeats', '--repeats', [CompletionResultType]::ParameterName, 'Times that `validate` tries a task without its solution, and with it')
            [CompletionResult]::new('--attempts', '--attempts', [CompletionResultType]::ParameterName, 'Times that `filter` has the policy try a task')
            [CompletionResult]::new('--policy', '--policy', [CompletionResultType]::ParameterName, 'The policy that `filter` asks: the address of an API, a folder, or `hf:org/name`; absent: what the run config says')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--overwrite', '--overwrite', [CompletionResultType]::ParameterName, 'Write over task folders that exist')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Exit with 1 if any record was rejected, or any task is none')
            [CompletionResult]::new('--hints', '--hints', [CompletionResultType]::ParameterName, 'Show agents the hints of the records')
            [CompletionResult]::new('--offline', '--offline', [CompletionResultType]::ParameterName, 'Reject records whose repository neither the cache nor an image holds')
            [CompletionResult]::new('--keep-invalid', '--keep-invalid', [CompletionResultType]::ParameterName, 'Keep tasks that validation refused')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('index', 'index', [CompletionResultType]::ParameterValue, 'Write an index of task folders and of other indexes')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;prepare;index' {
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'The index')
            [CompletionResult]::new('--out', '--out', [CompletionResultType]::ParameterName, 'The index')
            [CompletionResult]::new('--combine', '--combine', [CompletionResultType]::ParameterName, 'How several become one')
            [CompletionResult]::new('--where', '--where', [CompletionResultType]::ParameterName, 'Keep tasks that fit, such as `pass_rate > 0 && pass_rate < 1`')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Leave out tasks of these ids, one a line')
            [CompletionResult]::new('--exclude-index', '--exclude-index', [CompletionResultType]::ParameterName, 'Leave out tasks of this index, and those that resemble one of it')
            [CompletionResult]::new('--resemblance', '--resemblance', [CompletionResultType]::ParameterName, 'Share of common word sequences from which tasks resemble each other')
            [CompletionResult]::new('--split', '--split', [CompletionResultType]::ParameterName, 'A split of a share of the tasks, by whole repositories, or of the ids in a file; the rest is `train`; can be repeated')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Decides which repositories a share takes')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--keep-invalid', '--keep-invalid', [CompletionResultType]::ParameterName, 'Keep tasks that validation refused')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;prepare;help' {
            [CompletionResult]::new('index', 'index', [CompletionResultType]::ParameterValue, 'Write an index of task folders and of other indexes')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;prepare;help;index' {
            break
        }
        'lego;prepare;help;help' {
            break
        }
        'lego;preflight' {
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated')
            [CompletionResult]::new('--only', '--only', [CompletionResultType]::ParameterName, 'Run only these checks')
            [CompletionResult]::new('--explain', '--explain', [CompletionResultType]::ParameterName, 'Print the page of a check: what it looks at, why it matters, what to write instead; and stop')
            [CompletionResult]::new('--import', '--import', [CompletionResultType]::ParameterName, 'Turn a file of variables (`NAME=value`) of another system into a run.toml on stdout, and stop')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--static', '--static', [CompletionResultType]::ParameterName, 'Leave out the live probe: config and local files alone, no network')
            [CompletionResult]::new('--show-config', '--show-config', [CompletionResultType]::ParameterName, 'Print the whole config with the origin of each value, and stop; as TOML, or with --json or --format as rows')
            [CompletionResult]::new('--init', '--init', [CompletionResultType]::ParameterName, 'Write a commented starter run.toml, and stop')
            [CompletionResult]::new('--reference', '--reference', [CompletionResultType]::ParameterName, 'Print every key of run.toml with its type, default and meaning, and stop')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The same as `--format json`')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;serve-proxy' {
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated')
            [CompletionResult]::new('--upstream', '--upstream', [CompletionResultType]::ParameterName, 'Hosted API to pass calls on to, which gives no token ids; needs no run config (`engine.kind = "openai"`)')
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Address to listen on; port 0 picks a free one (`proxy.listen`)')
            [CompletionResult]::new('--capture', '--capture', [CompletionResultType]::ParameterName, 'Write finished sessions as shards into this folder, and the log of every session below its `calls`')
            [CompletionResult]::new('--tokenizer', '--tokenizer', [CompletionResultType]::ParameterName, 'Folder with `tokenizer.json` and `tokenizer_config.json` (`policy.tokenizer`)')
            [CompletionResult]::new('--admin-token', '--admin-token', [CompletionResultType]::ParameterName, 'Opens the admin routes; a random one where it is not set or empty')
            [CompletionResult]::new('--replay', '--replay', [CompletionResultType]::ParameterName, 'Run a recorded session through today''s parsers and capture, print what changes, and stop; `-` reads stdin')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--anonymous', '--anonymous', [CompletionResultType]::ParameterName, 'Give clients that bring no session one of their own, named as their URL names it')
            [CompletionResult]::new('--print-env', '--print-env', [CompletionResultType]::ParameterName, 'Print the variables that point a client at it, and stay in the background')
            [CompletionResult]::new('--background', '--background', [CompletionResultType]::ParameterName, 'Whether this is the process in the background')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;balance' {
            [CompletionResult]::new('--replica', '--replica', [CompletionResultType]::ParameterName, 'A replica to serve; can be repeated')
            [CompletionResult]::new('--replicas', '--replicas', [CompletionResultType]::ParameterName, 'With --simulate, how many replicas; else a file that names the replicas to serve, one a line, or `-` for stdin')
            [CompletionResult]::new('--discover', '--discover', [CompletionResultType]::ParameterName, 'Replicas by their labels in a Kubernetes, as they come and go, such as kubernetes:app=vllm or kubernetes:NAMESPACE/app=vllm@8000')
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Address to listen on; port 0 picks a free one')
            [CompletionResult]::new('--policy', '--policy', [CompletionResultType]::ParameterName, 'Which replica serves a turn: sticky, priced, prefix, least-load, round-robin, consistent-hash (`balance.policy`). With --simulate, ways to compare: sticky, priced, round-robin, cap, cap:N, lease, lease:SECONDS, watermark')
            [CompletionResult]::new('--scheduler', '--scheduler', [CompletionResultType]::ParameterName, 'When a turn is sent: off, lease (`balance.scheduler`)')
            [CompletionResult]::new('--lease', '--lease', [CompletionResultType]::ParameterName, 'How long an idle session keeps its place although others wait (`balance.lease`)')
            [CompletionResult]::new('--max-hold', '--max-hold', [CompletionResultType]::ParameterName, 'How long a turn is held before it may take any idle session''s place (`balance.max_hold`)')
            [CompletionResult]::new('--capacity', '--capacity', [CompletionResultType]::ParameterName, 'Tokens that one replica''s cache holds, where its metrics do not tell (`balance.capacity`)')
            [CompletionResult]::new('--session-header', '--session-header', [CompletionResultType]::ParameterName, 'Header that names a session, before those that are known')
            [CompletionResult]::new('--health-path', '--health-path', [CompletionResultType]::ParameterName, 'Path that replicas are asked for whether they are well')
            [CompletionResult]::new('--first-byte', '--first-byte', [CompletionResultType]::ParameterName, 'Longest wait for the first byte of an answer')
            [CompletionResult]::new('--idle', '--idle', [CompletionResultType]::ParameterName, 'Longest wait for the next byte of a stream')
            [CompletionResult]::new('--most-requests', '--most-requests', [CompletionResultType]::ParameterName, 'Requests at a time; more are told to come again')
            [CompletionResult]::new('--ca-file', '--ca-file', [CompletionResultType]::ParameterName, 'Certificates (PEM) of authorities that sign those of https replicas, beside the system''s own (`engine.ca_file`)')
            [CompletionResult]::new('--admin-token', '--admin-token', [CompletionResultType]::ParameterName, 'Opens the routes that change something; without one they answer this machine alone')
            [CompletionResult]::new('--status', '--status', [CompletionResultType]::ParameterName, 'Print the replicas of a running balancer')
            [CompletionResult]::new('--simulate', '--simulate', [CompletionResultType]::ParameterName, 'Model and accelerator to simulate: moe30b, dense32b')
            [CompletionResult]::new('--sessions', '--sessions', [CompletionResultType]::ParameterName, 'Sessions at a time, each followed by another')
            [CompletionResult]::new('--batch', '--batch', [CompletionResultType]::ParameterName, 'Sessions in all: the time to the end of the last counts')
            [CompletionResult]::new('--shards', '--shards', [CompletionResultType]::ParameterName, 'Play the sessions of these shards, such as RUN/rollouts, instead of drawn ones')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Makes the sessions, or their order')
            [CompletionResult]::new('--svg', '--svg', [CompletionResultType]::ParameterName, 'Draw the throughput against the number of sessions, up to --sessions, into this file')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--tell-reason', '--tell-reason', [CompletionResultType]::ParameterName, 'Answer with the headers x-lego-replica and x-lego-reason')
            [CompletionResult]::new('--keep-path', '--keep-path', [CompletionResultType]::ParameterName, 'Ask replicas for /sess/NAME/… where clients do: those that are `lego serve-proxy` themselves')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Print them every two seconds')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;rollout' {
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated')
            [CompletionResult]::new('--tasks', '--tasks', [CompletionResultType]::ParameterName, 'Tasks: an index, a JSONL of inline records, or ids one a line; `-` is ids on stdin (`data.train`)')
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'Folder for the shards and the trials')
            [CompletionResult]::new('--out', '--out', [CompletionResultType]::ParameterName, 'Folder for the shards and the trials')
            [CompletionResult]::new('--scaffold', '--scaffold', [CompletionResultType]::ParameterName, 'The agent (`scaffold.name`)')
            [CompletionResult]::new('--backend', '--backend', [CompletionResultType]::ParameterName, 'What provides the sandboxes (`sandbox.backend`)')
            [CompletionResult]::new('--group-size', '--group-size', [CompletionResultType]::ParameterName, 'Episodes of a task (`rollout.group_size`; with `--eval`, `eval.samples`)')
            [CompletionResult]::new('-j', '-j', [CompletionResultType]::ParameterName, 'Trials at a time (`sandbox.concurrency`)')
            [CompletionResult]::new('--jobs', '--jobs', [CompletionResultType]::ParameterName, 'Trials at a time (`sandbox.concurrency`)')
            [CompletionResult]::new('--max-failures', '--max-failures', [CompletionResultType]::ParameterName, 'Stop and exit with 1 once more trials than this had no valid reward')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Sample for the trainer that publishes at this place, a folder or a bucket''s URL, until it ends')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name among those that follow; one that is started again under its name goes on with its groups at once')
            [CompletionResult]::new('--print', '--print', [CompletionResultType]::ParameterName, 'Print only this: the paths of finished shards, one a line')
            [CompletionResult]::new('--predictions', '--predictions', [CompletionResultType]::ParameterName, 'Write what the agents left as predictions: `instance_id`, `model_name_or_path`, `model_patch`, one JSON object a line; of several samples of a task the first that left anything')
            [CompletionResult]::new('--regrade', '--regrade', [CompletionResultType]::ParameterName, 'Judge what the agents of this rollout left again, all its samples, without a model; -o is the folder for the new results')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--fresh', '--fresh', [CompletionResultType]::ParameterName, 'Start anew instead of continuing what is in the output folder')
            [CompletionResult]::new('--eval', '--eval', [CompletionResultType]::ParameterName, 'Validate: print pass@k instead of one row a trial; shards and trials only with -o. Of all trials that ended (`landed`) those with a valid reward are scored (`trials`), and the others are told (`infra`)')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Print what would run, as data, and stop')
            [CompletionResult]::new('--reap', '--reap', [CompletionResultType]::ParameterName, 'Remove sandboxes that earlier runs left behind, and stop; a cluster''s where run.toml or `--backend` names it')
            [CompletionResult]::new('--purge-infra', '--purge-infra', [CompletionResultType]::ParameterName, 'Name results that failed by infrastructure; with `--confirm` they do not count any more, and the next start runs their trials again')
            [CompletionResult]::new('--confirm', '--confirm', [CompletionResultType]::ParameterName, 'Do what `--purge-infra` names')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;train' {
            [CompletionResult]::new('--set', '--set', [CompletionResultType]::ParameterName, 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated')
            [CompletionResult]::new('--shards', '--shards', [CompletionResultType]::ParameterName, 'Train from these shards alone: files, folders, or `-` for paths on stdin, one a line; can be repeated')
            [CompletionResult]::new('--steps', '--steps', [CompletionResultType]::ParameterName, 'Steps of the run (`train.steps`)')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Where to compute (`policy.device`): cpu, cuda or cuda:N')
            [CompletionResult]::new('--publish', '--publish', [CompletionResultType]::ParameterName, 'Train on what `lego rollout --follow` samples, and publish weights there: a folder, or a bucket''s URL')
            [CompletionResult]::new('--durations', '--durations', [CompletionResultType]::ParameterName, 'With `--plan`: the run directory to measure, or `trial=SECONDS,update=SECONDS,publish=SECONDS` (the run''s own directory)')
            [CompletionResult]::new('--export', '--export', [CompletionResultType]::ParameterName, 'Write a checkpoint of the run as a plain Hugging Face folder, print its files, and stop')
            [CompletionResult]::new('--checkpoint', '--checkpoint', [CompletionResultType]::ParameterName, 'With `--export`: `latest`, `best` by the first validation set, or a step')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--fresh', '--fresh', [CompletionResultType]::ParameterName, 'Start anew: the run directory must be empty or is moved aside')
            [CompletionResult]::new('--async', '--async', [CompletionResultType]::ParameterName, 'Rollouts and updates side by side (`async.enabled`)')
            [CompletionResult]::new('--plan', '--plan', [CompletionResultType]::ParameterName, 'Print what settings of `[async]` would come to by an earlier run''s durations, and stop')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Print what would run, as data, and stop')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;dashboard' {
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Address to listen on; the first free port from 127.0.0.1:8090 to 8095 where none is named')
            [CompletionResult]::new('--token-file', '--token-file', [CompletionResultType]::ParameterName, 'File with the token that a browser must know; made up where one is needed and none is named')
            [CompletionResult]::new('--base-path', '--base-path', [CompletionResultType]::ParameterName, 'Path below which a reverse proxy shows it')
            [CompletionResult]::new('--export', '--export', [CompletionResultType]::ParameterName, 'Write one self-contained file instead of serving; `-` is stdout')
            [CompletionResult]::new('--run', '--run', [CompletionResultType]::ParameterName, 'The runs to export; all where none is named')
            [CompletionResult]::new('--tunnel', '--tunnel', [CompletionResultType]::ParameterName, 'Start an installed tunnel program and print its URL: `cloudflared`, or a command with `{port}` (words, no shell)')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--open', '--open', [CompletionResultType]::ParameterName, 'Open a browser')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lego;diagnose' {
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin')
            [CompletionResult]::new('shards', 'shards', [CompletionResultType]::ParameterValue, 'A folder of shards, or the run directory that holds it')
            [CompletionResult]::new('trial', 'trial', [CompletionResultType]::ParameterValue, 'The folder of one trial')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'What a check or signature means')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'All signatures')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;diagnose;run' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;diagnose;shards' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;diagnose;trial' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;diagnose;explain' {
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;diagnose;list' {
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere')
            [CompletionResult]::new('--since', '--since', [CompletionResultType]::ParameterName, 'Look at steps from this one on')
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Exit with 1 if a signature matched, and with 4 if there was no step to judge')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;diagnose;help' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin')
            [CompletionResult]::new('shards', 'shards', [CompletionResultType]::ParameterValue, 'A folder of shards, or the run directory that holds it')
            [CompletionResult]::new('trial', 'trial', [CompletionResultType]::ParameterValue, 'The folder of one trial')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'What a check or signature means')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'All signatures')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;diagnose;help;run' {
            break
        }
        'lego;diagnose;help;shards' {
            break
        }
        'lego;diagnose;help;trial' {
            break
        }
        'lego;diagnose;help;explain' {
            break
        }
        'lego;diagnose;help;list' {
            break
        }
        'lego;diagnose;help;help' {
            break
        }
        'lego;generate' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'A completion script')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'A man page')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;generate;completions' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;generate;man' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'When to colour')
            [CompletionResult]::new('--log-format', '--log-format', [CompletionResultType]::ParameterName, 'How log lines are written')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing but errors')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Log more; -vv more still')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no progress bars')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lego;generate;help' {
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'A completion script')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'A man page')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;generate;help;completions' {
            break
        }
        'lego;generate;help;man' {
            break
        }
        'lego;generate;help;help' {
            break
        }
        'lego;help' {
            [CompletionResult]::new('prepare', 'prepare', [CompletionResultType]::ParameterValue, 'Turn issues and datasets into task folders and an index')
            [CompletionResult]::new('preflight', 'preflight', [CompletionResultType]::ParameterValue, 'Check whether a run may start')
            [CompletionResult]::new('serve-proxy', 'serve-proxy', [CompletionResultType]::ParameterValue, 'Serve an OpenAI and Anthropic API in front of the policy and record exact tokens')
            [CompletionResult]::new('balance', 'balance', [CompletionResultType]::ParameterValue, 'Serve several engines as one, each session where its cache is; or say what such a pool would do under a load')
            [CompletionResult]::new('rollout', 'rollout', [CompletionResultType]::ParameterValue, 'Sample episodes from the policy and write them as Parquet shards')
            [CompletionResult]::new('train', 'train', [CompletionResultType]::ParameterValue, 'Train the policy: rollouts, update, new weights, step by step')
            [CompletionResult]::new('dashboard', 'dashboard', [CompletionResultType]::ParameterValue, 'Show runs in a browser, live')
            [CompletionResult]::new('diagnose', 'diagnose', [CompletionResultType]::ParameterValue, 'Say what is wrong with a run, on evidence')
            [CompletionResult]::new('generate', 'generate', [CompletionResultType]::ParameterValue, 'Print a generated file')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lego;help;prepare' {
            [CompletionResult]::new('index', 'index', [CompletionResultType]::ParameterValue, 'Write an index of task folders and of other indexes')
            break
        }
        'lego;help;prepare;index' {
            break
        }
        'lego;help;preflight' {
            break
        }
        'lego;help;serve-proxy' {
            break
        }
        'lego;help;balance' {
            break
        }
        'lego;help;rollout' {
            break
        }
        'lego;help;train' {
            break
        }
        'lego;help;dashboard' {
            break
        }
        'lego;help;diagnose' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin')
            [CompletionResult]::new('shards', 'shards', [CompletionResultType]::ParameterValue, 'A folder of shards, or the run directory that holds it')
            [CompletionResult]::new('trial', 'trial', [CompletionResultType]::ParameterValue, 'The folder of one trial')
            [CompletionResult]::new('explain', 'explain', [CompletionResultType]::ParameterValue, 'What a check or signature means')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'All signatures')
            break
        }
        'lego;help;diagnose;run' {
            break
        }
        'lego;help;diagnose;shards' {
            break
        }
        'lego;help;diagnose;trial' {
            break
        }
        'lego;help;diagnose;explain' {
            break
        }
        'lego;help;diagnose;list' {
            break
        }
        'lego;help;generate' {
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'A completion script')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'A man page')
            break
        }
        'lego;help;generate;completions' {
            break
        }
        'lego;help;generate;man' {
            break
        }
        'lego;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}

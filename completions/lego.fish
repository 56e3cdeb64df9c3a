# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_lego_global_optspecs
    string join \n color= q/quiet v/verbose no-progress log-format= h/help V/version
end

function __fish_lego_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_lego_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_lego_using_subcommand
    set -l cmd (__fish_lego_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c lego -n "__fish_lego_needs_command" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_needs_command" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_needs_command" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_needs_command" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_needs_command" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_needs_command" -s V -l version -d 'Print version'
complete -c lego -n "__fish_lego_needs_command" -f -a "prepare" -d 'Turn issues and datasets into task folders and an index'
complete -c lego -n "__fish_lego_needs_command" -f -a "preflight" -d 'Check whether a run may start'
complete -c lego -n "__fish_lego_needs_command" -f -a "serve-proxy" -d 'Serve an OpenAI and Anthropic API in front of the policy and record exact tokens'
complete -c lego -n "__fish_lego_needs_command" -f -a "balance" -d 'Serve several engines as one, each session where its cache is; or say what such a pool would do under a load'
complete -c lego -n "__fish_lego_needs_command" -f -a "rollout" -d 'Sample episodes from the policy and write them as Parquet shards'
complete -c lego -n "__fish_lego_needs_command" -f -a "train" -d 'Train the policy: rollouts, update, new weights, step by step'
complete -c lego -n "__fish_lego_needs_command" -f -a "dashboard" -d 'Show runs in a browser, live'
complete -c lego -n "__fish_lego_needs_command" -f -a "diagnose" -d 'Say what is wrong with a run, on evidence'
complete -c lego -n "__fish_lego_needs_command" -f -a "generate" -d 'Print a generated file'
complete -c lego -n "__fish_lego_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -s o -l out -d 'Folder for the tasks' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l index -d 'The index of all tasks in the folder; absent: `index.parquet` in it' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l stage -d 'What is done, in this order' -r -f -a "convert\t'Records to task folders'
index\t'Task folders to an index'
build\t'Makes the images of all tasks'
validate\t'Tries every task without its solution and with it'
filter\t'Has a policy try every task'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l family -d 'Read all records as this family, whatever their fields' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l template -d 'What agents are told: a file with {problem_statement}, {hints}, {repo}, {workdir} and {version}' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l allow-leaks -d 'What the text of a record may give away of its solution: `patch`, `commit`, `tests`' -r -f -a "patch\t'Lines of the solution'
commit\t'The commit that holds it'
tests\t'Names of tests that are to pass'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l repo-cache -d 'Folder with repositories (mirrors, clones, bundles): tasks then hold their files, and nothing is cloned' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l base-image -d 'Base image for a language, in place of the usual and of the records\' own; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l network -d 'What the tasks reach while they are worked on and judged' -r -f -a "none\t'Nothing but the model'
public\t'Everything'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l where -d 'Keep tasks that fit, such as `pass_rate > 0 && pass_rate < 1`' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l exclude -d 'Leave out tasks of these ids, one a line' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l exclude-index -d 'Leave out tasks of this index, and those that resemble one of it' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l resemblance -d 'Share of common word sequences from which tasks resemble each other' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l split -d 'A split of a share of the tasks, by whole repositories, or of the ids in a file; the rest is `train`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l seed -d 'Decides which repositories a share takes' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l push -d 'Push what `build` builds to this registry, as `REGISTRY/<task id, lower-cased>`: `sandbox.registry = "REGISTRY/"` finds it' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l run -d 'Run config with sandboxes, agent and policy' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l set -d 'Set a key above it, such as `--set sandbox.timeouts.verifier=5m`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l backend -d 'What provides the sandboxes (`sandbox.backend`)' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -s j -l jobs -d 'Trials at a time (`sandbox.concurrency`); tasks whose images `build` makes at a time, 4 where it is absent' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l repeats -d 'Times that `validate` tries a task without its solution, and with it' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l attempts -d 'Times that `filter` has the policy try a task' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l policy -d 'The policy that `filter` asks: the address of an API, a folder, or `hf:org/name`; absent: what the run config says' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l overwrite -d 'Write over task folders that exist'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l strict -d 'Exit with 1 if any record was rejected, or any task is none'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l hints -d 'Show agents the hints of the records'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l offline -d 'Reject records whose repository neither the cache nor an image holds'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l keep-invalid -d 'Keep tasks that validation refused'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -a "index" -d 'Write an index of task folders and of other indexes'
complete -c lego -n "__fish_lego_using_subcommand prepare; and not __fish_seen_subcommand_from index help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -s o -l out -d 'The index' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l combine -d 'How several become one' -r -f -a "union\t'Tasks of any'
intersection\t'Tasks of all'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l where -d 'Keep tasks that fit, such as `pass_rate > 0 && pass_rate < 1`' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l exclude -d 'Leave out tasks of these ids, one a line' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l exclude-index -d 'Leave out tasks of this index, and those that resemble one of it' -r -F
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l resemblance -d 'Share of common word sequences from which tasks resemble each other' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l split -d 'A split of a share of the tasks, by whole repositories, or of the ids in a file; the rest is `train`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l seed -d 'Decides which repositories a share takes' -r
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l keep-invalid -d 'Keep tasks that validation refused'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from index" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from help" -f -a "index" -d 'Write an index of task folders and of other indexes'
complete -c lego -n "__fish_lego_using_subcommand prepare; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l set -d 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand preflight" -l only -d 'Run only these checks' -r
complete -c lego -n "__fish_lego_using_subcommand preflight" -l explain -d 'Print the page of a check: what it looks at, why it matters, what to write instead; and stop' -r
complete -c lego -n "__fish_lego_using_subcommand preflight" -l import -d 'Turn a file of variables (`NAME=value`) of another system into a run.toml on stdout, and stop' -r -F
complete -c lego -n "__fish_lego_using_subcommand preflight" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand preflight" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand preflight" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand preflight" -l static -d 'Leave out the live probe: config and local files alone, no network'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l show-config -d 'Print the whole config with the origin of each value, and stop; as TOML, or with --json or --format as rows'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l init -d 'Write a commented starter run.toml, and stop'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l reference -d 'Print every key of run.toml with its type, default and meaning, and stop'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l json -d 'The same as `--format json`'
complete -c lego -n "__fish_lego_using_subcommand preflight" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand preflight" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand preflight" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand preflight" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l set -d 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l upstream -d 'Hosted API to pass calls on to, which gives no token ids; needs no run config (`engine.kind = "openai"`)' -r
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l listen -d 'Address to listen on; port 0 picks a free one (`proxy.listen`)' -r
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l capture -d 'Write finished sessions as shards into this folder, and the log of every session below its `calls`' -r -F
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l tokenizer -d 'Folder with `tokenizer.json` and `tokenizer_config.json` (`policy.tokenizer`)' -r -F
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l admin-token -d 'Opens the admin routes; a random one where it is not set or empty' -r
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l replay -d 'Run a recorded session through today\'s parsers and capture, print what changes, and stop; `-` reads stdin' -r -F
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l anonymous -d 'Give clients that bring no session one of their own, named as their URL names it'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l print-env -d 'Print the variables that point a client at it, and stay in the background'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l background -d 'Whether this is the process in the background'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand serve-proxy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand balance" -l replica -d 'A replica to serve; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l replicas -d 'With --simulate, how many replicas; else a file that names the replicas to serve, one a line, or `-` for stdin' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l discover -d 'Replicas by their labels in a Kubernetes, as they come and go, such as kubernetes:app=vllm or kubernetes:NAMESPACE/app=vllm@8000' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l listen -d 'Address to listen on; port 0 picks a free one' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l policy -d 'Which replica serves a turn: sticky, priced, prefix, least-load, round-robin, consistent-hash (`balance.policy`). With --simulate, ways to compare: sticky, priced, round-robin, cap, cap:N, lease, lease:SECONDS, watermark' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l scheduler -d 'When a turn is sent: off, lease (`balance.scheduler`)' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l lease -d 'How long an idle session keeps its place although others wait (`balance.lease`)' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l max-hold -d 'How long a turn is held before it may take any idle session\'s place (`balance.max_hold`)' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l capacity -d 'Tokens that one replica\'s cache holds, where its metrics do not tell (`balance.capacity`)' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l session-header -d 'Header that names a session, before those that are known' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l health-path -d 'Path that replicas are asked for whether they are well' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l first-byte -d 'Longest wait for the first byte of an answer' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l idle -d 'Longest wait for the next byte of a stream' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l most-requests -d 'Requests at a time; more are told to come again' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l ca-file -d 'Certificates (PEM) of authorities that sign those of https replicas, beside the system\'s own (`engine.ca_file`)' -r -F
complete -c lego -n "__fish_lego_using_subcommand balance" -l admin-token -d 'Opens the routes that change something; without one they answer this machine alone' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l status -d 'Print the replicas of a running balancer' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l simulate -d 'Model and accelerator to simulate: moe30b, dense32b' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l sessions -d 'Sessions at a time, each followed by another' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l batch -d 'Sessions in all: the time to the end of the last counts' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l shards -d 'Play the sessions of these shards, such as RUN/rollouts, instead of drawn ones' -r -F
complete -c lego -n "__fish_lego_using_subcommand balance" -l seed -d 'Makes the sessions, or their order' -r
complete -c lego -n "__fish_lego_using_subcommand balance" -l svg -d 'Draw the throughput against the number of sessions, up to --sessions, into this file' -r -F
complete -c lego -n "__fish_lego_using_subcommand balance" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand balance" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand balance" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand balance" -l tell-reason -d 'Answer with the headers x-lego-replica and x-lego-reason'
complete -c lego -n "__fish_lego_using_subcommand balance" -l keep-path -d 'Ask replicas for /sess/NAME/… where clients do: those that are `lego serve-proxy` themselves'
complete -c lego -n "__fish_lego_using_subcommand balance" -l watch -d 'Print them every two seconds'
complete -c lego -n "__fish_lego_using_subcommand balance" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand balance" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand balance" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand balance" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l set -d 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l tasks -d 'Tasks: an index, a JSONL of inline records, or ids one a line; `-` is ids on stdin (`data.train`)' -r -F
complete -c lego -n "__fish_lego_using_subcommand rollout" -s o -l out -d 'Folder for the shards and the trials' -r -F
complete -c lego -n "__fish_lego_using_subcommand rollout" -l scaffold -d 'The agent (`scaffold.name`)' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l backend -d 'What provides the sandboxes (`sandbox.backend`)' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l group-size -d 'Episodes of a task (`rollout.group_size`; with `--eval`, `eval.samples`)' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -s j -l jobs -d 'Trials at a time (`sandbox.concurrency`)' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l max-failures -d 'Stop and exit with 1 once more trials than this had no valid reward' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l follow -d 'Sample for the trainer that publishes at this place, a folder or a bucket\'s URL, until it ends' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l name -d 'Name among those that follow; one that is started again under its name goes on with its groups at once' -r
complete -c lego -n "__fish_lego_using_subcommand rollout" -l print -d 'Print only this: the paths of finished shards, one a line' -r -f -a "paths\t'Paths of finished shards'"
complete -c lego -n "__fish_lego_using_subcommand rollout" -l predictions -d 'Write what the agents left as predictions: `instance_id`, `model_name_or_path`, `model_patch`, one JSON object a line; of several samples of a task the first that left anything' -r -F
complete -c lego -n "__fish_lego_using_subcommand rollout" -l regrade -d 'Judge what the agents of this rollout left again, all its samples, without a model; -o is the folder for the new results' -r -F
complete -c lego -n "__fish_lego_using_subcommand rollout" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand rollout" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand rollout" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand rollout" -l fresh -d 'Start anew instead of continuing what is in the output folder'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l eval -d 'Validate: print pass@k instead of one row a trial; shards and trials only with -o. Of all trials that ended (`landed`) those with a valid reward are scored (`trials`), and the others are told (`infra`)'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l dry-run -d 'Print what would run, as data, and stop'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l reap -d 'Remove sandboxes that earlier runs left behind, and stop; a cluster\'s where run.toml or `--backend` names it'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l purge-infra -d 'Name results that failed by infrastructure; with `--confirm` they do not count any more, and the next start runs their trials again'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l confirm -d 'Do what `--purge-infra` names'
complete -c lego -n "__fish_lego_using_subcommand rollout" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand rollout" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand rollout" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand rollout" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand train" -l set -d 'Set a key above all files, such as `--set rollout.group_size=16`; can be repeated' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l shards -d 'Train from these shards alone: files, folders, or `-` for paths on stdin, one a line; can be repeated' -r -F
complete -c lego -n "__fish_lego_using_subcommand train" -l steps -d 'Steps of the run (`train.steps`)' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l device -d 'Where to compute (`policy.device`): cpu, cuda or cuda:N' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l publish -d 'Train on what `lego rollout --follow` samples, and publish weights there: a folder, or a bucket\'s URL' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l durations -d 'With `--plan`: the run directory to measure, or `trial=SECONDS,update=SECONDS,publish=SECONDS` (the run\'s own directory)' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l export -d 'Write a checkpoint of the run as a plain Hugging Face folder, print its files, and stop' -r -F
complete -c lego -n "__fish_lego_using_subcommand train" -l checkpoint -d 'With `--export`: `latest`, `best` by the first validation set, or a step' -r
complete -c lego -n "__fish_lego_using_subcommand train" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand train" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand train" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand train" -l fresh -d 'Start anew: the run directory must be empty or is moved aside'
complete -c lego -n "__fish_lego_using_subcommand train" -l async -d 'Rollouts and updates side by side (`async.enabled`)'
complete -c lego -n "__fish_lego_using_subcommand train" -l plan -d 'Print what settings of `[async]` would come to by an earlier run\'s durations, and stop'
complete -c lego -n "__fish_lego_using_subcommand train" -l dry-run -d 'Print what would run, as data, and stop'
complete -c lego -n "__fish_lego_using_subcommand train" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand train" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand train" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand train" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l listen -d 'Address to listen on; the first free port from 127.0.0.1:8090 to 8095 where none is named' -r
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l token-file -d 'File with the token that a browser must know; made up where one is needed and none is named' -r -F
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l base-path -d 'Path below which a reverse proxy shows it' -r
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l export -d 'Write one self-contained file instead of serving; `-` is stdout' -r -F
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l run -d 'The runs to export; all where none is named' -r
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l tunnel -d 'Start an installed tunnel program and print its URL: `cloudflared`, or a command with `{port}` (words, no shell)' -r
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l open -d 'Open a browser'
complete -c lego -n "__fish_lego_using_subcommand dashboard" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand dashboard" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand dashboard" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand dashboard" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "run" -d 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "shards" -d 'A folder of shards, or the run directory that holds it'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "trial" -d 'The folder of one trial'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "explain" -d 'What a check or signature means'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "list" -d 'All signatures'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and not __fish_seen_subcommand_from run shards trial explain list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from shards" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from trial" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l format -d 'How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere' -r -f -a "auto\t'A table on a terminal, JSON lines elsewhere'
table\t'For people'
json\t'One JSON document'
jsonl\t'One JSON object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l since -d 'Look at steps from this one on' -r
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l check -d 'Exit with 1 if a signature matched, and with 4 if there was no step to judge'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l json -d 'The whole report as one JSON object: what was looked at as well, the verdict, the recommendations'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "run" -d 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "shards" -d 'A folder of shards, or the run directory that holds it'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "trial" -d 'The folder of one trial'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "explain" -d 'What a check or signature means'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "list" -d 'All signatures'
complete -c lego -n "__fish_lego_using_subcommand diagnose; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "completions" -d 'A completion script'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "man" -d 'A man page'
complete -c lego -n "__fish_lego_using_subcommand generate; and not __fish_seen_subcommand_from completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from completions" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -l color -d 'When to colour' -r -f -a "auto\t'On a terminal, unless `NO_COLOR` says otherwise'
always\t'Always'
never\t'Never'"
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -l log-format -d 'How log lines are written' -r -f -a "text\t'For people'
json\t'One object a line'"
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -s q -l quiet -d 'Say nothing but errors'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -s v -l verbose -d 'Log more; -vv more still'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -l no-progress -d 'Draw no progress bars'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from man" -s h -l help -d 'Print help'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "completions" -d 'A completion script'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "man" -d 'A man page'
complete -c lego -n "__fish_lego_using_subcommand generate; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "prepare" -d 'Turn issues and datasets into task folders and an index'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "preflight" -d 'Check whether a run may start'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "serve-proxy" -d 'Serve an OpenAI and Anthropic API in front of the policy and record exact tokens'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "balance" -d 'Serve several engines as one, each session where its cache is; or say what such a pool would do under a load'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "rollout" -d 'Sample episodes from the policy and write them as Parquet shards'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "train" -d 'Train the policy: rollouts, update, new weights, step by step'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "dashboard" -d 'Show runs in a browser, live'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "diagnose" -d 'Say what is wrong with a run, on evidence'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "generate" -d 'Print a generated file'
complete -c lego -n "__fish_lego_using_subcommand help; and not __fish_seen_subcommand_from prepare preflight serve-proxy balance rollout train dashboard diagnose generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from prepare" -f -a "index" -d 'Write an index of task folders and of other indexes'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from diagnose" -f -a "run" -d 'A run directory, or a log with `step:N - key:value` lines; `-` is such a log on stdin'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from diagnose" -f -a "shards" -d 'A folder of shards, or the run directory that holds it'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from diagnose" -f -a "trial" -d 'The folder of one trial'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from diagnose" -f -a "explain" -d 'What a check or signature means'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from diagnose" -f -a "list" -d 'All signatures'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "completions" -d 'A completion script'
complete -c lego -n "__fish_lego_using_subcommand help; and __fish_seen_subcommand_from generate" -f -a "man" -d 'A man page'

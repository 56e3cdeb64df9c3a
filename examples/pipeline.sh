#!/bin/sh
# The stages as a chain in the shell: records -> tasks -> checks -> rollouts -> an update.
#
#   examples/pipeline.sh ISSUES.JSONL RUN.TOML
#
# Each stage can be stopped and started again: it goes on from what is there. LEGO names the binary.
set -eu

issues=$1
run=$2
lego=${LEGO:-lego}

"$lego" prepare "$issues" -o tasks >prepared.jsonl
"$lego" preflight "$run" --static
"$lego" rollout "$run" -o shards --print paths >shards.txt
"$lego" train "$run" --shards - <shards.txt

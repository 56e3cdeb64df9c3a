#!/bin/sh
# Rebuild the quickstart's warm start (policy/) through lego itself.
#
#   examples/quickstart/warm-start.sh            LEGO="path to lego" to use another binary
#
# 1. clean demonstrations, until the policy repairs programs with names that it has never seen;
# 2. mixed demonstrations, in which half of the kinds mostly show a fix that does not work.
# Everything but the result stays in warm-start/, which git ignores. Needs python3 (standard library).
set -eu
cd "$(dirname "$0")"
lego=${LEGO:-lego}
work=warm-start

# stage NAME MODEL COUNT SEED STEPS LR WARMUP: one round of demonstrations, shards, imitation
stage() {
  name=$1 model=$2 count=$3 seed=$4 steps=$5 lr=$6 warmup=$7
  python3 generate.py demos --stage "$name" --count "$count" --seed "$seed" -o "$work/$name"
  $lego prepare "$work/$name/tasks.jsonl" -o "$work/$name/tasks" >"$work/$name/prepare.jsonl"
  $lego rollout replay.toml -o "$work/$name/shards" \
    --set data.train="$work/$name/tasks/index.parquet" --set engine.recording="$work/$name/demonstrations.jsonl" \
    --set rollout.groups_per_step="$count" >"$work/$name/rollout.jsonl"
  $lego train sft.toml --shards "$work/$name/shards" \
    --set run.dir="$work/runs" --set run.name="$name" --set policy.model="$model" \
    --set train.steps="$steps" --set train.lr="$lr" --set train.warmup="$warmup" >"$work/$name/train.jsonl"
}

rm -rf "$work"
python3 init_policy.py -o "$work/untrained" --seed 0
cp policy/tokenizer.json policy/tokenizer_config.json "$work/untrained/"
stage clean "$work/untrained" 9600 0 1200 1e-3 50
stage mixed "$work/runs/clean/checkpoints/latest" 1600 1 100 1.5e-4 5
for file in model.safetensors config.json tokenizer.json tokenizer_config.json; do
  cp "$work/runs/mixed/checkpoints/latest/$file" "policy/$file"
done

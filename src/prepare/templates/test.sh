#!/bin/sh
# Brings the tests, runs them, and grades by what they say. Needs a shell, awk, and git or patch.
here=${LEGO_TESTS_DIR:-/tests}
logs=${LEGO_LOGS_DIR:-/logs}/verifier
cd "${LEGO_WORKDIR:-@FOLDER@}" || exit 3
mkdir -p "$logs"
# Whoever owns the repository, and whatever is set up in it.
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_NO_REPLACE_OBJECTS=1
export GIT_CONFIG_KEY_1=core.hooksPath GIT_CONFIG_VALUE_1=/dev/null GIT_CONFIG_KEY_2=core.fsmonitor GIT_CONFIG_VALUE_2=false

# The tests' files as they were, and none where there was none.
first=$(git rev-list --max-parents=0 HEAD 2>/dev/null | tail -n 1)
while IFS= read -r file; do
  [ -n "$file" ] || continue
  if [ -e "$here/base/$file" ]; then
    rm -rf -- "$file"
    mkdir -p -- "$(dirname -- "$file")"
    cp -p -- "$here/base/$file" "$file"
  elif [ ! -d "$here/base" ] && [ -n "$first" ]; then
    git checkout -q "$first" -- "$file" 2>/dev/null || :
  fi
done <"$here/files_before.txt"
while IFS= read -r file; do
  [ -n "$file" ] && rm -rf -- "$file"
done <"$here/files_new.txt"
if [ -d "$here/files" ]; then cp -Rp "$here/files/." .; fi

if [ -s "$here/test.patch" ]; then
  git apply --3way "$here/test.patch" 2>/dev/null ||
    git apply "$here/test.patch" 2>/dev/null ||
    patch --batch --fuzz=5 -p1 -i "$here/test.patch" ||
    { echo "lego: the patch of the tests does not apply"; exit 3; }
fi

shell=$(command -v bash || command -v sh)
log=$(mktemp)
echo ">>>>> Start Test Output"
"$shell" "$here/run.sh" >"$log" 2>&1 </dev/null
code=$?
cat "$log"
echo ">>>>> End Test Output"
echo "lego: the tests ended with exit code $code"
# Nothing that the tests left is the reward.
rm -rf "$logs/reward.json" "$logs/reward.txt" "$logs/reward.part"
awk -f "$here/grade.awk" -v code="$code" part=rules "$here/rules.tsv" part=fail "$here/fail_to_pass.txt" \
  part=pass "$here/pass_to_pass.txt" part=log "$log" >"$logs/reward.part" || { echo "lego: no awk graded the log"; exit 3; }
mv "$logs/reward.part" "$logs/reward.json"
cat "$logs/reward.json"

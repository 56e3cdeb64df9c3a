# Grades a log of tests by lists of those that must pass, and writes the reward. Plain awk: every image has one.
#
#   awk -f grade.awk -v code=N part=rules rules.tsv part=fail fail_to_pass.txt part=pass pass_to_pass.txt part=log LOG
#
# `code` is the test command's own exit code. A test that is named twice has the worse status. Writes reward.json to stdout.

function worst(map, name, status) {
  if (name == "") return
  if (!(name in map) || map[name] < status) map[name] = status
}

# Names of tests as older and newer runners write them are one: `a (m.C.a)` is `a (m.C)`.
function one_name(name,    at, test, place) {
  at = index(name, " (")
  if (at < 2 || substr(name, length(name)) != ")") return name
  test = substr(name, 1, at - 1)
  place = substr(name, at + 2, length(name) - at - 2)
  if (length(place) > length(test) && substr(place, length(place) - length(test)) == "." test)
    place = substr(place, 1, length(place) - length(test) - 1)
  return test " (" place ")"
}

function trim(text) {
  sub(/^ +/, "", text)
  sub(/ +$/, "", text)
  return text
}

function add(name, status) {
  worst(tests, one_name(trim(name)), status)
}

function cut(rule, line) {
  if (front[rule] != "") sub(front[rule], "", line)
  if (back[rule] != "") sub(back[rule], instead[rule], line)
  return trim(line)
}

function leave_groups(indent) {
  while (depth > 0 && group_indent[depth] >= indent) depth--
}

function leaf(name, status, indent,    i, words, arrows) {
  leave_groups(indent)
  add(name, status)
  for (i = 1; i <= depth; i++) {
    words = words group[i] " "
    arrows = arrows group[i] " > "
  }
  if (depth > 0) {
    add(words name, status)
    add(arrows name, status)
    add(group[depth] "." name, status)
  }
}

function read_line(line,    rule, name, indent) {
  gsub(/\033\[[0-9;?]*[A-Za-z]/, "", line)
  gsub(/\t/, " ", line)
  for (rule = 1; rule <= rules; rule++)
    if (kind[rule] == "ran" && line ~ when[rule]) ran = 1
  for (rule = 1; rule <= rules; rule++) {
    if (kind[rule] == "ran" || line !~ when[rule]) continue
    if (kind[rule] == "close" && open == "") continue
    name = cut(rule, line)
    if (kind[rule] == "anchor") split("", last)
    else if (kind[rule] == "last") worst(last, one_name(name), status[rule])
    else if (kind[rule] == "open") open = name
    else if (kind[rule] == "close") { add(open, status[rule]); open = "" }
    else if (kind[rule] == "both") { add(name, status[rule]); add(open, status[rule]); open = "" }
    else if (kind[rule] == "test") { add(name, status[rule]); open = "" }
    else if (kind[rule] == "suite") suite = name
    else if (kind[rule] == "member") add(suite " > " name, status[rule])
    else if (kind[rule] == "reset") { add(name, status[rule]); depth = 0 }
    else if (kind[rule] == "ask") asked[++asks] = name
    else if (kind[rule] == "answer") answered[++answers] = status[rule]
    else {
      match(line, /^ */)
      indent = RLENGTH
      if (kind[rule] == "leaf") leaf(name, status[rule], indent)
      else { leave_groups(indent); depth++; group[depth] = name; group_indent[depth] = indent }
    }
    return
  }
}

# `a[/tmp/x/y]` is `a[/y]`.
function short(name,    at, option) {
  at = index(name, "[/")
  if (at == 0 || substr(name, length(name)) != "]") return name
  option = substr(name, at + 1, length(name) - at - 1)
  if (index(option, "//") == 1 || index(option, "*") > 0) return name
  sub(/^.*\//, "/", option)
  return substr(name, 1, at) option "]"
}

# A test of a list. Some lists hold names that were cut at their first blank, some `Class.test` for `file::Class::test`.
function status_of(test,    name, rest, best) {
  test = one_name(test)
  if (test in tests) return tests[test]
  best = 0
  if (index(test, "[") > 0 && substr(test, length(test)) != "]")
    for (name in tests)
      if (index(name, test " ") == 1 && tests[name] > best) best = tests[name]
  # Folders of an option are left out in some.
  if (best == 0 && index(test, "[/") > 0)
    for (name in tests)
      if (short(name) == test && tests[name] > best) best = tests[name]
  if (best == 0 && index(test, "::") == 0)
    for (name in tests)
      if (index(name, "::") > 0) {
        rest = substr(name, index(name, "::") + 2)
        gsub(/::/, ".", rest)
        if (rest == test && tests[name] > best) best = tests[name]
      }
  return best
}

BEGIN { FS = "\t"; suite = "None"; word["passed"] = 1; word["skipped"] = 2; word["failed"] = 3 }
part == "rules" && $0 !~ /^#/ {
  rules++
  kind[rules] = $2; status[rules] = word[$3]; when[rules] = $4; front[rules] = $5; back[rules] = $6; instead[rules] = $7
}
part == "fail" && $0 != "" { gsub(/\t/, " "); fail[++fails] = $0 }
part == "pass" && $0 != "" { gsub(/\t/, " "); pass[++passes] = $0 }
part == "log" {
  pieces = split($0, piece, "\r")
  for (i = 1; i <= pieces; i++) read_line(piece[i])
}
END {
  for (i = 1; i <= asks && i <= answers; i++) add(asked[i], answered[i])
  for (name in last) worst(tests, name, last[name])
  for (name in tests) { if (tests[name] == 1) passed++; else if (tests[name] == 3) failed++ }
  if (dump) {
    for (name in tests) printf "%s\t%s\n", tests[name], name
    exit
  }
  for (i = 1; i <= fails; i++) if (status_of(fail[i]) == 1) fail_passed++
  for (i = 1; i <= passes; i++) if (status_of(pass[i]) == 1) pass_passed++
  good = fail_passed + 0 == fails + 0 && pass_passed + 0 == passes + 0
  # Without lists every test counts, and the command must be content.
  if (fails + passes == 0) good = passed > 0 && failed + 0 == 0 && code == 0
  # A command that failed without naming a test that did was not heard to its end.
  if (code != 0 && failed + 0 == 0) good = 0
  if (!ran && passed + failed == 0) good = 0
  printf "{\"reward\": %d, \"fail_to_pass_passed\": %d, \"fail_to_pass_total\": %d, ", good, fail_passed, fails
  printf "\"pass_to_pass_passed\": %d, \"pass_to_pass_total\": %d, ", pass_passed, passes
  printf "\"tests_passed\": %d, \"tests_failed\": %d}\n", passed, failed
}

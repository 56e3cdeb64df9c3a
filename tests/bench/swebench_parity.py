#!/usr/bin/env python3
"""Compares how logs of test runners are read: by lego's table of rules and by the public SWE-bench graders.

    python3 -m venv VENV && VENV/bin/pip install 'swebench>=5,<6' pytest
    VENV/bin/python tests/bench/swebench_parity.py [--image IMAGE] [--their-tests FOLDER] [--slice FILE]
    npm install jest vitest mocha; JS=$PWD/node_modules names them, for this machine's node

Logs are made now: runners that the machine has, or that IMAGE has (a container image with pytest, go, cargo, node, cmake,
phpunit and rspec; those missing are named), run suites whose tests pass, fail, are skipped, print and break off, in an order
drawn anew. With --their-tests, the folder `tests` of SWE-bench's repository, every log that their own tests parse is compared
too. --slice writes a few of all for tests/bench/swebench_slice.jsonl. Exit code 1 where a status differs that is not explained.

A status is compared as grading reads it: passed (PASSED, XFAIL) or not. Explained differences: a test that is named twice has
the worse status here and the last one there, so that a program which prints `PASSED` gains nothing; a pending test of mocha is
taken for a group there.
"""

import argparse
import importlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPORT = ROOT / "src/verifier/report"
PASSING = {"PASSED", "XFAIL"}

# Their parser: our format.
FORMATS = {
    "parse_log_pytest": "pytest", "parse_log_pytest_options": "pytest", "parse_log_pytest_v2": "pytest", "parse_log_matplotlib": "pytest",
    "parse_log_seaborn": "pytest",
    "parse_log_django": "unittest", "parse_log_sympy": "sympy", "parse_log_gotest": "go", "parse_log_cargo": "cargo",
    "parse_log_jest": "jest", "parse_log_vitest": "jest", "parse_log_tap": "jest", "parse_log_highlightjs": "jest",
    "parse_log_maven": "junit", "parse_log_ant": "junit", "parse_log_gradle_custom": "junit",
    "parse_log_redis": "ctest", "parse_log_jq": "ctest", "parse_log_googletest": "ctest", "parse_log_micropython_test": "ctest",
    "parse_log_phpunit": "phpunit", "parse_log_rspec_transformed_json": "rspec", "parse_log_minitest": "minitest",
    "parse_log_ruby_unit": "minitest",
}


def ours(form, log):
    """Our reading: name to status, by the very files that a task's tests/ holds."""
    rules = [row for row in (REPORT / "rules.tsv").read_text().splitlines(True) if row.split("\t")[0] == form]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules").write_text("".join(rules))
        (folder / "log").write_bytes(log.encode())
        done = subprocess.run(
            ["awk", "-f", str(REPORT / "grade.awk"), "-v", "dump=1", "part=rules", str(folder / "rules"), "part=log", str(folder / "log")],
            check=True, capture_output=True,
        )
    names = {"1": "PASSED", "2": "SKIPPED", "3": "FAILED"}
    rows = [line.split("\t", 1) for line in done.stdout.decode(errors="replace").splitlines()]
    return {name: names[status] for status, name in rows}


def parsers():
    found = {}
    for module in ("python", "javascript", "go", "rust", "java", "php", "ruby", "c"):
        module = importlib.import_module(f"swebench.harness.log_parsers.{module}")
        for name, function in vars(module).items():
            if name in FORMATS:
                found[name] = function
    return found


def one_name(name):
    """`a (m.C.a)` is `a (m.C)`; TAP's dash is no part of a name."""
    name = " ".join(name.split())
    if name.startswith("- "):
        name = name[2:]
    if " (" in name and name.endswith(")"):
        test, place = name[:-1].split(" (", 1)
        if place.endswith("." + test):
            name = f"{test} ({place[: -len(test) - 1]})"
    return name


def found_in(read, name):
    """As grading looks a test up: a name that was cut at its first blank is that of all that begin so."""
    name = one_name(name)
    if name in read:
        return read[name]
    if "[" in name and not name.endswith("]"):
        longer = [status for other, status in read.items() if other.startswith(name + " ")]
        if longer:
            return "FAILED" if "FAILED" in longer else longer[0]
    return None


def compare(parser, log, their_map):
    """Differences that grading would see, and those that are explained."""
    read = {one_name(name): status for name, status in ours(FORMATS[parser], log).items()}
    wrong, explained = [], []
    for name, status in their_map.items():
        own = found_in(read, name)
        if (status in PASSING) == (own == "PASSED"):
            continue
        tells = [line for line in log.splitlines() if name.split(" - ")[0] in line or one_name(name).split(" (")[0] in line]
        twice = len(tells) > 1 and status in PASSING and own is not None
        # A pending test of mocha is no group of those behind it.
        pending = parser == "parse_log_highlightjs" and name.startswith("- ")
        (explained if twice or pending else wrong).append((name, status, own))
    theirs = {one_name(name) for name, status in their_map.items() if status in PASSING}
    return wrong, explained, len(their_map), theirs


SUITES = {}


def suite(name, parser, needs):
    def take(function):
        SUITES[name] = (parser, needs, function)
        return function
    return take


def statuses(draw, count=8):
    drawn = ["pass", "fail", "skip"] + [draw.choice(["pass", "pass", "fail", "skip", "noise"]) for _ in range(count)]
    draw.shuffle(drawn)
    return list(enumerate(drawn))


def python_body(status, indent):
    return {
        "pass": "assert True", "noise": "print('ok PASSED FAILED ...'); assert True", "fail": "assert 1 == 2, 'no - really [x]'",
        "skip": "import unittest; raise unittest.SkipTest('not now')",
    }[status]


@suite("pytest", "parse_log_pytest", "python3 -c 'import pytest'")
def _(draw):
    text = "import pytest\n" + "".join(f"def test_{n}():\n    {python_body(s, 4)}\n" for n, s in statuses(draw))
    text += "@pytest.mark.parametrize('x', ['a', 'b', 'c-d'])\ndef test_many(x):\n    assert x != 'b'\n@pytest.mark.xfail\ndef test_known():\n    assert False\n"
    return {"tests/test_a.py": text, "tests/test_broken.py": "import nowhere\n"}, "python3 -m pytest -rA -p no:cacheprovider --continue-on-collection-errors tests"


@suite("pytest -v", "parse_log_pytest_v2", "python3 -c 'import pytest'")
def _(draw):
    text = "".join(f"def test_{n}():\n    {python_body(s, 4)}\n" for n, s in statuses(draw))
    return {"test_b.py": text}, "python3 -m pytest -rA -vv -o console_output_style=classic --tb=no -p no:cacheprovider test_b.py"


@suite("unittest", "parse_log_django", "python3 -V")
def _(draw):
    rows = statuses(draw)
    text = "import unittest\nclass A(unittest.TestCase):\n" + "".join(f"    def test_{n}(self):\n        {python_body(s, 8)}\n" for n, s in rows)
    text += "    def test_said(self):\n        '''What it is for'''\n"
    return {"test_a.py": text}, "python3 -m unittest -v test_a"


@suite("go", "parse_log_gotest", "go version")
def _(draw):
    body = {"pass": "", "noise": 'println("--- nothing")', "fail": 't.Fatal("no")', "skip": 't.Skip("later")'}
    text = 'package a\nimport "testing"\n' + "".join(f"func Test{n}(t *testing.T) {{ {body[s]} }}\n" for n, s in statuses(draw))
    text += 'func TestSub(t *testing.T) { t.Run("one two", func(t *testing.T) {}); t.Run("three", func(t *testing.T) { t.Fail() }) }\n'
    return {"go.mod": "module a\n\ngo 1.19\n", "a_test.go": text}, "GOCACHE=/tmp/go HOME=/tmp go test -v ./..."


@suite("cargo", "parse_log_cargo", "cargo --version")
def _(draw):
    head = {"pass": "#[test] ", "noise": "#[test] ", "fail": "#[test] ", "skip": "#[test] #[ignore] "}
    body = {"pass": "", "noise": 'println!("test x ... ok");', "fail": 'panic!("no");', "skip": ""}
    text = "".join(f"{head[s]}fn t{n}() {{ {body[s]} }}\n" for n, s in statuses(draw))
    return {"Cargo.toml": '[package]\nname="a"\nversion="0.1.0"\nedition="2021"\n', "src/lib.rs": text}, "CARGO_TARGET_DIR=/tmp/t CARGO_HOME=/tmp/c cargo test --offline --no-fail-fast"


@suite("node tap", "parse_log_tap", "node --version")
def _(draw):
    body = {"pass": "", "noise": "console.log('ok 99 - nothing of the sort');", "fail": "throw new Error('no')", "skip": ""}
    text = "const { test } = require('node:test');\n" + "".join(
        f"test('case {n}', {{ skip: {str(s == 'skip').lower()} }}, () => {{ {body[s]} }});\n" for n, s in statuses(draw) if s not in ("skip", "noise"))
    return {"a.test.js": text}, "node --test --test-reporter=tap a.test.js"


@suite("googletest and ctest", "parse_log_googletest", "cmake --version && test -d /usr/src/googletest")
def _(draw):
    body = {"pass": "SUCCEED();", "noise": 'printf("[ nothing ]\\n");', "fail": "FAIL();", "skip": 'GTEST_SKIP() << "later";'}
    text = "#include <gtest/gtest.h>\n" + "".join(f"TEST(A, t{n}) {{ {body[s]} }}\n" for n, s in statuses(draw))
    cmake = "cmake_minimum_required(VERSION 3.18)\nproject(a CXX)\nfind_package(GTest REQUIRED)\nadd_executable(a a.cc)\ntarget_link_libraries(a GTest::gtest_main)\n"
    return {"CMakeLists.txt": cmake, "a.cc": text}, "cmake -S . -B /tmp/b >/dev/null && cmake --build /tmp/b >/dev/null && /tmp/b/a"


@suite("phpunit", "parse_log_phpunit", "phpunit --version")
def _(draw):
    body = {"pass": "$this->assertTrue(true);", "noise": 'print "ok"; $this->assertTrue(true);', "fail": "$this->assertTrue(false);", "skip": "$this->markTestSkipped();"}
    text = "<?php\nuse PHPUnit\\Framework\\TestCase;\nclass CalcTest extends TestCase {\n" + "".join(
        f"public function testCase{chr(65 + n)}(): void {{ {body[s]} }}\n" for n, s in statuses(draw)) + "}\n"
    return {"CalcTest.php": text}, "phpunit --testdox CalcTest.php"


@suite("rspec", "parse_log_rspec_transformed_json", "rspec --version")
def _(draw):
    body = {"pass": "expect(1).to eq 1", "noise": "puts 'x'; expect(1).to eq 1", "fail": "expect(1).to eq 2", "skip": "skip 'later'"}
    text = "RSpec.describe 'Calc' do\n" + "".join(f"it 'does {n}' do {body[s]} end\n" for n, s in statuses(draw)) + "end\n"
    command = "rspec --format json --out /tmp/r.json a_spec.rb; ruby -rjson -e 'JSON.parse(File.read(ARGV[0]))[\"examples\"].each { |e| puts e[\"full_description\"] + \" - \" + e[\"status\"] }' /tmp/r.json"
    return {"a_spec.rb": text}, command


def javascript(draw, prefix, fail="throw new Error('no');"):
    """A file of nested groups; `it` is the runner's."""
    body = {"pass": "", "noise": "console.log('  ✓ nothing of the sort');", "fail": fail, "skip": ""}
    rows = [(n, s) for n, s in statuses(draw) if s != "noise"]
    case = lambda n, s: f"{'it.skip' if s == 'skip' else 'it'}('case {n} does', () => {{ {body[s]} }});\n"
    half = len(rows) // 2
    inner = "".join(case(n, s) for n, s in rows[:half])
    return prefix + "describe('outer', () => {\n" + "".join(case(n, s) for n, s in rows[half:]) + "describe('inner', () => {\n" + inner + "});\n});\n"


@suite("jest", "parse_log_jest", "test -x $JS/.bin/jest")
def _(draw):
    return {"a.test.js": javascript(draw, ""), "package.json": "{}"}, "NODE_PATH=$JS $JS/.bin/jest --verbose --rootDir . --cacheDirectory /tmp/jest"


@suite("vitest", "parse_log_vitest", "test -x $JS/.bin/vitest")
def _(draw):
    files = {"a.test.mjs": javascript(draw, "import { describe, it } from 'vitest';\n"), "package.json": '{"type": "module"}'}
    return files, "ln -s $JS node_modules && $JS/.bin/vitest run --reporter=verbose"


@suite("mocha", "parse_log_highlightjs", "test -x $JS/.bin/mocha")
def _(draw):
    return {"test/a.js": javascript(draw, "")}, "$JS/.bin/mocha test/a.js"


def made(image, seed):
    """Logs of suites that are run now."""
    draw = random.Random(seed)
    for name, (parser, needs, make) in SUITES.items():
        files, command = make(draw)
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                path = pathlib.Path(folder) / path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            def run(script):
                if image and "$JS" not in script:
                    argv = ["docker", "run", "--rm", "--network", "none", "-v", f"{folder}:/w", "-w", "/w", image, "sh", "-c", script]
                else:
                    argv = ["sh", "-c", script]
                return subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
            if run(needs).returncode:
                print(f"not here: {name}")
                continue
            yield name, parser, run(command).stdout.decode(errors="replace")


def theirs_recorded(folder):
    """Every log that their own tests parse."""
    import pytest

    calls = []
    for module_name in ("python", "javascript", "go", "rust", "java", "php", "ruby", "c"):
        module = importlib.import_module(f"swebench.harness.log_parsers.{module_name}")
        for name in [name for name in vars(module) if name in FORMATS]:
            function = getattr(module, name)
            def recording(log, test_spec, function=function, name=name):
                result = function(log, test_spec)
                calls.append((name, log, dict(result)))
                return result
            setattr(module, name, recording)
    names = sorted(str(path) for path in pathlib.Path(folder).glob("test_log_parsers_*.py"))
    names += sorted(str(path) for path in pathlib.Path(folder).glob("test_grading_*.py"))
    pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", "-x", *names])
    return calls


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--image")
    options.add_argument("--their-tests")
    options.add_argument("--slice")
    options.add_argument("--seed", type=int, default=None)
    args = options.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    known = parsers()
    entries = [(f"made: {name}", parser, log, known[parser](log, None)) for name, parser, log in made(args.image, seed)]
    if args.their_tests:
        entries += [("theirs", parser, log, result) for parser, log, result in theirs_recorded(args.their_tests)]
    bad, total, total_explained, rows = 0, 0, 0, []
    for name, parser, log, their_map in entries:
        wrong, explained, count, _ = compare(parser, log, their_map)
        total += count
        total_explained += len(explained)
        bad += len(wrong)
        print(f"{name:28} {parser:34} {count:4} tests  {len(wrong)} differ  {len(explained)} explained")
        for test, status, own in wrong:
            print(f"    {test!r}: theirs {status}, ours {own}")
        if not wrong and not explained and len(log) < 6000 and count:
            rows.append({"name": name, "format": FORMATS[parser], "log": log, "tests": {k.removeprefix("- "): v in PASSING for k, v in their_map.items()}})
    print(f"{len(entries)} logs, {total} statuses, {bad} differ, {total_explained} explained")
    if args.slice:
        pathlib.Path(args.slice).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    sys.exit(1 if bad else 0)


main()

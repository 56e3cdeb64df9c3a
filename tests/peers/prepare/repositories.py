"""Makes repositories with a history and the records of their issues, for the languages named.

    repositories.py FOLDER LANGUAGE...

FOLDER/repos/o__LANGUAGE: commits that add a program, a test of it, a bug, its fix with a test, and something after that.
FOLDER/records.jsonl: the issues as records, one a language. FOLDER/export.jsonl: the first language's issue and pull request
as an API exports them.
"""

import json
import pathlib
import subprocess
import sys

# Language: files of the program with the bug, what mends it, its tests before, a test of the fix, the command, names.
PROGRAMS = {
    "python": {
        "file": "calc/core.py",
        "bug": "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return a * 2\n",
        "fix": "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return a * 2\n",
        "test": "tests/test_core.py",
        "before": "import unittest\n\nfrom calc.core import add, twice\n\n\nclass CoreTest(unittest.TestCase):\n    def test_twice(self):\n        self.assertEqual(twice(4), 8)\n",
        "after": "\n    def test_sum_of_two(self):\n        self.assertEqual(add(2, 3), 5)\n",
        "others": {"calc/__init__.py": "", "tests/__init__.py": ""},
        "command": "python3 -m unittest -v tests.test_core",
        "parser": "unittest",
        "fail": ["test_sum_of_two (tests.test_core.CoreTest)"],
        "pass": ["test_twice (tests.test_core.CoreTest)"],
    },
    "javascript": {
        "file": "lib/calc.js",
        "bug": "exports.add = (a, b) => a - b;\nexports.twice = (a) => a * 2;\n",
        "fix": "exports.add = (a, b) => a + b;\nexports.twice = (a) => a * 2;\n",
        "test": "test/calc.test.js",
        "before": "const { test } = require('node:test');\nconst assert = require('node:assert');\nconst { add, twice } = require('../lib/calc.js');\n\ntest('twice is twice', () => assert.strictEqual(twice(4), 8));\n",
        "after": "test('sum of two numbers', () => assert.strictEqual(add(2, 3), 5));\n",
        "others": {"package.json": '{"name": "calc", "version": "1.0.0"}\n'},
        "command": "node --test --test-reporter=tap test/",
        "parser": "tap",
        "fail": ["sum of two numbers"],
        "pass": ["twice is twice"],
    },
    "go": {
        "file": "calc.go",
        "bug": "package calc\n\nfunc Add(a, b int) int { return a - b }\n\nfunc Twice(a int) int { return a * 2 }\n",
        "fix": "package calc\n\nfunc Add(a, b int) int { return a + b }\n\nfunc Twice(a int) int { return a * 2 }\n",
        "test": "calc_test.go",
        "before": 'package calc\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n\tif Twice(4) != 8 {\n\t\tt.Fatal("twice")\n\t}\n}\n',
        "after": '\nfunc TestSumOfTwo(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal("sum")\n\t}\n}\n',
        "others": {"go.mod": "module example.com/calc\n\ngo 1.19\n"},
        "command": "HOME=/tmp GOCACHE=/tmp/go GOFLAGS=-mod=mod go test -v ./...",
        "parser": "parse_log_gotest",
        "fail": ["TestSumOfTwo"],
        "pass": ["TestTwice"],
    },
    "rust": {
        "file": "src/lib.rs",
        "bug": "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n\npub fn twice(a: i32) -> i32 {\n    a * 2\n}\n",
        "fix": "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn twice(a: i32) -> i32 {\n    a * 2\n}\n",
        "test": "tests/calc.rs",
        "before": "#[test]\nfn twice_is_twice() {\n    assert_eq!(calc::twice(4), 8);\n}\n",
        "after": "\n#[test]\nfn sum_of_two() {\n    assert_eq!(calc::add(2, 3), 5);\n}\n",
        "others": {"Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n'},
        "command": "CARGO_HOME=/tmp/cargo CARGO_TARGET_DIR=/tmp/target cargo test --offline --no-fail-fast",
        "parser": "parse_log_cargo",
        "fail": ["sum_of_two"],
        "pass": ["twice_is_twice"],
    },
    "c": {
        "file": "src/calc.c",
        "bug": "int add(int a, int b) { return a - b; }\nint twice(int a) { return a * 2; }\n",
        "fix": "int add(int a, int b) { return a + b; }\nint twice(int a) { return a * 2; }\n",
        "test": "tests/CMakeLists.txt",
        "before": 'foreach(name twice)\n  add_executable(${name} ${name}.c)\n  target_link_libraries(${name} calc)\n  add_test(NAME ${name} COMMAND ${name})\nendforeach()\n',
        "after": 'add_executable(sum_of_two sum_of_two.c)\ntarget_link_libraries(sum_of_two calc)\nadd_test(NAME sum_of_two COMMAND sum_of_two)\n',
        "others": {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(calc C)\nenable_testing()\nadd_library(calc src/calc.c)\nadd_subdirectory(tests)\n",
            "tests/twice.c": "int twice(int);\nint main(void) { return twice(4) != 8; }\n",
        },
        "new": {"tests/sum_of_two.c": "int add(int, int);\nint main(void) { return add(2, 3) != 5; }\n"},
        "command": "cmake -S . -B /tmp/build >/dev/null && cmake --build /tmp/build && ctest --test-dir /tmp/build",
        "parser": "ctest",
        "fail": ["sum_of_two"],
        "pass": ["twice"],
    },
}


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost", *words],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
             "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"},
    )
    return done.stdout


def commit(folder, message, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()


def main():
    root = pathlib.Path(sys.argv[1])
    records, export = [], []
    for language in sys.argv[2:]:
        program = PROGRAMS[language]
        folder = root / "repos" / f"o__{language}"
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        commit(folder, "A program and a test", {program["file"]: program["bug"], program["test"]: program["before"], **program["others"]})
        base = commit(folder, "What it is", {"README.md": "Calculates.\n"})
        fixed = {program["file"]: program["fix"], program["test"]: program["before"] + program["after"], **program.get("new", {})}
        fix = commit(folder, "Add adds (#7)", fixed)
        commit(folder, "Something after it", {"LATER.md": "Add adds since the last release.\n"})
        program_patch = git(folder, "diff", "--binary", base, fix, "--", program["file"])
        test_patch = git(folder, "diff", "--binary", base, fix, "--", ".", f":!{program['file']}")
        records.append({
            "instance_id": f"o__{language}-7",
            "repo": f"o/{language}",
            "base_commit": base,
            "problem_statement": "Adding 2 and 3 gives -1. It should give 5.",
            "hints_text": "",
            "patch": program_patch,
            "test_patch": test_patch,
            "FAIL_TO_PASS": json.dumps(program["fail"]),
            "PASS_TO_PASS": json.dumps(program["pass"]),
            "version": "1.0",
            "language": language,
            "test_cmd": program["command"],
            "log_parser": program["parser"],
        })
        if not export:
            export.append({"number": 6, "title": "Adding is wrong", "body": "Adding 2 and 3 gives -1.", "repository_url": f"https://api.example.com/repos/o/{language}"})
            export.append({
                "number": 7, "title": "Add adds", "body": "Fixes #6", "merged_at": "2026-01-01T00:00:00Z", "merge_commit_sha": fix,
                "base": {"sha": base, "repo": {"full_name": f"o/{language}"}}, "head": {"sha": fix},
                "test_cmd": program["command"], "log_parser": program["parser"],
            })
    for name, rows in (("records", records), ("export", export)):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


main()

#!/usr/bin/env python3
"""How long `lego prepare` takes for many records, and how much memory: tests/bench/prepare_load.py LEGO [RECORDS].

Prints seconds, records a second and the largest resident memory of: records to folders and index; the same again, with all
folders there; an index alone. Then whether two preparations have the same bytes.
"""

import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time


def record(n):
    old, new = f"value = {n}", f"value = {n + 1}"
    context = "".join(f" line {k} of the file\n" for k in range(3))
    patch = f"diff --git a/src/m{n}.py b/src/m{n}.py\n--- a/src/m{n}.py\n+++ b/src/m{n}.py\n@@ -1,4 +1,4 @@\n{context}-{old}\n+{new}\n"
    tests = f"diff --git a/tests/test_m{n}.py b/tests/test_m{n}.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_m{n}.py\n@@ -0,0 +1,2 @@\n+def test_m():\n+    assert m.value == {n + 1}\n"
    return {
        "instance_id": f"org__repo{n % 100}-{n}", "repo": f"org/repo{n % 100}", "base_commit": f"{n:040x}",
        "problem_statement": f"Module {n} has the wrong value. " + "It should be told why that is so. " * 40,
        "hints_text": "", "patch": patch, "test_patch": tests, "version": "1",
        "FAIL_TO_PASS": json.dumps([f"tests/test_m{n}.py::test_m"]),
        "PASS_TO_PASS": json.dumps([f"tests/test_old.py::test_{k}" for k in range(40)]),
    }


def timed(*words):
    pid = os.fork()
    if pid == 0:
        out = os.open(os.devnull, os.O_WRONLY)
        os.dup2(out, 1)
        os.execv(words[0], words)
    began = time.monotonic()
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, status
    return time.monotonic() - began, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def digest(folder):
    total = hashlib.sha256()
    for path in sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.parent != pathlib.Path(folder)):
        total.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def main():
    lego = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/records.jsonl"
        with open(source, "w") as file:
            for n in range(count):
                file.write(json.dumps(record(n)) + "\n")
        os.chdir(folder)
        for name, words in {
            "convert and index": ["prepare", "records.jsonl", "-o", "one"],
            "again, all there": ["prepare", "records.jsonl", "-o", "one"],
            "index alone": ["prepare", "index", "one", "-o", "one.parquet"],
        }.items():
            seconds, megabytes, cpu = timed(lego, *words)
            print(f"{name:20} {seconds:6.2f} s  {cpu:6.2f} CPU-s  {count / seconds:8.0f} a second  {megabytes:6.0f} MB")
        timed(lego, "prepare", "records.jsonl", "-o", "two")
        same = digest("one") == digest("two")
        print("same bytes" if same else "OTHER BYTES")
        sys.exit(0 if same else 1)


main()

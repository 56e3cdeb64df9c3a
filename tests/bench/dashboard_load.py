#!/usr/bin/env python3
"""Measure the dashboard on a run of 10,000 steps with 150 metrics and 100,000 trials, in a headless browser.

    tests/bench/dashboard_load.py target/debug/lego target/debug/examples/big_run [--keep FOLDER]

Prints the time to the first paint and to the first panel with its data, of each switch of panels (the first time, and once
more), and the memory of the server. Needs what `tests/run` installs: node, playwright-core in `$LEGO_PEERS/npm/browser`, and a
browser (`LEGO_TEST_BROWSER`, or one on the PATH). With --keep the run is left there, and taken from there the next time.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = Path(os.environ.get("LEGO_PEERS", Path.home() / ".cache/lego/peers"))
BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]


def memory(pid):
    """MiB that the server holds now, and held at most: its own, without files that are mapped."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(status[key].split()[0]) / 1024 for name, key in
            {"resident": "VmRSS", "most": "VmHWM", "own": "RssAnon"}.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("lego")
    arguments.add_argument("big_run")
    arguments.add_argument("--keep")
    arguments.add_argument("--steps", type=int, default=10_000)
    arguments.add_argument("--keys", type=int, default=150)
    arguments.add_argument("--trials", type=int, default=100_000)
    arguments.add_argument("--tokens", type=int, default=256)
    asked = arguments.parse_args()
    browser = os.environ.get("LEGO_TEST_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)))
    runs = Path(asked.keep or tempfile.mkdtemp(prefix="lego-dashboard-"))
    if not (runs / "big/metrics.jsonl").exists():
        began = time.time()
        counts = [str(count) for count in (asked.steps, asked.keys, asked.trials, asked.tokens)]
        subprocess.run([asked.big_run, str(runs / "big"), *counts], check=True)
        print(f"the run was written in {time.time() - began:.0f} s")
    server = subprocess.Popen([asked.lego, "dashboard", str(runs), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    try:
        url = server.stdout.readline().strip()
        listing = json.load(urllib.request.urlopen(url + "api/runs"))
        run = next(one["id"] for one in listing["runs"] if one["name"] == "big")
        began = memory(server.pid)
        visit = subprocess.run(["node", str(HERE / "dashboard_load.cjs"), str(PEERS / "npm/browser"), browser, url, run],
                               capture_output=True, text=True)
        if visit.returncode != 0:
            raise SystemExit(visit.stderr)
        found = json.loads(visit.stdout)
        print(f"first paint {found['first']['paint_ms']:.0f} ms, overview with its data {found['first']['data_ms']:.0f} ms")
        print(f"{'switch to':<14} {'first':>8} {'again':>8}  ms")
        for panel, took in found["switches"].items():
            print(f"{panel:<14} {took['first']:>8.0f} {took['again']:>8.0f}")
        held = memory(server.pid)
        print(f"server: {began['own']:.0f} MiB at first; now {held['own']:.0f} MiB of its own, {held['most']:.0f} MiB resident at most")
        for fault in found["faults"]:
            print("FAULT", fault)
    finally:
        server.terminate()
        server.wait()
        if not asked.keep:
            shutil.rmtree(runs)


main()

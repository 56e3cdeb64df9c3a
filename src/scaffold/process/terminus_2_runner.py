"""Starts harbor's Terminus2, as it is, in the sandbox that it works on: the instruction on standard input.

Harbor drives its agents from outside; here "outside" is the same machine, so its environment is this process's own.
Exit code 0: the agent ended by itself, or at its turns.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


class Here(BaseEnvironment):
    """Commands and files of the sandbox that this process runs in."""

    @staticmethod
    def type():
        return "here"

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        pass

    async def stop(self, delete):
        pass

    async def upload_file(self, source_path, target_path):
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target_path)

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, target_dir, dirs_exist_ok=True)

    download_file = upload_file
    download_dir = upload_dir

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None, **_):
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, cwd=cwd, env=os.environ | (env or {}), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        except asyncio.TimeoutError:
            os.killpg(process.pid, 9)
            await process.wait()
            return ExecResult(stdout="", stderr=f"timed out after {timeout_sec} s", return_code=124)
        return ExecResult(stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"),
                          return_code=process.returncode)


async def main():
    settings = json.loads(os.environ["LEGO_TERMINUS"])
    logs = Path(settings["logs_dir"])
    paths = TrialPaths(trial_dir=logs)
    environment = Here(environment_dir=logs, environment_name="here", session_id=settings["session_id"],
                       trial_paths=paths, task_env_config=EnvironmentConfig())
    # Arguments of one's own stand above: `name=value`, the value as JSON where it is some.
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    settings["logs_dir"] = logs
    agent = Terminus2(**settings)
    context = AgentContext()
    await agent.setup(environment)
    try:
        await agent.run(sys.stdin.read(), environment, context)
    finally:
        await environment.exec("tmux kill-server", timeout_sec=10)
        print(context.model_dump_json(), flush=True)


# Its tmux session has a fixed name: a server of this trial's own.
sockets = os.environ["TMUX_TMPDIR"] = tempfile.mkdtemp(prefix="terminus-")
try:
    asyncio.run(main())
finally:
    shutil.rmtree(sockets, ignore_errors=True)

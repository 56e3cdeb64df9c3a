"""Prints trials as Harbor's own models read them, a JSON object a line.

usage: read.py trials FOLDER...   folders of trial folders
       read.py tasks FOLDER...    task folders: limits, users, time and what each phase reaches
       read.py whole FOLDER...    task folders, all of them read: what is warned of
"""

import json
import logging
import sys
import warnings
from pathlib import Path

from harbor.models.task.config import TaskConfig
from harbor.models.task.task import Task
from harbor.models.trial.result import TrialResult


def artifacts(trial: Path) -> dict[str, str]:
    """Text of what was kept, by its path, and what the manifest says of each source."""
    found = {}
    for top in [trial / "artifacts", *trial.glob("steps/*/artifacts")]:
        for path in sorted(top.rglob("*")):
            name = path.relative_to(trial).as_posix()
            if path.name == "manifest.json":
                for entry in json.loads(path.read_text()):
                    # The folder that is always looked for is often empty, or never was.
                    if entry["source"] != "/logs/artifacts" or any((top.parent / entry["destination"]).rglob("*")):
                        line = [entry["status"], entry["type"], entry["destination"], entry["exclude"]]
                        found[f"{name}:{entry['source']}"] = json.dumps(line)
            elif path.is_file():
                found[name] = path.read_text()
    return found


def trial(folder: Path) -> dict:
    result = TrialResult.model_validate_json((folder / "result.json").read_text())
    rewards = lambda verified: verified.rewards if verified else None
    return {
        "task": Path(result.task_id.path).name,
        "agent": result.agent_info.name,
        "rewards": rewards(result.verifier_result),
        "valid": result.reward_valid,
        "exceptions": [exception.exception_type for exception in result.recorded_exceptions()],
        "mode": result.verifier_environment_mode and result.verifier_environment_mode.value,
        "steps": [[step.step_name, rewards(step.verifier_result)] for step in result.step_results or []],
        "artifacts": artifacts(folder),
    }


def task(folder: Path) -> dict:
    """What the whole task says; a step may say otherwise."""
    config = TaskConfig.model_validate_toml((folder / "task.toml").read_text())
    environment, agent, verifier = config.environment, config.agent, config.verifier
    reach = lambda policy: policy and [policy.network_mode.value, *policy.allowed_hosts]
    user = lambda user: None if user is None else str(user)
    return {
        "task": folder.name,
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb,
        "storage_mb": environment.storage_mb,
        "workdir": environment.workdir,
        "build": environment.build_timeout_sec,
        "network": [
            reach(environment.resolve_baseline()),
            reach(agent.explicit_phase_policy()),
            reach(verifier.explicit_phase_policy()),
        ],
        "users": [user(agent.user), user(verifier.user)],
        "time": [agent.timeout_sec, verifier.timeout_sec],
        "steps": [step.name for step in config.steps or []],
    }


def whole(folder: Path) -> dict:
    said = []

    class Said(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())

    handler = Said()
    logging.getLogger().addHandler(handler)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        read = Task(folder)
    logging.getLogger().removeHandler(handler)
    return {
        "task": folder.name,
        "warnings": said + [str(warning.message) for warning in warned],
        "network": read.config.environment.resolve_baseline().network_mode.value,
    }


match sys.argv[1]:
    case "trials":
        for top in sys.argv[2:]:
            for result in sorted(Path(top).glob("*/result.json")):
                print(json.dumps(trial(result.parent)))
    case "tasks":
        for folder in sys.argv[2:]:
            print(json.dumps(task(Path(folder))))
    case "whole":
        for folder in sys.argv[2:]:
            print(json.dumps(whole(Path(folder))))

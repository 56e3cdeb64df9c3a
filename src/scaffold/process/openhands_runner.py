"""Starts the OpenHands SDK, as it is, on one task: the instruction on standard input, the model from LLM_*.

Prints one JSON object an event. Exit code 0: the agent ended by itself.
"""

import os
import shutil
import sys
import tempfile

# Its terminal's server is this trial's own, and ends with it.
sockets = os.environ["TMUX_TMPDIR"] = tempfile.mkdtemp(prefix="openhands-")

from openhands.sdk import LLM, Conversation
from openhands.tools.preset.default import get_default_agent


def tell(event):
    print(event.model_dump_json(exclude_none=True), flush=True)


conversation = Conversation(
    agent=get_default_agent(llm=LLM.load_from_env(), cli_mode=True),
    workspace=os.getcwd(),
    callbacks=[tell],
    visualizer=None,
    max_iteration_per_run=int(os.environ["LEGO_MAX_TURNS"]),
)
try:
    conversation.send_message(sys.stdin.read())
    conversation.run()
    status = conversation.state.execution_status.value
finally:
    conversation.close()
    shutil.rmtree(sockets, ignore_errors=True)
sys.exit(0 if status == "finished" else f"the conversation ended as {status}")

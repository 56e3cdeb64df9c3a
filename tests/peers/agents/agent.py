"""An agent of one's own for scaffold `custom`: Chat Completions, one tool. Standard library only."""
import json
import os
import subprocess
import sys
import urllib.request

TOOL = {"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}}
messages = [{"role": "user", "content": sys.stdin.read()}]
while True:
    body = json.dumps({"model": sys.argv[1], "messages": messages, "tools": [TOOL]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        message = json.load(response)["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr})

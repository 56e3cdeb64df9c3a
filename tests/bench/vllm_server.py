"""A vLLM for `real_vllm.py`: the server, the policy that it serves, and a relay that hides its token route."""

import array
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path

QUICKSTART = Path(__file__).resolve().parents[2] / "examples/quickstart"
KEY = "key-of-the-test"
READY = 900


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Vllm:
    """A server; it ends with the block."""

    def __init__(self, options, *more):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = options.output / f"vllm-{self.port}.log"
        self.command = [
            options.vllm, "serve", str(options.policy), "--served-model-name", "policy", "--host", "127.0.0.1",
            "--port", str(self.port), "--max-model-len", "256", "--max-num-seqs", "32", "--dtype", "float32",
            "--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details",
            "--logprobs-mode", "processed_logprobs", "--api-key", KEY, *more,
        ]
        self.environment = {
            **os.environ, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "2",
            "PATH": f"{Path(options.vllm).parent}:{os.environ['PATH']}",
        }
        self.process = None

    def __enter__(self):
        began = time.monotonic()
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log,
                                            start_new_session=True)
        while not self.get("/health", quiet=True):
            if self.process.poll() is not None or time.monotonic() - began > READY:
                self.kill()
                sys.exit(f"vLLM did not start: see {self.log}")
            time.sleep(1)
        # The first request compiles kernels.
        self.post("/v1/completions", {"model": "policy", "prompt": [1, 30], "max_tokens": 1})
        print(f"  vLLM {json.loads(self.get('/version'))['version']} answers after {time.monotonic() - began:.0f} s")
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """As when its machine is lost."""
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
            self.process = None

    def get(self, path, quiet=False):
        request = urllib.request.Request(self.url + path, headers={"authorization": f"Bearer {KEY}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode() or "{}"
        except OSError:
            if quiet:
                return None
            raise

    def post(self, path, body):
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def stream(self, path, body):
        """The choices of a streamed answer, one after another."""
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield from json.loads(line[6:])["choices"]

    def metric(self, name, label=""):
        """The sum of a metric's values with this label."""
        lines = re.findall(rf"^{re.escape(name)}{{(.*)}} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(float(value) for labels, value in lines if label in labels)

    def log_probs(self, ids):
        """Of each token behind the first, by the weights that are served now, from an empty cache."""
        body = {"model": "policy", "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 1.0,
                "cache_salt": f"salt-{time.time()}"}
        found = self.post("/v1/completions", body)["choices"][0]["prompt_logprobs"]
        return [place[str(token)]["logprob"] for place, token in zip(found[1:], ids[1:])]


def copy_of_policy(folder, factor=1.0):
    """The quickstart's policy, with a head of its own, and every weight so much larger.

    On a processor vLLM 0.32.0 packs the head apart when it starts, and `reload_weights` does not pack one anew that is
    the embedding as well: it would go on with the first one.
    """
    folder.mkdir(exist_ok=True)
    for path in (QUICKSTART / "policy").iterdir():
        data = path.read_bytes()
        if path.name == "config.json":
            data = json.dumps({**json.loads(data), "tie_word_embeddings": False}).encode()
        if path.suffix == ".safetensors":
            begin = 8 + int.from_bytes(data[:8], "little")
            header, values = json.loads(data[8:begin]), data[begin:]
            first, last = header["model.embed_tokens.weight"]["data_offsets"]
            header["lm_head.weight"] = {**header["model.embed_tokens.weight"],
                                        "data_offsets": [len(values), len(values) + last - first]}
            values = array.array("f", values + values[first:last])
            head = json.dumps(header).encode()
            head += b" " * (-len(head) % 8)
            data = len(head).to_bytes(8, "little") + head
            data += array.array("f", (factor * value for value in values)).tobytes()
        (folder / path.name).write_bytes(data)
    # As many models bring one: nothing of it may change how is sampled.
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.5, "top_k": 5, "min_p": 0.1}))
    return folder


class WithoutTokens(BaseHTTPRequestHandler):
    """A server that has no token route: hands everything else on."""

    protocol_version = "HTTP/1.1"
    target = 0

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/inference/v1/generate":
            self.send_response(404)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.target, timeout=300)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        self.send_header("content-type", answer.getheader("content-type", ""))
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = answer

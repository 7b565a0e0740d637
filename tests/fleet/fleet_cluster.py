"""An API server of Kubernetes as far as `kubectl get`, `logs` and `exec` need one, on loopback; pods are processes.

exec speaks the WebSocket protocol v5.channel.k8s.io, which kubectl uses from 1.31 on: the first byte of a message is
the channel (0 stdin, 1 stdout, 2 stderr, 3 the end as a Status), and 255 followed by a channel closes that one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, urlsplit

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERBS = ["get", "list", "create"]
_RESOURCES = [
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": _VERBS},
    {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": _VERBS},
    {"name": "events", "singularName": "event", "namespaced": True, "kind": "Event", "verbs": _VERBS},
]
ANSWERS = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    pods: list[dict[str, Any]] = []

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        query = parse_qs(url.query)
        if parts[-1] == "exec" and "websocket" in self.headers.get("Upgrade", "").lower():
            self.exec(query["command"])
        elif parts[-1] == "log":
            self.answer(b"2026-11-24T09:00:00Z a line of the log\n", "text/plain")
        elif parts[-1] in ("pods", "events", "nodes"):
            selector = query.get("labelSelector", [""])[0]
            items = self.pods if parts[-1] == "pods" and selector in ("", "job-name=llm") else []
            self.answer({"kind": parts[-1][:-1].title() + "List", "apiVersion": "v1", "metadata": {}, "items": items})
        elif len(parts) > 2 and parts[-2] == "pods":
            self.answer(next(p for p in self.pods if p["metadata"]["name"] == parts[-1]))
        elif url.path in ANSWERS:
            self.answer(ANSWERS[url.path])
        else:
            self.answer(
                {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}, code=404
            )

    def answer(self, content: Any, kind: str = "application/json", code: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    # --- exec ------------------------------------------------------------------------------------------

    def exec(self, command: list[str]) -> None:
        """Run the command with its streams on the channels."""
        key = self.headers["Sec-WebSocket-Key"]
        accept = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        self.lock = threading.Lock()
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        assert process.stdin and process.stdout and process.stderr
        copies = [
            threading.Thread(target=self.copy, args=(s, n)) for s, n in ((process.stdout, 1), (process.stderr, 2))
        ]
        for thread in copies:
            thread.start()
        threading.Thread(target=self.feed, args=(process.stdin,), daemon=True).start()
        for thread in copies:
            thread.join()
        code = process.wait()
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            causes = [{"reason": "ExitCode", "message": str(code)}]
            status = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "details": {"causes": causes},
                "message": f"exit {code}",
            }
        self.send(2, b"\x03" + json.dumps(status).encode())
        self.send(8, struct.pack(">H", 1000))

    def copy(self, stream: IO[bytes], channel: int) -> None:
        while piece := stream.read1(32768):  # type: ignore[attr-defined]
            self.send(2, bytes([channel]) + piece)

    def feed(self, stdin: IO[bytes]) -> None:
        try:
            while True:
                kind, data = self.receive()
                if kind == 8 or (data[:1] == b"\xff" and data[1:2] == b"\x00"):
                    return
                if kind == 9:
                    self.send(10, data)
                elif data[:1] == b"\x00":
                    stdin.write(data[1:])
                    stdin.flush()
        except (OSError, struct.error):
            return
        finally:
            stdin.close()

    def send(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = struct.pack(">BB", 0x80 | kind, size) if size < 126 else struct.pack(">BBH", 0x80 | kind, 126, size)
        with self.lock:
            self.wfile.write(head + data)
            self.wfile.flush()

    def receive(self) -> tuple[int, bytes]:
        """One message, its fragments put together."""
        data = b""
        while True:
            first, second = struct.unpack(">BB", self.rfile.read(2))
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", self.rfile.read(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4) if second & 0x80 else bytes(4)
            raw = self.rfile.read(size)
            whole = (mask * (size // 4 + 1))[:size]
            data += (int.from_bytes(raw, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")
            if first & 0x80:
                return first & 0x0F, data


@contextmanager
def cluster(folder: Path, pods: list[dict[str, Any]]) -> Iterator[Path]:
    """Serve these pods; the path of a kubeconfig."""
    handler = type("Of", (Handler,), {"pods": pods})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "train"}}],
            "users": [{"name": "u", "user": {}}],
        }  # fmt: skip
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        yield path
        server.shutdown()

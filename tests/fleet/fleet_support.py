"""For tests of many hosts: real sshd on loopback ports, a stand-in for the collector, what a bundle holds."""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.fleet import engine, gather, names, ssh
from diagnose.fleet.visit import Visit

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
LogLevel ERROR
{more}
"""


@dataclass
class Farm:
    """Hosts that answer SSH here. `config` is the ssh configuration that knows their names."""

    folder: Path
    config: Path
    hosts: list[str]
    daemons: dict[str, subprocess.Popen[bytes]]

    @property
    def ssh(self) -> engine.Ssh:
        """How to call ssh for these hosts."""
        return engine.Ssh(options=f"-F {self.config} {ssh.OPTIONS}", connect_s=5)


@contextmanager
def farm(folder: Path, hosts: Sequence[str], more: str = "") -> Iterator[Farm]:
    """Start one sshd a host, on ports that are free, with keys made here."""
    for name in ("host_key", "key"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    ports = _free_ports(len(hosts))
    config = [
        f"Host *\n  HostName 127.0.0.1\n  User {getpass.getuser()}\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    ]
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        for host, port in zip(hosts, ports, strict=True):
            settings = folder / f"sshd-{host}"
            settings.write_text(_SSHD.format(port=port, folder=folder, more=more))
            with (folder / f"log-{host}").open("wb") as log:
                command = [sshd_path(), "-D", "-e", "-f", str(settings)]
                daemons[host] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
            stack.callback(_end, daemons[host])
            config.insert(0, f"Host {host}\n  Port {port}\n")
        for port in ports:
            _wait_for(port)
        path = folder / "ssh_config"
        path.write_text("".join(config))
        yield Farm(folder, path, list(hosts), daemons)


def sshd_path() -> str:
    """sshd wants to be called by its absolute path."""
    import shutil

    found = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    assert found is not None
    return found


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.kill()
    daemon.wait()


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"no sshd on port {port}")


STAND_IN = """\
import hashlib, json, os, signal, sys, tarfile, io, time
args = sys.argv[1:]
out, host = args[args.index("--out") + 1], args[args.index("--host") + 1]
files, absent, code = {{}}, [], 0
def close(number=0, frame=None):
    entries = [{{"path": host + "/" + n, "host": host, "command": "cat " + n, "exit_code": 0,
                 "sha256": hashlib.sha256(d).hexdigest()}} for n, d in sorted(files.items())]
    head = {{"schema": "diagnose.manifest/1", "tool": {{"name": "stand-in"}}, "files": entries, "absent": absent}}
    with tarfile.open(out + ".part", "w:gz", compresslevel=1) as tar:
        members = [("manifest.json", json.dumps(head).encode())] + [(host + "/" + n, d) for n, d in files.items()]
        for name, data in members:
            info = tarfile.TarInfo("root/" + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    os.rename(out + ".part", out)
    sys.exit(3 if number else code)
signal.signal(signal.SIGINT, close)
here = os.path.dirname(os.path.abspath(sys.argv[0]))
{body}
close()
"""


def stand_in(body: str) -> bytes:
    """A collector of a few lines: `body` fills `files` (name -> bytes), may add to `absent`, set `code`, or sleep."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("__main__.py", STAND_IN.format(body=body))
    return data.getvalue()


def visits_of(hosts: Sequence[str]) -> list[Visit]:
    """A visit for each host."""
    folders = names.folders(hosts)
    return [Visit(host, folders[host]) for host in hosts]


def collect(
    out: Path, hosts: Sequence[str], program: bytes, how: engine.Ssh, limit_s: float = 30, **more: Any
) -> tuple[Path, list[Visit]]:
    """Gather over SSH; the bundle and how each host did."""
    visits = visits_of(hosts)
    plan = gather.Plan(visits, ssh.links(visits, program, [], limit_s, more.pop("python", "")))
    shown = more.pop("show", lambda count: None)
    path, _ = gather.gather(plan, out, {"tool": {"name": "test"}}, lambda data: data, shown, ssh=how, **more)
    return path, visits


def contents(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and files of a .tar.gz bundle, paths below its root."""
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for info in archive:
            handle = archive.extractfile(info)
            if handle is not None:
                found[info.name.partition("/")[2]] = handle.read()
    manifest = json.loads(found.pop("manifest.json"))
    for entry in manifest["files"]:
        assert hashlib.sha256(found[entry["path"]]).hexdigest() == entry["sha256"]
    assert sorted(found) == sorted(e["path"] for e in manifest["files"])
    return manifest, found

"""Hosts as the user named them, and what they may be called in a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_HOSTS = 10_000
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_][\w.+-]*@)?\[?[A-Za-z0-9_][A-Za-z0-9_.:%-]*\]?", re.ASCII)
RESERVED = frozenset(("job", "manifest.json", "con", "nul"))


class BadHosts(ValueError):
    """What was named cannot be hosts; the text says why."""


def expand(texts: Iterable[str]) -> list[str]:
    """Node sets such as `node[001-128],login1` or `@rack4` as single names, each once, in order. BadHosts."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException, std_group_resolver

    found: dict[str, None] = {}
    for text in texts:
        if _size(text) > MAX_HOSTS:
            raise BadHosts(f"{text:.80}: more than {MAX_HOSTS:,} hosts")
        try:
            nodes = NodeSet(",".join(text.replace(",", " ").split()), resolver=std_group_resolver())
            found.update(dict.fromkeys(nodes))
        except NodeSetException as error:
            raise BadHosts(f"{text}: {error}") from error
    if not found:
        raise BadHosts("no host is named")
    if len(found) > MAX_HOSTS:
        raise BadHosts(f"more than {MAX_HOSTS:,} hosts")
    return checked(found)


def _size(text: str) -> int:
    """Hosts that the ranges in a text stand for at most; ClusterShell would first make them all."""
    total = 0
    for part in re.split(r",(?![^\[]*\])", text):
        size = 1
        for inner in re.findall(r"\[([^\]]*)\]", part):
            ranges = [re.fullmatch(r"(\d{1,12})-(\d{1,12})(?:/\d+)?", piece.strip()) for piece in inner.split(",")]
            size *= max(1, sum(int(r[2]) - int(r[1]) + 1 if r and int(r[2]) > int(r[1]) else 1 for r in ranges))
        total += size
    return total


def checked(names: Iterable[str]) -> list[str]:
    """The names, if all can be addresses: one that starts with a dash would be an option of ssh. BadHosts."""
    names = list(names)
    for name in names:
        if len(name) > 255 or not _ADDRESS.fullmatch(name):
            raise BadHosts(f"{name!r:.80} is no host name or address")
    return names


def read_host_file(text: str) -> list[str]:
    """Host names of a host file: the first word of each line, `#` starts a comment (form: MPI and DeepSpeed)."""
    words = (line.partition("#")[0].split() for line in text.splitlines())
    return [parts[0] for parts in words if parts]


def host_of(address: str) -> str:
    """The host in `user@host` and `[2001:db8::1]`."""
    return address.rpartition("@")[2].strip("[]")


def folders(names: Iterable[str]) -> dict[str, str]:
    """A folder name for each host: safe on every file system, different even where case does not count."""
    taken: set[str] = set()
    made: dict[str, str] = {}
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", host_of(name))[:100].strip(".-_") or "host"
        folder, count = safe, 1
        while folder.lower() in taken or folder.lower() in RESERVED:
            count += 1
            folder = f"{safe}-{count}"
        taken.add(folder.lower())
        made[name] = folder
    return made

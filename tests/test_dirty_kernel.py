"""Kernel logs behind prefixes: what happened long ago stays old, whatever stands before the kernel's own stamp."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import dirt
from tests.test_dirty_matrix import FIXTURES, counted, judged, quick

__all__ = ["quick"]

OLD = ("nfs: server", "oom-kill:")
LOGS = [p for p in sorted(FIXTURES.glob("healthy-*/*/kernel/dmesg-T.txt")) if any(x in p.read_text() for x in OLD)]
HOST = dirt.PREFIX_HOST
_DATE = re.compile(r"\[(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\] (.*)")
MORE: dict[str, Callable[[str], str]] = {
    "short-precise": lambda line: f"Mar 19 21:20:09.123456 {HOST} kernel: {line}",
    "short-iso": lambda line: f"2026-03-19T21:20:09+0000 {HOST} kernel: {line}",
    "short-monotonic": lambda line: f"[  123.456789] {HOST} kernel: {line}",
    "with-unit": lambda line: f"Thu 2026-03-19 21:20:09 UTC {HOST} init.scope[1]: {line}",
    "compose-stamps": lambda line: f"svc-1  | 2026-03-19T21:20:09.123456789Z {line}",
    "compose-coloured": lambda line: f"\x1b[36msvc-1  | \x1b[0m{line}",
    "grep-h": lambda line: f"logs/dmesg.txt:{line}",
    "grep-hn": lambda line: f"dmesg.txt:12:{line}",
    "cloudwatch": lambda line: f"1763400000000\t{line}",
    "klog": lambda line: f"I0319 21:20:09.123456       1 main.go:12] {line}",
    "logfmt": lambda line: f'time="2026-03-19T21:20:09Z" level=info msg="{line}"',
    "supervisord": lambda line: f"2026-03-19 21:20:09,123 INFO {line}",
    "clock-time": lambda line: f"21:20:09 {line}",
    "diff": lambda line: f"+{line}",
    "unknown": lambda line: f"%% site-7 #44 ({HOST}) -> {line}",
}


def since_boot(text: str) -> str:
    """The same log as plain dmesg prints it."""
    found: list[str] = []
    began: int | None = None
    for line in text.splitlines():
        m = _DATE.fullmatch(line)
        assert m is not None, line
        at = calendar.timegm(time.strptime(m[1], "%a %b %d %H:%M:%S %Y"))
        began = at if began is None else began
        found.append(f"[{at - began + 1:5d}.123456] {m[2]}")
    return "\n".join(found) + "\n"


@pytest.mark.parametrize("stamps", ["dates", "since-boot"])
@pytest.mark.parametrize("log", LOGS, ids=lambda p: p.parts[-3])
def test_a_healthy_kernel_log_is_read_and_quiet(log: Path, stamps: str, tmp_path: Path) -> None:
    text = log.read_text("utf-8")
    if stamps == "since-boot":
        text = since_boot(text)
    wrong: list[str] = []
    spoilers = dict(dirt.MUTATIONS) | {name: dirt.each(change) for name, change in MORE.items()}
    for name, spoil in spoilers.items():
        file = tmp_path / f"{name}.txt"
        file.write_bytes(spoil(text))
        diagnosis = judged(file)
        wrong += [f"{name}: {f.id}" for f in counted(diagnosis)]
        if diagnosis is None or "kmsg" not in diagnosis.sources[0].kinds:
            wrong.append(f"{name}: not read")
    assert not wrong


def test_two_incidents_a_day_apart_are_two(tmp_path: Path) -> None:
    """A file server that was away last week and is away now."""
    lost = "nfs: server 192.0.2.9 not responding, still trying"
    file = tmp_path / "dmesg.txt"
    for spoil in (lambda text: text, lambda text: since_boot(text)):
        text = (
            f"[Mon Mar  2 08:00:00 2026] {lost}\n[Mon Mar  9 08:00:00 2026] {lost}\n[Mon Mar  9 08:10:00 2026] x: y\n"
        )
        file.write_text(spoil(text), "utf-8")
        diagnosis = judged(file)
        assert [f.id for f in counted(diagnosis)] == ["storage/mount-not-responding"]


def test_messages_of_interleaved_hosts_and_tasks_stay_apart(tmp_path: Path) -> None:
    kill = [
        "[ 99.000001] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a,task=py,pid={}",
        "[ 99.000002] Memory cgroup out of memory: Killed process {} (py) total-vm:8112044kB, anon-rss:4120344kB",
    ]
    text = "".join(f"gpu-{n}: {line.format(70 + n)},uid=0\n" for line in kill for n in (1, 2))
    file = tmp_path / "dmesg.txt"
    file.write_text(text, "utf-8")
    diagnosis = judged(file)
    assert {s.name for f in counted(diagnosis) if f.id == "host/oom-kill" for s in f.subjects if s.kind == "host"} == {
        "gpu-1", "gpu-2",
    }  # fmt: skip

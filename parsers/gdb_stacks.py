"""Native stacks: gdb's `thread apply all bt`, pstack, gstack. What a thread waits for is told by the libraries in it.

Formats: gdb 7 to 15 (threads in descending order, noise about missing sources before), pstack. A thread becomes a
`python_stack` like those of py-spy, whose `function` is the innermost frame outside the C library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence, unprefix

KIND = "gdb_stacks"
TOPICS = ("stacks",)

_THREAD = re.compile(
    r"Thread (?P<number>\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (?P<lwp>\d{1,9})\)?"
    r'(?: "(?P<name>[^"]{0,60})")?\)'
)
_FRAME = re.compile(r"#(?P<n>\d{1,4}) {1,4}(?:0x[0-9a-f]{1,16} in )?(?P<function>[^(\s][^(]{0,200}?) ?\((?P<rest>.*)$")
_PLACE = re.compile(r"\) (?:at (?P<file>[^\s:]{1,300}):(?P<line>\d{1,9})|from (?P<library>\S{1,300}))\s*$")
_PROCESS = re.compile(
    r"\[Inferior \d{1,4} \(process (?P<a>\d{1,9})\) detached\]|[Aa]ttach(?:ing|ed)? to process (?P<b>\d{1,9})"
)

_PLUMBING = re.compile(r"(?:^|/)(?:libc|libpthread|ld-linux)[.-]|sysdeps|nptl/")
_LOCK = r"futex|pthread_(?:cond|mutex|rwlock)|sem_(?:timed|clock)?wait|take_gil|PyThread_acquire|lll_lock"
_IO = r"\b_*(?:GI_*)*(?:read|write|p(?:read|write)64|recv\w*|send\w*|poll|select|epoll_wait|fsync|open\w*)\b"
_WAITS = (
    ("collective", re.compile(r"\bnccl[A-Z]\w+|libnccl|c10d::|ProcessGroup(?:NCCL|Gloo)|gloo::")),
    ("cuda", re.compile(r"libcuda\.so|libcudart|\bcu(?:da)?(?:Stream|Event|Ctx|Device|Launch|Mem)\w*")),
    ("compile", re.compile(r"libnvrtc|libtriton|llvm::|ptxas")),
    ("sleep", re.compile(r"nanosleep|\busleep\b|\bpysleep\b|time_sleep")),
    ("lock", re.compile(_LOCK)),
    ("io", re.compile(_IO)),
)  # fmt: skip
MAX_FRAMES = 200
MAX_TEXT = 500


@dataclass(slots=True)
class _Thread:
    number: int
    lwp: int
    name: str
    line: Line
    frames: list[tuple[str, str, int | None]] = field(default_factory=list)


def sniff(head: str, name: str) -> float:
    """0.9 for a thread heading with its LWP and a frame."""
    return 0.9 if "(LWP " in head and _THREAD.search(head) and "\n#0 " in head.replace("\r", "") else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `python_stack` per thread."""
    threads: list[_Thread] = []
    for line in lines:
        if line.text[:1] == "#" and threads and len(threads[-1].frames) >= MAX_FRAMES:
            continue
        text = unprefix(line.text).text.strip() if "Thread " in line.text or "#" in line.text else line.text
        m = _THREAD.match(text)
        if m:
            threads.append(_Thread(int(m["number"]), int(m["lwp"]), m["name"] or "", line))
            continue
        m = _PROCESS.search(text)
        if m:
            yield from _records(threads, int(m["a"] or m["b"]) if m["a"] else None, source)
            threads = [] if m["a"] else threads
            continue
        m = _FRAME.match(text)
        if m and threads and len(threads[-1].frames) < MAX_FRAMES:
            place = _PLACE.search(text)
            file = (place["file"] or place["library"]) if place else ""
            number = int(place["line"]) if place and place["line"] else None
            threads[-1].frames.append((m["function"].strip(), file, number))
    yield from _records(threads, None, source)


def _records(threads: list[_Thread], pid: int | None, source: Source) -> Iterator[Record]:
    """The threads of one process; its first thread's LWP is its id where none is printed."""
    if pid is None:
        pid = next((t.lwp for t in threads if t.number == 1), None)
    for thread in threads:
        if not thread.frames:
            continue
        shown = next((f for f in thread.frames if not _PLUMBING.search(f[1])), thread.frames[0])
        folded = " < ".join(f"{name} ({file.rsplit('/', 1)[-1]})" for name, file, _ in thread.frames)
        fields: dict[str, Any] = {
            "thread": thread.name or str(thread.lwp), "main": thread.number == 1 or thread.lwp == pid,
            "function": shown[0][:200], "file": shown[1][:300], "frames": folded[:MAX_TEXT],
            "where": where(thread.frames),
        }  # fmt: skip
        if shown[2] is not None:
            fields["line"] = shown[2]
        if pid is not None:
            fields["pid"] = pid
        yield Record("python_stack", fields, (evidence(source, thread.line),))


def where(frames: list[tuple[str, str, int | None]]) -> str:
    """collective, cuda, compile, sleep, lock, io or other: a library anywhere in the stack, else the innermost call."""
    texts = [f"{name} {file}" for name, file, _ in frames]
    for word, pattern in _WAITS[:3]:
        if any(pattern.search(text) for text in texts):
            return word
    for text in texts[:4]:
        for word, pattern in _WAITS[3:]:
            if pattern.search(text):
                return word
    return "other"

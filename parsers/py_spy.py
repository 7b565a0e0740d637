"""Python stacks as `py-spy dump` prints them (0.3 to 0.4: `--native`, `--locals`, `--subprocesses`, `--json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diagnose.model import Line, Record, Source
from diagnose.parsing import Prefix, evidence, problem, unprefix

KIND = "py_spy"
TOPICS = ("stacks",)

_PROCESS = re.compile(r"(?:[\w.-]{1,80}(?::|\s{1,20}\|) )?\s*Process (?P<pid>\d{1,9}): (?P<command>.*)$")
_THREAD = re.compile(
    r"\s*Thread (?P<id>0x[0-9A-Fa-f]{1,16}|\d{1,20}) \((?P<state>active|idle)(?P<gil>\+gil)?\)"
    r'(?:: ?"?(?P<name>[^"]{0,200})"?)?\s*$'
)
_FRAME = re.compile(r"\s{2,16}(?P<function>\S.{0,300}) \((?P<file>[^():]{1,300})(?::(?P<line>\d{1,9}))?\)\s*$")
_REFUSED = re.compile(
    r"Error: Failed to (?:get process executable name|suspend process|find python version)"
    r"|Permission Denied: Try running again|Can't get native stack traces with the --nonblocking option"
    r"|Failed to copy (?:PyInterpreterState|PyCodeObject|PyFrameObject)"
)

_MAX_FRAMES = 400
_MAX_STACK_TEXT = 500
_MAX_JSON = 64 << 20
_JSON = re.compile(r"\s*\[\s*(?:\{|$)")


@dataclass(slots=True)
class _Frame:
    function: str
    file: str
    line: int | None


@dataclass(slots=True)
class _Thread:
    pid: int | None
    name: str
    thread_id: int | None
    active: bool
    gil: bool
    lines: list[Line]
    rank: int | None = None
    frames: list[_Frame] = field(default_factory=list[_Frame])


def sniff(head: str, name: str) -> float:
    """0.9 for a process heading with a thread heading, or the JSON form; 0.5 for a thread heading or an error alone."""
    if '"owns_gil"' in head and '"thread_id"' in head:
        return 0.9
    if "Thread " in head and re.search(
        r"^\s*Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:active|idle)(?:\+gil)?\)", head, re.MULTILINE
    ):
        return 0.9
    return 0.5 if "py-spy" in head and _REFUSED.search(head) else 0.0


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `python_stack` per thread; identical stacks of a process are one with a count."""
    lines = list(lines)
    start = next((line for line in lines if line.text.strip()), None)
    if start is not None and _JSON.match(start.text) and any('"owns_gil"' in line.text for line in lines):
        yield from _records(_json_threads(lines, source), source)
        return
    for line in lines:
        if _REFUSED.search(line.text):
            yield problem(source, f"py-spy could not read the process: {line.text.strip()[:200]}", line)
    yield from _records(_threads(lines), source)


def _threads(lines: list[Line]) -> Iterator[_Thread]:
    pid: int | None = None
    thread: _Thread | None = None
    for line in lines:
        bare = line.text[:4] == "    " and line.text[4:5].isalpha()  # a frame without a prefix: there may be millions
        if bare and thread is not None and len(thread.frames) >= _MAX_FRAMES:
            continue
        prefix = Prefix(line.text) if bare else unprefix(line.text)
        text = prefix.text
        m = _PROCESS.match(text)
        if m:
            if thread:
                yield thread
            pid, thread = int(m["pid"]), None
            continue
        m = _THREAD.match(text)
        if m:
            if thread:
                yield thread
            number = int(m["id"], 16) if m["id"].startswith("0x") else int(m["id"])
            name = (m["name"] or m["id"]).strip()
            thread = _Thread(pid, name, number, m["state"] == "active", bool(m["gil"]), [line])
            if "[rank" in line.text[: prefix.offset]:
                thread.rank = prefix.rank
            continue
        if thread is None or len(thread.frames) >= _MAX_FRAMES:
            continue
        m = _FRAME.match(text)
        if m:
            thread.frames.append(_Frame(m["function"], m["file"], int(m["line"]) if m["line"] else None))
            thread.lines.append(line)
        elif text.strip() and not text.startswith(" "):
            yield thread
            thread = None
    if thread:
        yield thread


def _json_threads(lines: list[Line], source: Source) -> Iterator[_Thread | Record]:
    text = "\n".join(line.text for line in lines)
    try:
        found = json.loads(text) if len(text) <= _MAX_JSON else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        yield problem(source, "py-spy's JSON is cut off or damaged", lines[0])
        return
    at = {m.group(1): line for line in lines if (m := re.search(r'"os_thread_id": ?(\d{1,20})', line.text))}
    for item in found:
        if not isinstance(item, dict) or not isinstance(item.get("frames"), list):
            continue
        os_id, pid = item.get("os_thread_id"), item.get("pid")
        line = at.get(str(os_id), lines[0])
        thread = _Thread(
            pid if isinstance(pid, int) else None,
            str(item.get("thread_name") or os_id or item.get("thread_id") or "")[:200],
            os_id if isinstance(os_id, int) else None,
            item.get("active") is True,
            item.get("owns_gil") is True,
            [line],
        )
        thread.frames = [frame for entry in item["frames"][:_MAX_FRAMES] if (frame := _json_frame(entry))]
        yield thread


def _json_frame(entry: Any) -> _Frame | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    line = entry.get("line")
    file = entry.get("short_filename") or entry.get("filename") or ""
    return _Frame(entry["name"][:200], str(file)[:300], line if isinstance(line, int) and line > 0 else None)


def _records(threads: Iterable[_Thread | Record], source: Source) -> Iterator[Record]:
    seen: dict[tuple[Any, ...], Record] = {}
    for thread in threads:
        if isinstance(thread, Record):
            yield thread
            continue
        if not thread.frames:
            continue
        record = _record(thread, source)
        key = (thread.rank, thread.pid, record.fields.get("main"), thread.active, thread.gil, record.fields["frames"])
        old = seen.get(key)
        seen[key] = (
            record if old is None else Record(old.kind, old.fields, old.evidence, rank=old.rank, count=old.count + 1)
        )
    yield from seen.values()


def _record(thread: _Thread, source: Source) -> Record:
    python = next((f for f in thread.frames if f.line is not None and ".py" in f.file), thread.frames[0])
    folded = " < ".join(f"{f.function} ({f.file}{f':{f.line}' if f.line is not None else ''})" for f in thread.frames)
    fields: dict[str, Any] = {
        "thread": thread.name,
        "active": thread.active,
        "gil": thread.gil,
        "main": thread.name == "MainThread" or (thread.thread_id is not None and thread.thread_id == thread.pid),
        "function": python.function,
        "file": python.file,
        "frames": folded[:_MAX_STACK_TEXT],
        "where": where(thread.frames),
    }
    if python.line is not None:
        fields["line"] = python.line
    if thread.pid is not None:
        fields["pid"] = thread.pid
    return Record(
        "python_stack", fields, (evidence(source, thread.lines[0], *_adjacent(thread.lines)),), rank=thread.rank
    )


def _adjacent(lines: list[Line]) -> list[Line]:
    return [line for n, line in enumerate(lines[1:20], 1) if line.number == lines[0].number + n]


# --- what a stack waits for -----------------------------------------------------------------------------

# Patterns over `function (file)`. A specific one counts wherever the innermost such frame stands; a generic one
# (a lock, a read, a sleep) only when no frame is specific, since loaders and collectives wait in locks too.
_SPECIFIC: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "collective",
        re.compile(
            r"distributed_c10d\.py|distributed/(?:_functional_collectives|nn/functional)|\blibnccl|\bnccl[A-Z]\w+|c10d::"
            r"|^(?:all_reduce|all_gather\w*|_all_gather_base|reduce_scatter\w*|all_to_all\w*|barrier|monitored_barrier"
            r"|batch_isend_irecv|broadcast_object_list|_allgather_base|all_gather_object)\b"
        ),
    ),
    (
        "dataloader",
        re.compile(r"utils/data/(?:dataloader|_utils)|^(?:_worker_loop|_try_get_data|_next_data|_get_data)\b"),
    ),
    (
        "checkpoint",  # of the state; torch/utils/checkpoint.py recomputes activations
        re.compile(
            r"^(?:save|load|write|restore|_save|_load)_\w*(?:checkpoint|state_dict)|distributed/checkpoint/"
            r"|checkpoint_engine|(?<!activation_checkpointing/)checkpointing\.py|torch/serialization\.py|safetensors"
        ),
    ),
    (
        "compile",
        re.compile(r"torch/_(?:dynamo|inductor)|triton/(?:compiler|runtime/(?:jit|autotuner))|async_compile|nvrtc"),
    ),
    (
        "cuda",
        re.compile(
            r"torch/cuda/(?:__init__|streams|memory|graphs)\.py|cuda(?:Stream|Event|Device)Synchronize|\blibcuda\.so"
            r"|cuMemcpy|cuStream|cudaLaunchKernel|cudaMemcpy"
        ),
    ),
)
_GENERIC: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sleep", re.compile(r"^(?:sleep|time_sleep|clock_nanosleep|__nanosleep|pysleep)\b")),
    (
        "lock",
        re.compile(
            r"^(?:wait|wait_for|join|acquire|__enter__|_wait_for_tstate_lock|_acquire_restore) \(threading\.py"
            r"|^lock\b|queue\.py|filelock|pthread_cond|futex|sem_(?:timed)?wait|concurrent/futures"
            r"|multiprocessing/(?:synchronize|queues|connection|popen_\w+)"
        ),
    ),
    (
        "io",
        re.compile(
            r"\b(?:socket|ssl|subprocess|selectors|shutil|gzip|zipfile|tarfile)\.py|http/client|urllib3|requests/"
            r"|botocore|fsspec|s3fs|gcsfs|^(?:read|write|open|recv|recv_into|readinto|flush|fsync|_read|pread64|__read"
            r"|__write|__open64|poll|epoll_wait)\b"
        ),
    ),
)


def where(frames: list[_Frame]) -> str:
    """collective, dataloader, checkpoint, compile, cuda, sleep, lock, io or other; innermost frame first."""
    texts = [f"{f.function.rsplit('.', 1)[-1]} ({f.file})" for f in frames]
    for text in texts:
        for name, pattern in _SPECIFIC:
            if pattern.search(text):
                return name
    for text in texts[:4]:
        for name, pattern in _GENERIC:
            if pattern.search(text):
                return name
    return "other"

"""Python tracebacks: one per rank and chain, also interleaved with other ranks, torn or inside a worker's message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ._head import Segment
from ._messages import continues
from ._window import Window, identity

HEADER = "Traceback (most recent call last)"
CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_HARMLESS_BEFORE = ("Exception ignored in", "--- Logging error ---", "Exception ignored on")

_FRAME = re.compile(r'File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<function>[^\n]{1,200}))?')
_EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,80}\.){1,12}[A-Z]\w{0,80}"
    r"|[A-Za-z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Iteration|Timeout|Warning|Failure|Invalid|Empty|Full|Died|Abort))"
    r"(?::\s?(?P<message>.*))?$"
)
_BARE = re.compile(
    r"(?P<type>(?:[a-z_]\w{0,80}\.){0,12}(?:[A-Z]\w{0,60}(?:Error|Exception|Interrupt)))(?::\s(?P<message>.*)|)$"
)
_TAG = re.compile(r"[\w.-]{1,80}(?::|\s{1,20}\|) ?$")
_MAX_CONTINUED = 14
_MAX_OWN = 400
_MAX_FOREIGN = 50
_MAX_WORKER = 120


@dataclass(slots=True)
class Raised:
    """One exception: type without its module path kept short, message (may have several lines), innermost frame."""

    type: str
    message: str = ""
    file: str | None = None
    line: int | None = None
    function: str | None = None


@dataclass(slots=True)
class Trace:
    """A chain of exceptions as one rank printed it; the last one is what ended the rank. `used` are line indices."""

    chain: list[Raised] = field(default_factory=list[Raised])
    used: list[int] = field(default_factory=list[int])
    harmless: bool = False


def follow(window: Window, index: int, segment: Segment, lead: str = "") -> Iterator[tuple[int, str]]:
    """The lines after `index` that the same speaker printed, without prefixes. Lines of other ranks are passed over.

    `lead` is what stood before the record on its first line: when it is a tag like `node-b: `, the speaker's lines all
    bear it.
    """
    tag = lead if _TAG.match(lead) else ""
    own = 0
    for following in window.lines_of(identity(segment), index):
        first = window.segment(following)
        if first.origin:
            continue
        own += 1
        if own > _MAX_OWN:
            return
        if not tag:
            yield following, first.text
        elif first.text.startswith(tag.rstrip()):
            yield following, first.text[len(tag) :]


def read_trace(window: Window, index: int, segment: Segment) -> Trace | None:
    """The traceback whose header stands on line `index`; None when another process's header interrupts it."""
    trace = Trace(used=[index])
    before = "\n".join(window.lines[max(0, index - 2) : index])  # two: the sentence may have been wrapped
    trace.harmless = any(literal in before for literal in _HARMLESS_BEFORE)
    indent = _indent(segment.text)
    raised = Raised("")
    awaiting = "frames"  # then "more" (message, chain sentence), then "header"
    foreign = blanks = continued = 0
    worker = ""
    for following, text in follow(window, index, segment):
        stripped = text.strip()
        if awaiting == "frames":
            frame = _FRAME.match(stripped)
            if frame:
                outermost = raised.file is None and not trace.chain
                raised.file, raised.line = frame["file"], int(frame["line"])
                raised.function = frame["function"].strip() if frame["function"] else None
                trace.harmless |= outermost and raised.function == "__del__"  # Python ignores those
            elif HEADER in stripped:
                return None
            elif stripped and _indent(text) <= indent:
                m = _EXCEPTION.match(stripped)
                if m is None:
                    foreign += 1
                    if foreign > _MAX_FOREIGN:
                        break
                    continue
                raised.type, raised.message = m["type"], (m["message"] or "").strip() + worker
                trace.chain.append(raised)
                awaiting, blanks, continued, foreign, worker = "more", 0, 0, 0, ""
        elif not stripped:
            blanks += 1
            continue
        elif stripped.startswith(CHAINED):
            awaiting = "header"
        elif HEADER in stripped:
            if stripped.startswith("Original"):
                trace.chain.pop()
                worker = f" ({raised.message[:_MAX_WORKER]})"
            elif awaiting != "header":
                break
            raised, awaiting = Raised(""), "frames"
        elif (
            awaiting == "more"
            and not blanks
            and not foreign
            and continued < _MAX_CONTINUED
            and continues(raised.message, stripped)
        ):
            raised.message += "\n" + stripped
            continued += 1
        else:
            foreign += 1
            if foreign > _MAX_CONTINUED:
                break
            continue
        trace.used.append(following)
    return trace


def bare(text: str) -> Raised | None:
    """An exception line whose traceback is missing."""
    m = _BARE.match(text.strip())
    return Raised(m["type"], (m["message"] or "").strip()) if m else None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" \t"))


# --- cause ------------------------------------------------------------------------------------------------

_BY_MESSAGE: tuple[tuple[str, str], ...] = (
    ("CUDA out of memory", "gpu_oom"),
    ("HIP out of memory", "gpu_oom"),
    ("CUDA error: out of memory", "gpu_oom"),
    ("CUBLAS_STATUS_ALLOC_FAILED", "gpu_oom"),
    ("DefaultCPUAllocator", "host_oom"),
    ("Cannot allocate memory", "host_oom"),
    ("can't allocate memory", "host_oom"),
    ("std::bad_alloc", "host_oom"),
    ("Detected mismatch between collectives", "collective"),
    ("monitoredBarrier", "collective"),
    ("NCCL error", "collective"),
    ("NCCL Error", "collective"),
    ("ncclUnhandledCudaError", "collective"),
    ("NCCL communicator", "collective"),
    ("Watchdog caught", "collective"),
    ("collective operation timeout", "collective"),
    ("unbound_buffer", "collective"),
    ("gloo/transport", "collective"),
    ("client socket has", "network"),
    ("server socket has", "network"),
    ("store based barrier", "network"),
    ("node running low on memory", "host_oom"),
    ("No space left on device", "io"),
    ("Disk quota exceeded", "io"),
    ("Input/output error", "io"),
    ("Stale file handle", "io"),
    ("Transport endpoint is not connected", "io"),
    ("PytorchStreamWriter failed", "io"),
    ("PytorchStreamReader failed", "io"),
    ("cannot open shared object file", "import"),
    ("undefined symbol", "import"),
    ("device-side assert", "assertion"),
    ("CUDA error", "gpu_error"),
    ("HIP error", "gpu_error"),
    ("CUBLAS_STATUS_", "gpu_error"),
    ("CUDNN_STATUS_", "gpu_error"),
    ("Triton Error [CUDA]", "gpu_error"),
    ("No CUDA GPUs are available", "gpu_error"),
    ("NVIDIA driver", "gpu_error"),
)
_BY_TYPE: dict[str, str] = {
    "OutOfMemoryError": "gpu_oom",
    "MemoryError": "host_oom",
    "DistBackendError": "collective",
    "DistError": "collective",
    "DistStoreError": "network",
    "DistNetworkError": "network",
    "RendezvousTimeoutError": "network",
    "RendezvousConnectionError": "network",
    "RendezvousClosedError": "network",
    "ConnectionError": "network",
    "ConnectionResetError": "network",
    "ConnectionRefusedError": "network",
    "ConnectTimeout": "network",
    "ReadTimeout": "network",
    "gaierror": "network",
    "HTTPError": "network",
    "MaxRetryError": "network",
    "FileNotFoundError": "io",
    "PermissionError": "io",
    "IsADirectoryError": "io",
    "NotADirectoryError": "io",
    "OSError": "io",
    "IOError": "io",
    "UnidentifiedImageError": "data",
    "JSONDecodeError": "data",
    "UnicodeDecodeError": "data",
    "ArrowInvalid": "data",
    "AssertionError": "assertion",
    "ImportError": "import",
    "ModuleNotFoundError": "import",
    "KeyboardInterrupt": "keyboard",
}
_NETWORK_ERRNO = re.compile(r"\[Errno (?:101|104|110|111|113)\]")


def cause_of(chain: list[Raised]) -> str:
    """Class of the chain's cause: that of the earliest exception that tells one."""
    return next((found for raised in chain if (found := _cause(raised)) != "other"), "other")


def _cause(raised: Raised) -> str:
    name = raised.type.rsplit(".", 1)[-1]
    for literal, cause in _BY_MESSAGE:
        if literal in raised.message:
            return cause
    if name in ("ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError") and "multiprocessing/" in (
        raised.file or ""
    ):
        return "other"  # a pipe to a worker of the same host
    if name in ("OSError", "IOError") and _NETWORK_ERRNO.search(raised.message):
        return "network"
    found = _BY_TYPE.get(name, "other")
    return "data" if found == "other" and "DataLoader worker" in raised.message else found

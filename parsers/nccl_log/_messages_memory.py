"""CUDA calls and shared-memory segments that failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.parsing import drop_none

from ._ledger import Place
from ._prefix import Head
from ._text import named, number_in

if TYPE_CHECKING:
    from ._reader import Reader

_CUDA = re.compile(r"(?:C(?:uda|UDA)|HIP) failure:? (?:(\d{1,6}) |\S{1,60}:\d{1,6} )?'([^'\n]{1,300})")
_IPC = re.compile(
    r"(?:failed to open (?:CUDA|HIP) IPC handle|(?:cuda|hip)Ipc(?:Get|Open|Close)MemHandle failed)"
    r" ?: (?:(\d{1,6}) )?(.{1,200})"
)
_CUDA_ERRORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("out_of_memory", re.compile(r"out of memory", re.I)),
    ("illegal_access", re.compile(r"illegal (?:memory access|address|instruction)|misaligned", re.I)),
    (
        "launch_failure",
        re.compile(r"launch (?:failure|failed|timed out|" r"timeout)|device-side assert|hardware stack", re.I),
    ),
    ("ecc", re.compile(r"\bECC\b|uncorrectable", re.I)),
    (
        "peer_access",
        re.compile(r"peer access|peer-?to-?peer|mapping of " r"buffer object failed|invalid device context", re.I),
    ),
    (
        "driver_too_old",
        re.compile(r"driver version is insufficient|unsupported " r"display driver|forward compatibility", re.I),
    ),
    (
        "not_initialised",
        re.compile(r"initialization error|not initialized|no " r"CUDA-capable|system not yet", re.I),
    ),
    ("shutting_down", re.compile(r"driver shutting down", re.I)),
)


def cuda(log: Reader, message: str, head: Head, place: Place) -> bool:
    """`Cuda failure [N] 'TEXT'`, `Test CUDA failure FILE:LINE 'TEXT'` of nccl-tests, and IPC handles of a neighbour."""
    found, error = _CUDA.search(message), None
    if found is None:
        found, error = _IPC.search(message), "ipc"
    if found is None:
        return False
    text = found.group(2) if error is None else message
    fields = drop_none(text=text, error=error or named(_CUDA_ERRORS, text),
                       code=int(found.group(1)) if found.group(1) else None, cuda_dev=head.dev)  # fmt: skip
    log.ledger.note("nccl_cuda_error", fields, head, place, own=True, track=True)
    return True


_SHM = re.compile(
    r"failed to (extend|open|create) (?:shared memory (?:file|mapping) )?(/\S{1,200}?),? "
    r"(?:to (\d{1,20}) bytes)?(?:,? ?error:? (.{1,120}))?"
    r"|Error while (creating|attaching to) shared memory segment "
    r"(\S{1,200}) \(size (\d{1,20})\)(?:, error: (.{1,120}))?"
    r"|Could not map (/\S{1,200})(?: size (\d{1,20}), error: (.{1,120}))?"
)
_SHM_CALL = re.compile(r"Call to (shm_open|posix_fallocate|shm_unlink|mmap|munmap) failed ?: (.{1,120})")
_PARENTHESIS = re.compile(r"\((\d{1,5})\)")


def shm(log: Reader, message: str, head: Head, place: Place) -> bool:
    """A shared-memory segment that could not be made, extended, attached or mapped."""
    found = _SHM.search(message + " ")
    if found is None:
        call = _SHM_CALL.search(message)
        if call is None:
            return False
        path, size, text = None, None, call.group(2)
    else:
        path = found.group(2) or found.group(6) or found.group(9)
        size = found.group(3) or found.group(7) or found.group(10)
        text = found.group(4) or found.group(8) or found.group(11) or ""
    number = number_in(_PARENTHESIS, text)
    low = text.lower()
    if "no space" in low or number == 28 or (not text and "failed to extend" in message):
        error = "no_space"
    elif ("no such file" in low or number == 2) and "unlink" not in message:
        error = "not_found"
    else:
        error = "other"
    fields = drop_none(path=path, bytes=int(size) if size else None, error=error, errno=number, text=message)
    log.ledger.note("nccl_shm_error", fields, head, place, (error, log.shape(message)), own=True, track=True)
    return True

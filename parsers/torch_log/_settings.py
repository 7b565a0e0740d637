"""Settings in force and backends of process groups, as logs print them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_OPTION = re.compile(r"\b([A-Z][A-Z0-9_]{3,60}(?:\(ms\))?): ([^,\s][^,]{0,200})")
_NAME = (
    r"(?:TORCH_(?:NCCL|FR|DISTRIBUTED|CPP|GLOO)_\w{1,60}|NCCL_(?:BLOCKING_WAIT|ASYNC_ERROR_HANDLING|DESYNC_DEBUG)"
    r"|CUDA_LAUNCH_BLOCKING)"
)
_ASSIGNED = re.compile(rf"({_NAME})=[\"']?([^\s\"']{{1,200}})[\"']?")
_ASSIGNMENTS = re.compile(rf"\s*(?:\+ )?(?:export |env )?(?:{_NAME}=\S{{1,200}}\s*){{1,20}}$")
_MINUTES = re.compile(r"\bdistributed_timeout_minutes[ .:=]{1,80}(\d{1,7})\b")
_BACKEND = re.compile(
    r"backend[\"']?(?: |\.{2,100}|:|=){0,3}[\"']?"
    r"((?:cpu:|cuda:)?(?:nccl|gloo|mpi|ucc)(?:,(?:cpu|cuda):(?:nccl|gloo|mpi|ucc))?)\b",
    re.IGNORECASE,
)
_INIT = re.compile(r"init_process_group\([\"'](nccl|gloo|mpi|ucc)\b", re.IGNORECASE)


def settings(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of settings that a message states to be in force; advice that merely names them is none."""
    if "ProcessGroupNCCL" in text and ("environments:" in text or "initialization options:" in text):
        for m in _OPTION.finditer(text):
            if m.group(1).startswith(("TORCH_", "NCCL_", "TIMEOUT")):
                yield m.group(1), m.group(2).strip()
    elif _ASSIGNMENTS.match(text):
        for m in _ASSIGNED.finditer(text):
            yield m.group(1), m.group(2)
    minutes = _MINUTES.search(text)
    if minutes:
        yield "distributed_timeout_minutes", minutes.group(1)


def backends(text: str) -> Iterator[dict[str, Any]]:
    """Backends named by a message: `backend nccl`, `distributed_backend=gloo`, `cpu:gloo,cuda:nccl`."""
    for m in (_BACKEND.search(text), _INIT.search(text)):
        if m is None:
            continue
        for part in m.group(1).lower().split(","):
            device, _, name = part.rpartition(":")
            yield {"backend": name if name != "ucc" else "other", "device": device or None}
        return

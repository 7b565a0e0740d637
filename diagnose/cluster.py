"""Batches of sources on a Dask cluster (extra `cluster`); workers need this package, the files travel as bytes.

Batches come back in order and are merged by `intake` as those of one process are.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from diagnose.intake import Batch, Mapper, Parsed

LOCAL = "local"
"""Instead of an address: a cluster of processes on this machine, for as long as the analysis takes."""


UNDER_WAY = 32
"""Batches (of 8 MiB at most) sent and not yet back."""


class NoCluster(Exception):
    """Dask is not installed, or no scheduler answers."""


def _elsewhere(function: Callable[[Batch], list[Parsed]], batch: Batch, contents: tuple[bytes, ...]) -> list[Parsed]:
    """Runs on a worker: parses copies of the batch's files, and gives the sources' places back as they were."""
    sources, folders, tz = batch
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        there = tuple(replace(s, location=f"{folder}/{n}") for n, s in enumerate(sources))
        for source, content in zip(there, contents, strict=True):
            Path(source.location).write_bytes(content)
        found = function((there, folders, tz))
    return [(replace(s, location=o.location), r, p) for (s, r, p), o in zip(found, sources, strict=True)]


@contextmanager
def mapper(address: str, timeout_s: float = 30.0) -> Iterator[Mapper]:
    """A mapper for `intake.parse_all` on the scheduler at `address`, or on a LocalCluster. Raises NoCluster."""
    try:
        dask = import_module("distributed")
    except ImportError:
        raise NoCluster("--scheduler needs Dask: pip install 'nccl-diagnose[cluster]'") from None
    try:
        place: Any = dask.LocalCluster(dashboard_address=None, processes=True) if address == LOCAL else address
        client = dask.Client(place, timeout=f"{timeout_s}s")
    except (OSError, ValueError) as error:
        raise NoCluster(f"no Dask scheduler at {address}: {error}") from None

    def run(function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> Iterator[list[Parsed]]:
        sent: deque[Any] = deque()
        for batch in batches:
            contents = tuple(Path(s.location).read_bytes() for s in batch[0])
            sent.append(client.submit(_elsewhere, function, batch, contents, pure=False))
            if len(sent) >= UNDER_WAY:
                yield sent.popleft().result()
        yield from (future.result() for future in sent)

    with client:
        yield run
    if address == LOCAL:
        place.close()

"""Batches of sources on a Dask cluster (extra `cluster`); workers need this package, the files travel as bytes.

Batches come back in order and are merged by `intake` as those of one process are.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from diagnose.intake import Batch, Mapper, Parsed
from diagnose.model import Source

LOCAL = "local"
"""Instead of an address: a cluster of processes on this machine, for as long as the analysis takes."""


UNDER_WAY = 32
"""Batches (of 8 MiB at most) sent and not yet back."""


class NoCluster(Exception):
    """Dask is not installed, no scheduler answers, or the workers failed."""


Contents = tuple[bytes | None, ...]


def contents_of(sources: Sequence[Source]) -> Contents:
    """The bytes of files; None for those that cannot be read any more."""
    found: list[bytes | None] = []
    for source in sources:
        try:
            found.append(Path(source.location).read_bytes())
        except OSError:
            found.append(None)
    return tuple(found)


def elsewhere(function: Callable[[Batch], list[Parsed]], batch: Batch, contents: Contents) -> list[Parsed]:
    """Runs on a worker: parses copies of the batch's files, and gives the sources' places back as they were."""
    sources, folders, tz = batch
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        there = tuple(replace(s, location=f"{folder}/{n}") for n, s in enumerate(sources))
        for source, content in zip(there, contents, strict=True):
            if content is not None:
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
    with ExitStack() as opened:
        try:
            place: Any = address
            if address == LOCAL:
                place = opened.enter_context(dask.LocalCluster(dashboard_address="127.0.0.1:0", processes=True))
            client = opened.enter_context(dask.Client(place, timeout=f"{timeout_s}s"))
        except (OSError, ValueError) as error:
            raise NoCluster(f"no Dask scheduler at {address}: {error}") from None

        def run(function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> Iterator[list[Parsed]]:
            sent: deque[Any] = deque()
            for batch in batches:
                sent.append(client.submit(elsewhere, function, batch, contents_of(batch[0]), pure=False))
                if len(sent) >= UNDER_WAY:
                    yield _result(sent.popleft())
            yield from (_result(future) for future in sent)

        yield run


def _result(future: Any) -> list[Parsed]:
    """What a worker made of a batch. Parsing raises nothing, so whatever is raised is the cluster's doing."""
    try:
        return future.result()
    except Exception as error:
        raise NoCluster(f"the Dask cluster failed: {type(error).__name__}: {error}"[:300]) from error

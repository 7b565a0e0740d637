"""What the screen needs of an opened case; `diagnose.run.Case` provides it, tests use a made-up one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from diagnose.model import Diagnosis, Line


class LineReader(Protocol):
    """Lines of one source by position: `reader[0]` is line 1. Reading a slice costs the slice, not the file."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice, /) -> Sequence[Line]: ...


class CaseLike(Protocol):
    """A diagnosis together with the texts that it points into."""

    @property
    def diagnosis(self) -> Diagnosis: ...

    def excerpt(self, source: str, first: int, last: int, context: int = 3) -> Sequence[Line]:
        """Lines `first`..`last` (1-based, inclusive) and `context` lines around them; empty when the text is gone."""
        ...

    def lines(self, source: str) -> LineReader | None:
        """All lines of a source; None when the text is gone. May take time on the first call."""
        ...


class ProgressLike(Protocol):
    """Where the analysis stands; `total` is 0 while unknown."""

    @property
    def stage(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...


OnProgress = Callable[[Any], None]
OpenCase = Callable[[OnProgress], AbstractContextManager[CaseLike]]
"""Opens and analyses; called in a thread. The case lives until the context manager is left."""


def window(reader: LineReader, first: int, last: int) -> list[Line]:
    """Lines `first`..`last` of a reader, 1-based and inclusive, as far as they exist."""
    return list(reader[max(0, first - 1) : max(0, last)])

"""The first collective at which the ranks of a group did something different, from the codes of their signatures."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.tables.progress.recorder import Row

_Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Divergence:
    """At `seq` the ranks called different things: code -> ranks, the majority first.

    `pattern` says how the odd ranks go on: `skipped` (they are one call early), `extra` (one late), `different`.
    """

    seq: int
    codes: Mapping[int, tuple[int, ...]]
    pattern: str


def divergence(rows: Mapping[int, Row]) -> Divergence | None:
    """The first number at which codes differ; None when they agree wherever they overlap."""
    streams: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, row in rows.items():
        codes, first = row.fact.fields.get("codes"), row.fact.fields.get("first_seq")
        if isinstance(codes, str) and isinstance(first, int):
            streams[first, codes].append(rank)
    if len(streams) < 2:
        return None
    decoded = {key: array for key in streams if (array := _decode(key[1])) is not None}
    if len(decoded) < 2:
        return None
    reference = max(decoded, key=lambda k: (len(streams[k]), len(decoded[k]), k))
    differing: dict[tuple[int, str], int] = {}
    for key, codes in decoded.items():
        seq = _first_difference(reference[0], decoded[reference], key[0], codes)
        if seq is not None:
            differing[key] = seq
    if not differing:
        return None
    seq = min(differing.values())
    votes: dict[int, list[int]] = defaultdict(list)
    for key, codes in decoded.items():
        if 0 <= seq - key[0] < len(codes) and codes[seq - key[0]]:
            votes[int(codes[seq - key[0]])] += streams[key]
    ordered = sorted(votes.items(), key=lambda item: (-len(item[1]), min(item[1])))
    if len(ordered) < 2:
        return None
    owner = {rank: key for key, ranks in streams.items() for rank in ranks}
    common, odd = owner[ordered[0][1][0]], owner[ordered[1][1][0]]
    pattern = _pattern(seq, common[0], decoded[common], odd[0], decoded[odd])
    return Divergence(seq, {code: tuple(sorted(ranks)) for code, ranks in ordered}, pattern)


def codes_at(rows: Mapping[int, Row], seq: int) -> list[int]:
    """Codes of the call with that number, one for each rank that has one."""
    found: list[int] = []
    for row in rows.values():
        text, first = row.fact.fields.get("codes"), row.fact.fields.get("first_seq")
        codes = _decode(text) if isinstance(text, str) else None
        if codes is not None and isinstance(first, int) and 0 <= seq - first < len(codes) and codes[seq - first]:
            found.append(int(codes[seq - first]))
    return found


def _decode(text: str) -> _Codes | None:
    try:
        raw = zlib.decompress(base64.b64decode(text))
        return np.frombuffer(raw, dtype="<u4")
    except (binascii.Error, zlib.error, ValueError):
        return None


def _first_difference(a_first: int, a: _Codes, b_first: int, b: _Codes) -> int | None:
    low, high = max(a_first, b_first), min(a_first + len(a), b_first + len(b))
    if low >= high:
        return None
    x, y = a[low - a_first : high - a_first], b[low - b_first : high - b_first]
    different = np.flatnonzero((x != y) & (x != 0) & (y != 0))
    return low + int(different[0]) if len(different) else None


def _pattern(seq: int, a_first: int, a: _Codes, b_first: int, b: _Codes) -> str:
    """How the odd sequence `b` relates to the common one from `seq` on: shifted by one call, or simply different."""
    x, y = a[seq - a_first :], b[seq - b_first :]
    for name, left, right in (("skipped", x[1:], y), ("extra", x, y[1:])):
        length = min(len(left), len(right))
        if length >= 2 and bool(np.all(left[:length] == right[:length])):
            return name
    return "different"


def texts_of(facts: list[str]) -> dict[int, str]:
    """Code -> signature, from the `signatures` of dumps."""
    found: dict[int, str] = {}
    for text in Counter(facts):
        for part in text.split(";"):
            code, _, words = part.partition("=")
            if code.isdecimal():
                found.setdefault(int(code), words)
    return found

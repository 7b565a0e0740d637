"""A dump boiled down: per process group the numbers reached, the first operation that did not complete, and a short
code for the signature of every collective, so that ranks can be compared without their entries.

An entry is read by its known keys; its sizes are taken only when they are lists of integers. Operations whose sizes may
differ between ranks (all-to-all, scatter, gather) have a signature without sizes.
"""

from __future__ import annotations

import base64
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

from diagnose.model import Evidence, Record, Source

from ._render import entry_line, entry_text, heading
from ._shape import Dump, common, fold_steps, shape, short
from ._signatures import UNKNOWN, Signatures, operation, signature_text
from ._transfers import MAX_PAIRS, P2P, Transfers

MAX_CODES = 4_096
"""Collectives per group whose signatures are kept, the newest."""
ROUND_S = 5.0
"""Operations that completed within one round of the watchdog were enqueued within so much (chosen by us): hosts run
ahead of their GPUs, but not for longer."""
MAX_LOST = 100
"""So many entries at the end may be lost; where `pg_status` tells of more, one of the two is wrong (chosen by us)."""
COALESCED = ":coalesced"
_STATES = ("scheduled", "started", "completed")

_FRAMES = re.compile(r"(?:^|/)(?:torch|torch_xla|apex|transformer_engine)/|/(?:contextlib|functools|threading)\.py$")


class _Progress:
    """What is added up for one process group."""

    __slots__ = (
        "coalesced", "codes", "completed", "desc", "done", "doubtful", "ends", "enqueued", "last", "lost", "members",
        "name", "newest", "parts", "pending", "seqs", "started", "status_only", "transfers",
    )  # fmt: skip

    def __init__(self, name: str, desc: str, members: tuple[int, ...]) -> None:
        self.name, self.desc, self.members = name, desc, members
        self.seqs: list[int] = []
        self.codes: list[int] = []
        self.enqueued = self.started = self.completed = -1
        self.pending: dict[int, int] = {}
        self.parts: set[int] = set()
        self.ends: dict[int, int] = {}
        self.doubtful: set[int] = set()
        self.coalesced = False
        self.done = self.last = self.newest = self.lost = -1
        self.transfers = Transfers(members)
        self.status_only = True

    def collective(self, seq: int, op: str, finished: bool, position: int) -> None:
        """Takes an entry. Parts of a coalesced call are recorded without events, under the number of its end, and read
        `scheduled` for ever: the end tells, and where the dump lacks it, the call was complete. They follow each
        other; the same number after others is a copy of an entry."""
        self.coalesced |= op.endswith(COALESCED)
        if finished:
            self.pending.pop(seq, None)
            self.parts.discard(seq)
        elif op.endswith(COALESCED):
            self.pending.setdefault(seq, position)
            self.ends[seq] = position
            self.parts.discard(seq)
        elif seq not in self.pending:
            self.pending[seq] = position
        elif seq == self.newest:
            self.parts.add(seq)
        self.newest = seq

    def close(self) -> None:
        """After the last entry. Of an unreadable state, what came before a completed operation is complete."""
        for seq in self.parts:
            del self.pending[seq]
            self.completed = max(self.completed, seq)
        for seq, position in list(self.pending.items()):
            if position < self.done and seq < self.completed and seq in self.doubtful:
                del self.pending[seq]

    @property
    def first_pending(self) -> int:
        """Position of the first collective that did not complete; -1 when all did."""
        return next(iter(self.pending.values()), -1)


def digest(raw: object, cut: bool, source: Source) -> Iterator[Record]:
    """The records of one dump."""
    dump = shape(raw)
    signatures = Signatures()
    groups: dict[tuple[int, str], _Progress] = {}
    own: dict[str, set[int]] = {}
    gloo = _backend(dump) == "gloo"
    bad = completed_seen = 0
    last_bad = -1
    for position, entry in enumerate(dump.entries):
        try:
            pg = entry.get("pg_id", -1)
            pair = entry.get("process_group")
            name = pair[0] if pair else short(pg, 20)
            op = entry["profiling_name"]
            state = entry["state"]
            if type(pg) is not int or type(name) is not str or type(op) is not str:
                raise TypeError
            progress = groups.get((pg, name))
            if progress is None:
                progress = groups[pg, name] = _new(dump, pg, name, pair)
            is_p2p = entry.get("is_p2p")
            finished = state == "completed" or (gloo and entry.get("retired") is True)
            if is_p2p or (is_p2p is None and P2P.match(op)):
                number = entry.get("p2p_seq_id", entry.get("seq_id"))
                mine = progress.transfers.add(op, number, finished, position)
                if mine is not None:
                    progress.status_only = False
                    own.setdefault(progress.name, set()).add(mine)
                completed_seen += finished
                continue
            seq = entry.get("collective_seq_id")
            if seq is None:
                seq = entry["seq_id"]
            if type(seq) is not int or not -1 <= seq < 1 << 60:
                raise TypeError
            code = signatures.code(entry)
            progress.collective(seq, op, finished, position)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            bad += 1
            last_bad = position
            continue
        if state not in _STATES:
            progress.doubtful.add(seq)
        progress.status_only = False
        progress.seqs.append(seq)
        progress.codes.append(code)
        progress.last = position
        if seq > progress.enqueued:
            progress.enqueued = seq
        if finished:
            completed_seen += 1
            if seq > progress.completed:
                progress.completed, progress.done = seq, position
        if finished or state == "started":
            progress.started = max(progress.started, seq)
    if dump.entries and bad == len(dump.entries):
        raise ValueError("a flight-recorder dump, but none of its entries can be read")
    for progress in groups.values():
        progress.close()
    _take_status(dump, groups)
    rank, candidates = _identity(dump, groups, own)
    open_end = cut or 0 <= last_bad == len(dump.entries) - 1
    yield _dump_record(dump, open_end, rank, candidates, groups, signatures, bool(completed_seen), source)
    if cut or bad:
        count = "1 entry" if bad == 1 else f"{bad} entries"
        text = "ends in the middle; what came before was read" if cut else f"{count} cannot be read"
        text += ", the last among them, so that how far its rank came is not known" if open_end and not cut else ""
        yield Record(
            "parse_problem",
            {"text": f"flight-recorder dump: {text}"},
            (_evidence(dump, len(dump.entries) - 1, source),),
        )
    for progress in groups.values():
        if len(progress.members) != 1 and (progress.seqs or progress.transfers.pending() or progress.enqueued >= 0):
            yield _group_record(dump, progress, rank, source)


def _backend(dump: Dump) -> str:
    for entry in dump.entries[:1]:
        name = entry.get("profiling_name") if isinstance(entry, dict) else None
        if isinstance(name, str) and ":" in name:
            return name.partition(":")[0][:20]
    return ""


def _new(dump: Dump, pg: Any, name: Any, pair: Any) -> _Progress:
    if not isinstance(name, str) or not isinstance(pg, int):
        raise TypeError
    desc = pair[1] if pair and len(pair) > 1 and isinstance(pair[1], str) else ""
    info = dump.groups.get(name) or dump.groups.get(str(pg) if not pair else "\0")
    if info is None:
        same = [g for g in dump.groups.values() if g.desc == desc and desc not in ("", "undefined")]
        info = same[0] if len(same) == 1 else next(iter(dump.groups.values())) if len(dump.groups) == 1 else None
    return _Progress(name[:200], (desc or (info.desc if info else ""))[:200], info.members if info else ())


def _take_status(dump: Dump, groups: dict[tuple[int, str], _Progress]) -> None:
    """Numbers of `pg_status` for groups whose entries were overwritten, where its ids can be told apart from others.

    Ids are local to a process and count its groups in the order of creation, as numeric names do: when as many ids as
    names are listed and the entries do not contradict, they pair up in order.
    """
    ids = sorted(dump.status)
    names = list(dump.groups)
    numeric = bool(names) and all(n.isdecimal() for n in names)
    paired = dict(zip(sorted(names, key=int), ids, strict=True)) if numeric and len(names) == len(ids) else {}
    if any(paired.get(name, pg) != pg for pg, name in groups):
        paired = {}
    seen = {name for _, name in groups}
    for name, pg in paired.items():
        if name not in seen:
            info = dump.groups[name]
            groups[pg, name] = _Progress(name, info.desc, info.members)
    for (pg, _), progress in groups.items():
        told = dump.status.get(pg)
        if not told or progress.transfers.seen or (not progress.status_only and not progress.seqs):
            continue  # the numbers of groups with point-to-point operations count those
        enqueued, started, completed = (
            _number(told.get(f"last_{n}_collective")) for n in ("enqueued", "started", "completed")
        )
        if progress.status_only:
            progress.enqueued, progress.started, progress.completed = enqueued, started, completed
        elif 0 <= enqueued - progress.enqueued <= MAX_LOST:
            if progress.first_pending < 0 and progress.enqueued <= max(progress.completed, completed) < enqueued:
                progress.lost = max(progress.completed, completed) + 1
            progress.enqueued = enqueued
            progress.completed = max(progress.completed, completed)
            progress.started = max(progress.started, started, progress.completed)


def _number(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,12}", value):
        value = int(value)
    return value if type(value) is int and -1 <= value < 1 << 31 else -1


def _identity(
    dump: Dump, groups: dict[tuple[int, str], _Progress], own: dict[str, set[int]]
) -> tuple[int | None, set[int]]:
    """The global rank when the content tells it, and the ranks that it could be."""
    by_name = {p.name: p.members for p in groups.values()}
    told = {by_name[n][i] for n, indices in own.items() if by_name.get(n) for i in indices if i < len(by_name[n])}
    candidates = common(dump.groups.values())
    if len(told) == 1:
        return told.pop(), candidates
    if len(candidates) == 1 and len(dump.groups) > 1:
        return next(iter(candidates)), candidates
    return None, candidates


def _time(entry: Any) -> float | None:
    at = entry.get("time_created_ns") if isinstance(entry, dict) else None
    return at / 1e9 if isinstance(at, int | float) and 0 < at < 1 << 62 else None


def _evidence(dump: Dump, position: int, source: Source) -> Evidence:
    if not 0 <= position < len(dump.entries):
        return Evidence(source.path, 1, 1, heading(dump))
    line = entry_line(dump, position)
    return Evidence(source.path, line, line, entry_text(dump.entries[position], dump))


def _dump_record(
    dump: Dump, cut: bool, rank: int | None, candidates: set[int], groups: dict[tuple[int, str], _Progress],
    signatures: Signatures, completed: bool, source: Source,
) -> Record:  # fmt: skip
    fields: dict[str, Any] = {
        "version": dump.version[:20], "entries": len(dump.entries), "groups": len(dump.groups),
        "only_active": bool(dump.entries) and not completed,
    }  # fmt: skip
    world = max((max(g.members) + 1 for g in dump.groups.values() if g.members), default=0)
    whole = next((g.members for g in dump.groups.values() if g.desc == "default_pg"), ())
    pending = [dump.entries[p.first_pending] for p in groups.values() if p.first_pending >= 0]
    limits = [t for e in pending if isinstance(t := e.get("timeout_ms"), int) and 0 < t < 1 << 40]
    texts = ";".join(f"{code}={text.replace(';', ',')}" for code, text in signatures.texts.items())
    optional = {
        "backend": _backend(dump), "identity": "content" if rank is not None else "", "world": world or None,
        "candidates": fold_steps(tuple(sorted(candidates))), "fresh": _fresh(dump) or None,
        "whole": fold_steps(whole),
        "first_at": _time(dump.entries[0]) if dump.entries else None,
        "last_at": _time(dump.entries[-1]) if dump.entries else None, "truncated": cut or None, "signatures": texts,
        "timeout_ms": float(max(limits)) if limits else None,
    }  # fmt: skip
    fields.update({name: value for name, value in optional.items() if value not in (None, "")})
    return Record("fr_dump", fields, (Evidence(source.path, 1, 1, heading(dump)),), rank=rank)


def _fresh(dump: Dump) -> int:
    """Completed operations that are not retired: the watchdog retires them every 100 ms. Where those stem from a longer
    time, it has stopped, or there is none."""
    fresh = [
        e for e in dump.entries if isinstance(e, dict) and e.get("state") == "completed" and e.get("retired") is False
    ]
    times = [at for e in fresh if (at := _time(e)) is not None]
    return len(fresh) if times and max(times) - min(times) <= ROUND_S else 0


def _group_record(dump: Dump, p: _Progress, rank: int | None, source: Source) -> Record:
    fields: dict[str, Any] = {"group": p.name}
    optional: dict[str, Any] = {
        "desc": p.desc, "members": fold_steps(p.members), "size": len(p.members) or None,
    }  # fmt: skip
    for name, number in (("enqueued", p.enqueued), ("started", p.started), ("completed", p.completed)):
        optional[name] = number if number >= 0 else None
    if p.seqs:
        optional["first_seq"], optional["codes"] = _codes(p)
        optional["last_op"] = operation(dump.entries[p.last]["profiling_name"][:80])
        optional["last_at"] = _time(dump.entries[p.last])
    if p.first_pending >= 0:
        entry = dump.entries[p.first_pending]
        seq = entry.get("collective_seq_id", entry.get("seq_id"))
        end = dump.entries[p.ends.get(seq, p.first_pending)]
        site, barrier = _site(entry)
        op = operation(short(entry["profiling_name"], 80))
        optional |= {
            "pending_seq": seq, "pending_retired": end.get("retired") is True or None,
            "pending_op": "barrier" if barrier or op.endswith("barrier") else op,
            "pending_signature": _safe_signature(entry), "pending_state": short(end["state"], 20),
            "pending_count": len(p.pending), "pending_order": p.first_pending, "pending_at": _time(entry),
            "pending_site": site,
        }  # fmt: skip
        later = next((at for number, at in p.pending.items() if number > p.completed and at > p.done), -1)
        if seq < p.completed and p.first_pending < p.done and later >= 0:
            entry = dump.entries[later]
            number = entry.get("collective_seq_id", entry.get("seq_id"))
            optional |= {"later_seq": number, "later_order": later, "later_at": _time(entry)}
    elif p.lost >= 0:
        optional |= {
            "pending_seq": p.lost,
            "pending_order": len(dump.entries),
            "pending_count": p.enqueued - p.lost + 1,
        }
    transfers = p.transfers.pending()
    if transfers:
        position, number, head = transfers[0]
        entry = dump.entries[position]
        pairs = sorted(Counter(pair for _, _, pairs in transfers for pair in pairs).items())[:MAX_PAIRS]
        optional |= {
            "p2p": " ".join(f"{kind}{peer}*{count}" for (kind, peer), count in pairs),
            "p2p_head": " ".join(f"{kind}{peer}" for kind, peer in sorted(set(head))[:MAX_PAIRS]),
            "p2p_op": operation(short(entry["profiling_name"], 80)), "p2p_order": position,
            "p2p_seq": number if number >= 0 else None, "p2p_at": _time(entry),
            "p2p_state": short(dump.entries[p.transfers.end(number, position)]["state"], 20),
        }  # fmt: skip
    fields.update({name: value for name, value in optional.items() if value not in (None, "")})
    shown = [x for x in (p.first_pending, *(t[0] for t in transfers[:1])) if x >= 0]
    return Record("fr_group", fields, (_evidence(dump, min(shown, default=p.last), source),), rank=rank)


def _codes(p: _Progress) -> tuple[int, str]:
    """Lowest number, and the packed codes from there on; of a number told twice (coalesced) the first counts, which of
    the lowest number may be overwritten."""
    first = max(min(p.seqs), p.enqueued - MAX_CODES + 1)
    codes = array("I", bytes(4 * (p.enqueued - first + 1)))
    for seq, code in zip(reversed(p.seqs), reversed(p.codes), strict=True):
        if seq >= first:
            codes[seq - first] = code
    if p.coalesced:
        codes[0] = UNKNOWN
    return first, base64.b64encode(zlib.compress(codes.tobytes(), 1)).decode()


def _safe_signature(entry: dict[str, Any]) -> str:
    try:
        return signature_text(entry)[:300]
    except (KeyError, TypeError, AttributeError):
        return ""


def _site(entry: dict[str, Any]) -> tuple[str, bool]:
    """Innermost frame outside torch, and whether torch's barrier called."""
    frames = entry.get("frames")
    barrier = False
    for frame in frames[:60] if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
        if not isinstance(name, str) or not isinstance(file, str):
            continue
        if name == "barrier" and "distributed_c10d" in file:
            barrier = True
        if not _FRAMES.search(file):
            place = "/".join(file.split("/")[-2:])[:120]
            where = f"{place}:{short(line, 20)}" if isinstance(line, int) else place
            return f"{name[:80]} ({where})", barrier
    return "", barrier

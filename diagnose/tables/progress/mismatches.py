"""Different collectives under one number, as time-outs show them and as PyTorch's own checks report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from diagnose.model import Fact, FactBase, Value, fold_ranks, unfold_ranks
from diagnose.tables.progress.stall import (
    some_evidence,
    what,
    who,
)
from diagnose.tables.progress.watchdog import TRANSFERS, groups

Signature = tuple[Value | None, ...]
UNEVEN = ("ALLTOALL", "SEND", "RECV", "GATHER", "SCATTER", "COALESCED", "UNKNOWN")
"""Operations whose sizes may differ between ranks by design."""


def watchdog_mismatches(base: FactBase) -> Iterator[Fact]:
    """Time-outs of one known group at one number with different operations or sizes."""
    for name, ranks in groups(base).items():
        if name is None:
            continue
        by_seq: dict[int, dict[tuple[Value | None, ...], dict[int, Fact]]] = defaultdict(lambda: defaultdict(dict))
        for rank, seen in ranks.items():
            for seq, fact in seen.timeouts.items():
                op = fact.fields["op"]
                if str(op).upper() in TRANSFERS:
                    continue
                sizes = () if str(op).upper().startswith(UNEVEN) else ("numel_in", "numel_out")
                signature = (op, *(fact.fields.get(n) for n in sizes), *(None,) * (2 - len(sizes)))
                by_seq[seq][signature][rank] = fact
        for seq, signatures in sorted(by_seq.items()):
            told = _without_unknown(signatures)
            if len(told) > 1:
                yield mismatch_fact(name, seq, told, ("op", "elements", "elements"))
                break


def _without_unknown(signatures: Mapping[Signature, dict[int, Fact]]) -> Mapping[Signature, dict[int, Fact]]:
    """Signatures without those that say less of an operation than others do: what a torn line lacks is unknown."""
    most: dict[Value | None, int] = defaultdict(int)
    for signature in signatures:
        most[signature[0]] = max(most[signature[0]], sum(part is not None for part in signature))
    return {s: ranks for s, ranks in signatures.items() if sum(part is not None for part in s) == most[s[0]]}


def placed(base: FactBase, mismatch: Fact) -> Fact:
    """The mismatch with the host of the odd ranks, where all of them run on one."""
    hosts = {base.rank_host.get(rank) for rank in unfold_ranks(str(mismatch.fields.get("odd_ranks", "")))}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return replace(mismatch, fields={**mismatch.fields, "host": host}) if host else mismatch


def mismatch_fact(
    group: str | None, seq: int, signatures: Mapping[Signature, Mapping[int, Fact]], names: tuple[str, ...]
) -> Fact:
    (a, a_ranks), (b, b_ranks) = sorted(signatures.items(), key=lambda i: (-len(i[1]), min(i[1])))[:2]
    differs = next((n for n, x, y in zip(names, a, b, strict=True) if x != y), "op")
    fields: dict[str, Value] = {
        "seq": seq, "differs": differs, "a": _signature(a), "a_ranks": fold_ranks(a_ranks), "b": _signature(b),
        "b_ranks": fold_ranks(b_ranks), "a_who": who(fold_ranks(a_ranks)), "b_who": who(fold_ranks(b_ranks)),
        "odd_ranks": fold_ranks(b_ranks if len(b_ranks) < len(a_ranks) else {**a_ranks, **b_ranks}),
        "what": what("collective", seq, group),
    }  # fmt: skip
    if group is not None:
        fields["group"] = group
    return Fact("", "signature_mismatch", fields, some_evidence([*b_ranks.values(), *a_ranks.values()]))


def _signature(parts: tuple[Value | None, ...]) -> str:
    return " ".join(str(p) for p in parts if p is not None)


@dataclass
class _Reported:
    """What ranks report of each other's calls under one number; two reports with a call of a rank in common are one."""

    differs: str
    seq: int | None
    calls: dict[str, set[int]]
    facts: list[Fact]

    def take(self, other: _Reported) -> None:
        for text, ranks in other.calls.items():
            self.calls.setdefault(text, set()).update(ranks)
        self.facts += other.facts

    def meets(self, other: _Reported) -> bool:
        return self.seq == other.seq and any(ranks & other.calls.get(text, set()) for text, ranks in self.calls.items())


def checked_mismatches(base: FactBase) -> Iterator[Fact]:
    """What PyTorch's own checks (fingerprints, desync report) found: one signature mismatch for all reports of it."""
    several: list[_Reported] = []
    for o in base.observations:
        if o.kind == "torch_mismatch":
            one = _reported(o)
            same = [r for r in several if r.meets(one)]
            for r in same:
                one.take(r)
            several = [r for r in several if r not in same] + [one]
    for r in several:
        (a, a_ranks), (b, b_ranks) = sorted(r.calls.items(), key=lambda i: (-len(i[1]), min(i[1], default=0)))[:2]
        others = {rank for text, ranks in r.calls.items() if text != a for rank in ranks}
        odd = others if len(others) < len(a_ranks) else others | a_ranks
        fields: dict[str, Value] = {
            "seq": r.seq or 0, "differs": r.differs, "a": a, "b": b, "a_ranks": fold_ranks(a_ranks),
            "b_ranks": fold_ranks(b_ranks), "a_who": who(fold_ranks(a_ranks)), "b_who": who(fold_ranks(b_ranks)),
            "what": what("collective", r.seq, None), "odd_ranks": fold_ranks(odd),
        }  # fmt: skip
        yield Fact("", "signature_mismatch", fields, some_evidence(r.facts))


def _reported(o: Fact) -> _Reported:
    f = o.fields
    a = _signature((f.get("op"), f.get("shape"), f.get("dtype")))
    b = _signature((f.get("op_other"), f.get("shape_other"), f.get("dtype_other")))
    if f.get("differs") == "seq":
        a, b = f"{a} #{f.get('seq', '?')}", f"{b} #{f.get('seq_other', '?')}"
    elif a == b:
        b += f" of another {f['differs']}"
    sides = ((a, f.get("rank")), (b, f.get("rank_other")))
    calls = {text: {rank} if isinstance(rank, int) else set[int]() for text, rank in sides}
    return _Reported(str(f["differs"]), seq if isinstance(seq := f.get("seq"), int) else None, calls, [o])

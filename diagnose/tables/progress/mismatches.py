"""Different collectives under one number, as time-outs show them and as PyTorch's own checks report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from diagnose.model import Fact, FactBase, Value, fold_ranks, unfold_ranks
from diagnose.tables.progress.stall import (
    some_evidence,
    what,
    who,
)
from diagnose.tables.progress.watchdog import TRANSFERS, groups

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
            if len(signatures) > 1:
                yield mismatch_fact(name, seq, signatures, ("op", "elements", "elements"))
                break


def placed(base: FactBase, mismatch: Fact) -> Fact:
    """The mismatch with the host of the odd ranks, where all of them run on one."""
    hosts = {base.rank_host.get(rank) for rank in unfold_ranks(str(mismatch.fields.get("odd_ranks", "")))}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return replace(mismatch, fields={**mismatch.fields, "host": host}) if host else mismatch


Signature = tuple[Value | None, ...]


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


def checked_mismatches(base: FactBase) -> Iterator[Fact]:
    """What PyTorch's own checks (fingerprints, desync report) found, as one signature mismatch."""
    for o in base.observations:
        if o.kind != "torch_mismatch":
            continue
        rank, other, f = o.fields.get("rank"), o.fields.get("rank_other"), o.fields
        a = _signature((f.get("op"), f.get("shape"), f.get("dtype")))
        b = _signature((f.get("op_other"), f.get("shape_other"), f.get("dtype_other")))
        if f.get("differs") == "seq":
            a, b = f"{a} #{f.get('seq', '?')}", f"{b} #{f.get('seq_other', '?')}"
        fields: dict[str, Value] = {
            "seq": f.get("seq", 0), "differs": str(f["differs"]), "a": a, "b": b,
            "a_ranks": "" if rank is None else str(rank), "b_ranks": "" if other is None else str(other),
            "what": what("collective", seq if isinstance(seq := f.get("seq"), int) else None, None),
        }  # fmt: skip
        fields["a_who"], fields["b_who"] = who(str(fields["a_ranks"])), who(str(fields["b_ranks"]))
        fields["odd_ranks"] = fold_ranks({r for r in (rank, other) if isinstance(r, int)})
        yield Fact("", "signature_mismatch", fields, o.evidence)

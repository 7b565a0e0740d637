"""What the facts hold stands in the commands: a reader does not put it in by hand."""

from __future__ import annotations

from functools import cache

import pytest

from diagnose import findings, packs, reference
from diagnose.model import Fact, Rule, Value
from diagnose.rulebook import load

STALL: dict[str, Value] = {
    "evidence_kind": "flight_recorder", "what": "all_reduce #9", "waiting": "0-2", "waiting_count": 3,
    "who": "Rank 3", "detail": "late", "others": "rank 3",
}  # fmt: skip
LATE: dict[str, Value] = {"rank": 3, "host": "kite-1", "pid": 69259, "stall": "all_reduce #9", "who": "Rank 3"}
CASES: list[tuple[str, list[tuple[str, dict[str, Value]]], str, str]] = [
    (
        "stall/rank-blocked-in-host-code",
        [("suspect_rank", {**LATE, "reason": "behind"}), ("stall", {**STALL, "verdict": "behind_rank"})],
        "py-spy dump --nonblocking --pid 69259",
        "pid",
    ),
    (
        "stall/missing-rank-crashed",
        [("suspect_rank", {**LATE, "reason": "oom", "detail": "x"}), ("stall", {**STALL, "verdict": "missing_rank"})],
        "ps -o pid,stat,lstart,cmd -p 69259",
        "pid",
    ),
    (
        "init/port-blocked",
        [("nccl_connect_error", {
            "host": "kite-1", "peer_address": "10.0.0.9", "peer_port": 41877, "peer_scope": "private",
            "error": "timed_out", "final": True,
        })],
        "nc -vz 10.0.0.9 41877; ip route get 10.0.0.9",
        "peer_port",
    ),
    (
        "init/store-timeout",
        [("torch_store", {
            "host": "kite-1", "rank": 5, "event": "connect_failed", "text": "timed out",
            "peer_address": "master-0", "peer_port": 29500,
        })],
        "nc -vz master-0 29500",
        "peer_port",
    ),
    (
        "host/ring-below-maximum",
        [("nic_ring", {"host": "kite-1", "device": "eth7", "rx": 512, "rx_max": 8192, "tx": 512, "tx_max": 8192})],
        "ethtool -S eth7",
        "",
    ),
]  # fmt: skip


@cache
def rules() -> dict[str, Rule]:
    return {rule.id: rule for rule in load([packs.builtin("rules")]).rules}


def commands(rule: Rule, given: list[tuple[str, dict[str, Value]]]) -> str:
    facts = [Fact(f"f{n}", kind, fields) for n, (kind, fields) in enumerate(given)]
    (finding,) = findings.judge([rule], reference.run([rule], facts))
    return "\n".join(x.command or "" for x in (*finding.remediation, *finding.look_alikes))


@pytest.mark.parametrize(("name", "given", "command", "unsaid"), CASES, ids=[case[0] for case in CASES])
def test_a_command_holds_what_is_known(
    name: str, given: list[tuple[str, dict[str, Value]]], command: str, unsaid: str
) -> None:
    assert command in commands(rules()[name], given)
    if unsaid:
        bare = [(kind, {field: value for field, value in fields.items() if field != unsaid}) for kind, fields in given]
        said = commands(rules()[name], bare)
        assert command not in said
        assert ("PID" if unsaid == "pid" else "PORT") in said
        assert "[[" not in said and "||" not in said

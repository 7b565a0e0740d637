"""A made-up case: several findings, unknowns, problems, tables, and texts to point into."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from diagnose.model import (
    Diagnosis,
    Evidence,
    Finding,
    Line,
    LookAlike,
    NextEvidence,
    Problem,
    Source,
    Step,
    Subject,
    Unknown,
)  # fmt: skip
from diagnose.tui.app import DiagnoseApp

NCCL_LOG = "logs/nccl.rank137.log"
IBSTAT = "node017/cmd/ibstat.txt"
LSPCI = "node031/cmd/lspci.txt"


def nccl_lines() -> list[str]:
    """40 lines of an NCCL log; line 12 tells the error."""
    lines = [f"node017:2211:2263 [1] NCCL INFO Channel {n:02d}/0 : 136[0] -> 137[1] via P2P/IPC" for n in range(40)]
    lines[11] = (
        "node017:2211:2263 [1] NCCL WARN NET/IB : Got completion from peer 192.0.2.17<4791> with status=12 opcode=0 "
        "len=0 vendor err 129 (Send) localGid fe80::1 remoteGids fe80::2"
    )
    lines[12] = "node017:2211:2263 [1] NCCL INFO transport/net.cc:1298 -> 6"
    return lines


def ibstat_lines() -> list[str]:
    """The output of ibstat, port down at line 6."""
    return [
        "CA 'mlx5_3'", "\tCA type: MT4129", "\tNumber of ports: 1", "\tFirmware version: 28.39.1002", "\tPort 1:",
        "\t\tState: Down", "\t\tPhysical state: Polling", "\t\tRate: 400", "\t\tLink layer: InfiniBand",
    ]  # fmt: skip


def lspci_lines() -> list[str]:
    """A slice of lspci -vv."""
    return [
        "65:00.0 3D controller: NVIDIA Corporation GH100",
        "\tLnkCap: Port #0, Speed 32GT/s, Width x16",
        "\tLnkSta: Speed 32GT/s, Width x8 (downgraded)",
    ]


TEXTS: dict[str, list[str]] = {NCCL_LOG: nccl_lines(), IBSTAT: ibstat_lines(), LSPCI: lspci_lines()}


def evidence(path: str, first: int, last: int | None = None, word: str = "") -> Evidence:
    """Lines of a text as evidence, one word of it highlighted."""
    text = "\n".join(TEXTS[path][first - 1 : (last or first)])
    at = text.find(word) if word else -1
    return Evidence(path, first, last or first, text, ((at, at + len(word)),) if at >= 0 else ())


PORT_DOWN = Finding(
    id="ib/port-down",
    severity="critical",
    confidence="high",
    role="root",
    title="InfiniBand port is down",
    summary="node017 mlx5_3 port 1 is Down (Polling); rank 137 lost its transport at that port.",
    subjects=(Subject("nic", "mlx5_3", "node017"),),
    evidence=(evidence(NCCL_LOG, 12, 13, "status=12"), evidence(IBSTAT, 6, 7, "Down")),
    cause="The link partner does not answer: a cable, its seat, or the switch port.",
    remediation=(
        Step("Confirm that the port is down.", "read-only", "ibstat mlx5_3", "node017", "State is Down"),
        Step("Read the counters on the switch side.", "read-only", "iblinkinfo -G 0x0c42a103007a1b2c"),
        Step(
            "Reseat or swap the cable.", "changes-state", None, "node017", "State is Active", "put the old cable back"
        ),
        Step("Drain the node and restart the job.", "maintenance", "scontrol update nodename=node017 state=drain"),
    ),
    look_alikes=(LookAlike("ib/sm-down", "Are all ports of the fabric in Initialize?", None, "sminfo"),),
    references=("InfiniBand Architecture Specification 1.6, 14.2.5",),
)

NEVER_ENTERED = Finding(
    id="stall/missing-rank",
    severity="major",
    confidence="medium",
    role="consequence",
    title="Rank 137 never entered AllReduce #418",
    summary="255 ranks wait in AllReduce #418; rank 137 has not entered it.",
    subjects=(Subject("rank", "137", "node017"),),
    evidence=(evidence(NCCL_LOG, 20),),
    cause="The rank is stuck before the collective.",
    remediation=(Step("Look at its stack.", "read-only", "py-spy dump --pid 2211", "node017"),),
    explained_by=("ib/port-down",),
    next_evidence=(NextEvidence("Whether the process still lives.", "ps -o pid,stat,wchan -p 2211"),),
)

PCIE = Finding(
    id="pcie/width",
    severity="minor",
    confidence="medium",
    role="root",
    title="PCIe link runs at x8, expected x16",
    summary="node031 GPU4 (65:00.0) runs at x8.",
    subjects=(Subject("gpu", "GPU4", "node031"),),
    evidence=(evidence(LSPCI, 2, 3, "Width x8"),),
    cause="A lane is lost: seat, riser or card.",
    remediation=(Step("Reseat the card.", "maintenance"),),
)

VERSIONS = Finding(
    id="software/versions-differ",
    severity="info",
    confidence="high",
    role="context",
    title="NCCL versions differ between hosts",
    summary="2.21.5 on 31 hosts, 2.20.3 on node031.",
    subjects=(Subject("host", "node031", "node031"), Subject("job", "run-2291")),
    evidence=(),
    cause="Another image.",
    remediation=(),
)


def progress_table() -> dict[str, object]:
    """Ranks against collectives 410 … 418."""
    done = ["done"] * 8
    return {
        "groups": [
            {
                "group": "dp0",
                "seqs": list(range(410, 419)),
                "rows": [
                    {"ranks": "0-135", "host": "", "states": [*done, "waiting"], "note": "in #418", "odd": False},
                    {"ranks": "136", "host": "node017", "states": [*done, "waiting"], "note": "in #418"},
                    {"ranks": "137", "host": "node017", "states": [*done, "absent"], "note": "not in", "odd": True},
                    {"ranks": "138-255", "host": "", "states": [*done, "waiting"], "note": "in #418"},
                ],
            }
        ]
    }  # fmt: skip


def topology_table() -> dict[str, object]:
    """Two GPUs and two NICs of one host."""
    return {
        "hosts": [
            {
                "host": "node017",
                "columns": ["GPU0", "GPU1", "mlx5_0", "mlx5_3"],
                "rows": [
                    {"name": "GPU0", "cells": ["X", "NV18", "PIX", "SYS"]},
                    {"name": "GPU1", "cells": ["NV18", "X", "SYS", {"text": "PIX", "odd": True}]},
                    {"name": "mlx5_3", "cells": ["SYS", "PIX", "SYS", "X"]},
                ],
            }
        ]
    }


def diagnosis(**changes: object) -> Diagnosis:
    """The whole answer; `changes` replace its parts."""
    parts: dict[str, object] = {
        "findings": (PORT_DOWN, NEVER_ENTERED, PCIE, VERSIONS),
        "unknowns": (
            Unknown("Do NVLink errors explain it?", "No nvidia-smi nvlink output.", "nvidia-smi nvlink -e"),
            Unknown("Is the fabric congested?", "No switch counters.", "perfquery -x"),
        ),
        "sources": (
            Source(NCCL_LOG, NCCL_LOG, kinds=("nccl_log",), host="node017", rank=137, line_count=40, size=4_000),
            Source(IBSTAT, IBSTAT, kinds=("ibstat",), host="node017", line_count=9, size=200),
            Source(LSPCI, LSPCI, kinds=("lspci",), host="node031", line_count=3, size=130),
            Source("notes.bin", "notes.bin", status="unrecognised", notes=("no parser knows this",)),
        ),
        "problems": (Problem("half a line at the end of the file", NCCL_LOG, 40, 40),),
        "job": {"nodes": 32, "ranks": 256, "gpus": None, "stalled_since": None, "versions": {}},
        "tables": {"progress": progress_table(), "topology": topology_table()},
        "tool": {"name": "diagnose", "version": "0", "thresholds_in_force": {"pcie/width.min_width": 16}},
        "bundle_digest": "f00d",
    }
    parts.update(changes)
    return Diagnosis(**parts)  # type: ignore[arg-type]


@dataclass
class FakeCase:
    """A case over texts in memory."""

    diagnosis: Diagnosis = field(default_factory=diagnosis)
    texts: dict[str, Sequence[str]] = field(default_factory=lambda: dict(TEXTS))

    def excerpt(self, source: str, first: int, last: int, context: int = 3) -> list[Line]:
        text = self.texts.get(source, ())
        numbers = range(max(1, first - context), min(len(text), last + context) + 1)
        return [Line(n, text[n - 1]) for n in numbers]

    def lines(self, source: str) -> Reader | None:
        return Reader(self.texts[source]) if source in self.texts else None


class Reader:
    """Lines of a text by position; each line is a second after the one before."""

    def __init__(self, text: Sequence[str]) -> None:
        self._text = text

    def __len__(self) -> int:
        return len(self._text)

    def __getitem__(self, index: slice) -> list[Line]:
        return [Line(i + 1, self._text[i], float(i + 1)) for i in range(*index.indices(len(self._text)))]


def app(case: FakeCase | None = None, go: threading.Event | None = None, **options: object) -> DiagnoseApp:
    """The screen over a made-up case; with `go`, the analysis ends only when that is set."""

    @contextmanager
    def opener(on_progress: object) -> Iterator[FakeCase]:
        if go is not None:
            assert go.wait(20)
        yield case or FakeCase()

    return DiagnoseApp(opener, ("run-2291",), **options)  # type: ignore[arg-type]


def frame(app: DiagnoseApp) -> str:
    """The screen as plain text."""
    rows = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
    return "\n".join(rows).rstrip() + "\n"


if __name__ == "__main__":
    app().run()

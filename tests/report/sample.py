"""Hand-made diagnoses for the tests of the report and of the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diagnose.model import (
    Diagnosis,
    Evidence,
    Finding,
    LookAlike,
    NextEvidence,
    Problem,
    Source,
    Step,
    Subject,
    Unknown,
)

TORCH_LINE = (
    "[rank12]:[E1114 03:12:45.100000000 ProcessGroupNCCL.cpp:616] [Rank 12] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=8388608, NumelOut=8388608, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out."
)

SOURCES = (
    Source("s1", "run/torch.log", "/tmp/x/run/torch.log", 4096, "aa" * 32, ("torch_log",), None, line_count=120),
    Source("s2", "run/node-b/ibstat.txt", "/tmp/x/b", 900, "bb" * 32, ("ibstat",), "node-b", line_count=40, snapshot=1),
    Source("s3", "run/notes.docx", "/tmp/x/n", 10, "cc" * 32, (), status="unrecognised", notes=("no known format",)),
    Source("s4", "run/empty.log", "/tmp/x/e", 0, "dd" * 32, (), status="empty"),
    Source("s5", "run/node-c/dmesg.txt", "/tmp/x/d", 10, "ee" * 32, ("dmesg",), "node-c", 3, "dmesg -T", 2,
           1763089965.5, 77, "partial", ("cut off after line 77",)),
)  # fmt: skip

READ_ONLY = Step("Read the state of the port", "read-only", "ibstat mlx5_3", "node-b", "State: Active", None)
RESEAT = Step(
    "Reseat the cable", "maintenance", None, "rack 7", "ibstat mlx5_3 shows Active", "swap the old cable back in"
)
RESTART = Step(
    "Restart the job from its last checkpoint", "changes-state", "scontrol requeue 42", None, "steps go on", None
)

ROOT = Finding(
    "fabric/port-down", "critical", "high", "root", "An InfiniBand port is down",
    "node-b mlx5_3 is Down while rank 37 waits for a peer behind it",
    (Subject("host", "node-b"), Subject("nic", "mlx5_3", "node-b"), Subject("rank", "37", "node-b")),
    (Evidence("s2", 31, 32, "  State: Down\n  Physical state: Polling", ((2, 13),)), Evidence("s1", 7, 7, TORCH_LINE)),
    "The link lost its signal, so the queue pairs of the job run into their retry limit.",
    (RESEAT, READ_ONLY, RESTART),
    next_evidence=(NextEvidence("The switch side of the link", "iblinkinfo -S GUID"),),
    look_alikes=(LookAlike("fabric/sm-stuck", "Is the subnet manager alive?", "Ask it", "sminfo"),),
    references=("https://docs.example.org/ibstat",),
)  # fmt: skip

CONSEQUENCE = Finding(
    "stall/missing-rank", "major", "medium", "consequence", "A rank did not enter the collective",
    "Rank 37 never entered ALLREDUCE 4711; 63 ranks wait",
    (Subject("rank", "37", "node-b"), Subject("group", "0")),
    (Evidence("s1", 7, 7, TORCH_LINE),),
    "A rank that is stuck elsewhere lets all others wait.",
    (Step("Look at the stack of the rank", "read-only", "py-spy dump --pid PID", "node-b"),),
    explained_by=("fabric/port-down",),
)  # fmt: skip

MINOR = Finding(
    "pcie/narrow-link", "minor", "medium", "root", "A PCIe link is narrower than its slot",
    "node-c gpu4 runs at x8, expected x16", (Subject("gpu", "4", "node-c"),),
    (Evidence("s5", 70, 70, "pci 0000:3b:00.0: 8 lanes"),), "A seating fault or a bad riser.",
    (Step("Read the link", "read-only", "lspci -vvs 3b:00.0", "node-c"),),
)  # fmt: skip

CONTEXT = Finding(
    "setup/version-skew", "info", "low", "context", "NCCL versions differ", "2.21.5 and 2.22.3 are in use",
    (Subject("job", "42"),), (), "Two images are in use.", (),
)  # fmt: skip

ACKNOWLEDGED = replace(
    MINOR, id="setup/old-firmware", title="Firmware is old", summary="node-c runs old firmware", severity="critical",
    subjects=(Subject("host", "node-c"),), acknowledged="planned for January",
)  # fmt: skip

UNKNOWNS = (
    Unknown("Does the fabric drop packets?", "no counters of the NICs were given", "ethtool -S IFACE"),
    Unknown("Do pauses spread?", "no counters of the NICs were given", "ethtool -S IFACE"),
    Unknown("Do the clocks agree?", "no clock source was given", "chronyc tracking"),
)

PROBLEMS = (
    Problem("lines are cut in the middle", "s5", 76, 77),
    Problem("the engine's process ended early; the reference evaluator answered"),
)

JOB: dict[str, Any] = {
    "nodes": 8,
    "ranks": 64,
    "gpus": 64,
    "stalled_since": 1763089965.0,
    "versions": {"nccl": ["2.21.5", "2.22.3"]},
}

TOOL: dict[str, Any] = {
    "name": "diagnose",
    "version": "0.1.0",
    "engine": "durable-rules 2.0.28",
    "rules": {"count": 3, "digest": "ab" * 32},
    "thresholds_in_force": {"lossless/slow-receiver": {"max_tx_pause_share": 0.05}},
}

TABLES: dict[str, Any] = {
    "progress": {
        "groups": [
            {
                "group": "0",
                "op": "ALLREDUCE",
                "seqs": [4711],
                "rows": [
                    {"ranks": "37", "host": "node-b", "states": ["absent"], "note": "never entered it", "odd": True},
                    {
                        "ranks": "0-36,38-63",
                        "host": "8 hosts",
                        "states": ["waiting"],
                        "note": "waits in it",
                        "odd": False,
                    },
                ],
            }
        ]
    },
    "topology": {
        "hosts": [{"host": "node-b", "columns": ["GPU0", "NIC0"], "rows": [{"name": "GPU0", "cells": ["X", "PIX"]}]}]
    },
    "timeline": {
        "rows": [{"at": 1763089965.0, "host": "node-b", "kind": "link_event", "text": "link down"}],
        "rows_dropped": 3,
    },
}

SAMPLE = Diagnosis(
    (ROOT, CONSEQUENCE, MINOR, ACKNOWLEDGED, CONTEXT), UNKNOWNS, SOURCES, PROBLEMS, JOB, TABLES, TOOL, "fe" * 32
)
QUIET = Diagnosis((), UNKNOWNS, SOURCES[:2], (), {}, {}, TOOL, "fe" * 32)
UNSOLVED = replace(SAMPLE, findings=(replace(CONSEQUENCE, explained_by=(), role="context"),))

HOSTILE = (
    "\x1b]0;owned\x07\x1b[31mred\x9b2J \u202egnp.exe\u2066 [bold]x[/bold] <script>alert(1)</script> @everyone #123 "
    "![i](http://192.0.2.9/x) [l](javascript:alert(1)) ``` ~~~ ```` | $(reboot) `id` \ud800 \u200b {{7*7}} "
    "http://192.0.2.9/y "
    "&lt;b&gt;\r\n# heading\n```\n@team outside\n"
)


def hostile() -> Diagnosis:
    """A diagnosis with the same hostile text wherever evidence can put text."""
    text = HOSTILE
    finding = Finding(
        "fabric/port-down", "critical", "high", "root", text, text, (Subject("host", text), Subject("nic", text, text)),
        (Evidence("s1", 1, 3, text),), text,
        (Step(text, "read-only", text, text, text, text), Step(text, "changes-state", text, text, text, text)),
        next_evidence=(NextEvidence(text, text),), look_alikes=(LookAlike(text, text, text, text),),
        references=(text, "javascript:alert(1)", "https://docs.example.org/x\"><script>alert(1)</script>"),
    )  # fmt: skip
    tables = {"progress": {"groups": [{"group": text, "rows": [{text: text}]}]}, "counters": [{text: text}]}
    return Diagnosis(
        (finding, replace(finding, id="stall/missing-rank", role="consequence", explained_by=("fabric/port-down",))),
        (Unknown(text, text, text),),
        (replace(SOURCES[0], path=text, host=text, notes=(text,)), replace(SOURCES[2], path=text, notes=(text,))),
        (Problem(text, "s1", 1, 2), Problem(text)),
        {"versions": {text: text}}, tables, {**TOOL, "engine": text}, "00",
    )  # fmt: skip

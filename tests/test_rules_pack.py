"""The built-in rules as advice: no lint, families, explanations, and nothing harmful in any step."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any

import pytest
import yaml

from diagnose import cli, packs
from diagnose.findings import DEPTH
from diagnose.model import Rule
from diagnose.report import rulepage
from diagnose.rulebook import lint, load
from diagnose.vocabulary import vocabulary

PACK = packs.builtin("rules")
SILENT = {"fabric/ib-subnet-manager"}
"""Rules without a threshold of their own that are critical by what was read, not by a number."""


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(load([PACK], statuses=("draft", "trial", "stable")).rules)


def raw(rule: Rule) -> dict[str, Any]:
    return yaml.safe_load((PACK / f"{rule.id}.yaml").read_text("utf-8"))


every_rule = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)


def test_lint_has_nothing_to_say():
    assert [str(error) for error in lint([PACK])] == []


def test_ids_are_unique_and_their_families_are_ranked_by_cause():
    ids = Counter(rule.id for rule in rules())
    assert [name for name, count in ids.items() if count > 1] == []
    assert {rule.family for rule in rules()} <= set(DEPTH)


CORE = """
stall/missing-rank-crashed stall/rank-blocked-in-host-code stall/collective-mismatch stall/inflight-network
stall/gpu-kernel-hung stall/watchdog-blocked stall/undetermined init/wrong-interface init/port-blocked
init/ranks-missing-at-rendezvous init/ib-transport-missing init/memlock-limit init/nvls-bind-failed
init/net-devices-inconsistent init/peer-address-unreachable clock/skew-breaks-correlation clock/tsc-fallback
lossless/traffic-in-wrong-priority lossless/trust-mode-pcp lossless/pfc-mismatch lossless/slow-receiver
lossless/pfc-storm lossless/fabric-incast lossless/ecn-ineffective lossless/mtu-mismatch link/flapping
link/degraded-speed-or-width link/high-ber link/down rdma/retry-exceeded rdma/wr-flush-only
rdma/silent-retransmission rdma/gid-mismatch rdma/nic-firmware-fatal gdr/not-used topo/acs-redirect
topo/nic-far-from-gpu topo/pcie-degraded topo/p2p-disabled gpu/fallen-off-bus gpu/ecc-uncorrectable gpu/nvlink-error
gpu/gsp-or-internal-timeout gpu/application-fault gpu/thermal-throttle gpu/power-brake-or-cap gpu/clock-locked-low
gpu/batch-variance gpu/fabric-state gpu/out-of-memory nccl/debug-knobs-left-on nccl/timeout-misset
nccl/env-differs-across-ranks host/cfs-throttling host/oom-kill host/shm-too-small host/sigterm-or-preemption
k8s/overlay-data-path k8s/overlay-mtu perf/straggler-node perf/invalid-benchmark version/nccl-mismatch
version/library-crash
"""


@pytest.mark.parametrize("name", CORE.split())
def test_the_common_pathologies_are_known(name: str):
    rule = next((rule for rule in rules() if rule.id == name), None)
    assert rule is not None and rule.status == "stable"


def test_explain_prints_the_page(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["explain", rules()[0].id]) == 0
    assert capsys.readouterr().out == rulepage.text(rules()[0], vocabulary())


@every_rule
def test_the_page_tells_the_whole_rule(rule: Rule):
    said = " ".join(rulepage.text(rule, vocabulary()).split())
    texts = rule.texts["en"]
    for part in (rule.id, texts.title, *(t.name for t in rule.thresholds), *rule.references):
        assert " ".join(part.split())[:60] in said, part
    for step in texts.steps:
        assert f"[{step.effect.replace('-', ' ')}]" in said.replace("[read-only]", "[read only]")


@every_rule
def test_a_fault_says_how_it_is_told_from_others_and_where_to_read_on(rule: Rule):
    if any(choice.severity in ("critical", "major") for choice in rule.severity):
        assert rule.look_alikes or rule.id in SILENT
    assert rule.texts["en"].cause.strip().endswith(".")
    assert not re.search(r"[\u2026!]$", rule.texts["en"].title)


@every_rule
def test_kinds_that_it_reads_can_be_asked_for(rule: Rule):
    for pattern in (*rule.when, *rule.unless):
        kind = vocabulary().kinds[pattern.kind]
        assert kind.origin in ("parser", "tables", "site", "diagnose", "facts")
        assert kind.topic != "derived" or kind.sources or kind.origin == "diagnose", pattern.kind


# --- harmful advice, said once more and on its own -------------------------------------------------------

FORBIDDEN = {
    "transmit offloads off": r"ethtool\s+-K\s+\S+\s+.*\btx\s+off",
    "token bucket on collective traffic": r"\btc\s+qdisc\s+(?:add|replace)|token.bucket",
    "CPU quota on a trainer": r"CPUQuota=\d|cfs_quota_us=\d",
    "PFC off": r"--pfc[ =]0,0,0,0,0,0,0,0|\bdisable pfc\b",
    "ECN off": r"\bdisable (?:ecn|dcqcn)\b|/ecn/\S+/enable/\d\s*<\s*0|echo 0 > \S*ecn",
    "PFC everywhere": r"--pfc[ =]1,1,1,1,1,1,1,1",
    "Gloo for gradients": r"backend=.?gloo",
    "transport off": r"NCCL_(?:IB|P2P|SHM)_DISABLE=1",
    "GPUDirect off": r"NCCL_NET_GDR_LEVEL=(?:LOC|0)\b",
    "NVLS off": r"NCCL_NVLS_ENABLE=0",
    "ACS for all devices": r"setpci\s+-s\s+\*|for .* setpci",
    "counters cleared": r"perfquery\s+-[rR]|ibclear|--reset-ecc|dmesg\s+-[cC]\b|clear counters",
    "module options": r"modprobe\s+\S+\s+\w+=",
    "a remote script": r"(?:curl|wget)[^|]*\|\s*(?:sudo\s+)?(?:ba)?sh",
    "monitoring off": r"TORCH_NCCL_ENABLE_MONITORING=0",
    "forcing the TSC": r"\btsc=reliable",
    "options that py-spy refuses": r"--native\b.*--nonblocking|--nonblocking\b.*--native",
}
NEEDS_A_DRAINED_HOST = (
    r"--gpu-reset|nvidia-smi\s+-r\b|\brmmod\b|modprobe\s+-r|\breboot\b|mlxfwreset|flint\b.*\bburn"
    r"|systemctl restart (?:openibd|nvidia-fabricmanager)"
)


@every_rule
def test_no_step_does_harm(rule: Rule):
    document = raw(rule)
    for step in document["steps"]:
        commands = " ".join(str(step.get(part) or "") for part in ("command", "verify"))
        for what, pattern in FORBIDDEN.items():
            found = re.search(pattern, commands, re.IGNORECASE)
            assert not found or len(step.get("allow") or "") > 20, f"{what}: {found and found[0]}"
        if re.search(NEEDS_A_DRAINED_HOST, str(step.get("command") or "")):
            assert step["effect"] == "maintenance"


@every_rule
def test_every_change_can_be_checked_and_undone(rule: Rule):
    steps = rule.texts["en"].steps
    assert steps[0].effect == "read-only"
    for step in steps:
        assert step.effect == "read-only" or (step.verify and step.rollback), step.text


@every_rule
def test_a_time_out_is_never_the_only_cure(rule: Rule):
    changes = [step for step in rule.texts["en"].steps if step.effect != "read-only"]
    longer = [s for s in changes if re.search(r"(?:longer|higher|raise|increase)\b.*time-?out", s.text, re.IGNORECASE)]
    assert not changes or longer != changes


@every_rule
def test_translations_have_the_same_steps(rule: Rule):
    for texts in rule.texts.values():
        assert [s.effect for s in texts.steps] == [s.effect for s in rule.texts["en"].steps]
        assert [s.command for s in texts.steps] == [s.command for s in rule.texts["en"].steps]

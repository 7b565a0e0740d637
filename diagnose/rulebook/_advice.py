"""Advice that does harm: patterns of step texts and commands that lint refuses.

A step that matches needs `allow:` with the reason why it is right there (a diagnostic toggle on one host, a warning
against the very thing). Work that interrupts other jobs must be marked `effect: maintenance`; nothing excuses that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_RATE = "rate limits slow every collective"
_LOSSLESS = "PFC and ECN are never switched off to test"
_TIMEOUT = "a longer timeout is no fix"

_HARMFUL: dict[str, tuple[str, ...]] = {
    "switching transmit offloads off cures no stall": (
        r"ethtool\s+(?:-K|--features|--offload)\s[^\n]{0,80}\btx\S{0,20}\s+off",
    ),
    _RATE: (
        r"\btc\s+qdisc\s+(?:add|replace|change)\s[^\n]{0,120}\b(?:tbf|htb|police|cake)\b",
        r"token.bucket",
        r"rate.?limit(?:ing)?\s+(?:the\s+)?(?:collective|nccl|rdma|traffic)",
    ),
    "a CPU quota throttles the trainer": (r"CPUQuota=\s*\d", r"cfs_quota_us\s*=?\s*\d", r">\s*\S{0,80}cpu\.max"),
    _LOSSLESS: (
        r"--pfc[= ]\s*0(?:,0){7}",
        r"\b(?:disabl\w{1,3}|turn\w{0,3}\soff|switch\w{0,3}\soff)\s+(?:\w+\s+){0,2}(?:pfc|ecn|dcqcn|flow\scontrol)",
        r"echo\s+0\s*>\s*\S{0,120}/ecn/",
    ),
    "PFC on all priorities or on priority 7 endangers the control traffic": (
        r"--pfc[= ]\s*(?:[01],){7}1",
        r"\bpfc\b[^.\n]{0,40}\b(?:all|every|each)\s+(?:8\s+|eight\s+)?priorit",
        r"\bpfc\b[^.\n]{0,30}\bpriority\s+7\b",
    ),
    "Gloo across nodes is no cure for gradients": (
        r"backend\s*=?\s*[\"']?gloo",
        r"\b(?:use|switch\sto|fall\sback\sto)\s+gloo\b",
    ),
    "switching a transport off hides the fault and stays for ever": (
        r"\bNCCL_(?:IB|P2P|SHM)_DISABLE\s*=\s*1",
        r"\bNCCL_NET_GDR_LEVEL\s*=\s*(?:LOC|0)\b",
        r"\bNCCL_NVLS_ENABLE\s*=\s*0",
    ),
    "blanket ACS writes break isolation on shared hosts": (
        r"\bsetpci\b[^\n]{0,120}(?:ECAP_ACS|ACSCtl|f2a)",
        r"\bACS\b[^.\n]{0,30}\b(?:everywhere|all\s(?:bridges|ports|nodes|hosts))",
    ),
    "counters are evidence; clearing them destroys it": (
        r"\bperfquery\s[^\n]{0,60}-[rR]\b",
        r"\bibclear(?:counters|errors)\b",
        r"\bclear(?:ing)?\s+(?:the\s+|all\s+)?counters",
        r"--reset-ecc",
        r"\bdmesg\s+-[cC]\b",
        r"\bnvlink\s+-r\w{0,2}\b",
    ),
    "module options must be documented ones": (
        r"\bmodprobe\s+[a-z]\S{0,40}\s+\w+=",
        r"\boptions\s+[a-z]\w{2,40}\s+\w+=",
    ),
    _TIMEOUT: (
        r"\b(?:NCCL_IB_TIMEOUT|TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC|NCCL_IB_RETRY_CNT)\s*=",
        r"\b(?:rais|increas|lengthen|extend|longer|higher|larger)\w{0,4}\s+(?:\w+\s+){0,4}timeout",
    ),
}

_MAINTENANCE: dict[str, tuple[str, ...]] = {
    "a GPU reset": (r"\bnvidia-smi\s[^\n]{0,60}(?:--gpu-reset|\s-r\b)", r"\breset(?:ting)?\s+the\s+gpu"),
    "a driver or fabric manager restart": (
        r"\b(?:rmmod|modprobe\s+-r)\b",
        r"\breload\w{0,3}\s+the\s+\w{0,12}\s?driver",
        r"\bsystemctl\s+(?:restart|stop|reload)\s+(?:openibd|nvidia-fabricmanager)",
    ),
    "firmware work": (
        r"\b(?:mlxfwmanager|mlxfwreset|mlxburn|nvfwupd)\b(?!\s+--query)",
        r"\b(?:mst)?flint\s[^\n]{0,60}\b(?:burn|b)\b",
        r"\bmlxconfig\s[^\n]{0,60}\bset\b",
        r"\b(?:update|upgrade|burn|flash)\w{0,3}\s+(?:the\s+)?(?:\w+\s+)?firmware",
    ),
    "a reboot": (r"\breboot\b(?!\s(?:history|time|log))", r"\bpower.?cycl\w{1,3}", r"\bshutdown\s+-"),
}

_CHANGES = (
    r"\bsysctl\s+-w",
    r"\bethtool\s+-[ACGKLNPX]\b",
    r"\bmlnx_qos\s[^|\n]{0,80}--?(?:pfc|trust|dscp2prio|tcbw|prio_tc|buffer_size)",
    r"\bsystemctl\s+(?:re)?(?:start|stop|load)",
    r"\b(?:modprobe|rmmod)\b",
    r"\bsetpci\b[^\n]{0,80}=",
    r"\bnvidia-smi\s[^|\n]{0,60}(?:-pm|-pl|-lgc|-rgc|-ac|-rac|-mig|--gpu-reset)\b",
    r"\b(?:kill|killall|pkill)\s",
    r"\breboot\b",
    r"\bip\s+link\s+set",
    r"\btc\s+qdisc\s+(?:add|del|replace|change)",
    r"(?:>|\btee)\s*/(?:sys|proc|etc)/",
    r"\bchronyc\s+makestep",
    r"\bscontrol\s+update",
    r"\bscancel\b",
    r"\bkubectl\s+(?:delete|drain|cordon|apply|edit|patch|scale)",
    r"\bperfquery\s[^\n]{0,60}-[rR]\b",
    r"\bethtool\s+(?:-t|--test)\b",
    r"\bibdiagnet\b[^|\n]{0,80}\s-{1,2}(?:pc|pm_pause|reset_phy_info)\b",
    r"\bibportstate\s[^|\n]{0,60}\b(?:disable|enable|reset|speed|width)\b",
    r"\bmlxlink\s[^|\n]{0,80}(?:-a\s|--port_state|-pc\b|--pc\b)",
    r"\bnvidia-smi\s+-[epcr]\s+\d",
)

_LOADS = (
    r"\bib_(?:write|read|send|atomic)_(?:bw|lat)\b",
    r"\b(?:all_reduce|all_gather|reduce_scatter|reduce|broadcast|alltoall|sendrecv|gather|scatter|hypercube)_perf\b",
    r"\bnvbandwidth\b",
    r"\bdcgmi\s+diag\b",
    r"\bi?perf3?\s+-[cs]\b|\biperf3?\b",
    r"\b(?:gpu[-_]burn|stress-ng|fio|ibping)\b",
    r"\bping\s[^|\n]{0,40}-f\b",
)
"""What loads links, GPUs or disks: on a host that works for somebody it slows a job, or stops it."""

_DESTRUCTIVE = (
    r"\|\s*(?:sudo\s+)?(?:\S{0,40}/)?(?:ba|z|da)?sh\b",
    r"\|\s*(?:sudo\s+)?(?:xargs\s[^|\n]{0,80}\b(?:rm|kill)|rm|dd|tee\s+/(?:dev|sys|proc|etc))\b",
    r"\brm\s+-[a-z]{0,6}[rf]",
    r"\bmkfs",
    r"\bdd\s+[^\n]{0,60}\bof=",
    r">\s*/dev/(?:sd|nvme)",
    r"\b(?:curl|wget)\s[^|\n]{0,200}\|",
)


def _any(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.ASCII)


_HARMFUL_RE = {why: _any(patterns) for why, patterns in _HARMFUL.items()}
_MAINTENANCE_RE = {what: _any(patterns) for what, patterns in _MAINTENANCE.items()}
_CHANGES_RE = re.compile("|".join(_CHANGES), re.ASCII)
_LOADS_RE = re.compile("|".join(_LOADS), re.ASCII)
_DRAINED = re.compile(r"#[^\n]*\bdrained\b")
"""The comment that tells where a command that loads something may run."""
_DESTRUCTIVE_RE = re.compile("|".join(_DESTRUCTIVE), re.ASCII)


_AGAINST = re.compile(
    r"\b(?:remov\w{1,3}|unset|drop|delet\w{1,3}|not|never|no|without|instead\sof)\b[^.;\n]{0,40}\Z", re.I
)
"""What turns a harmful text into a warning against it, when it stands just before."""


def _harmful(pattern: re.Pattern[str], text: str, command: str) -> re.Match[str] | None:
    for found in pattern.finditer(text):
        if not _AGAINST.search(text[max(0, found.start() - 60) : found.start()]):
            return found
    return pattern.search(command)


def _wording(step: Mapping[str, Any]) -> str:
    return "\n".join(str(step.get(part) or "") for part in ("text", "command"))


def step_problems(step: Mapping[str, Any]) -> Iterator[str]:
    """What is harmful about a step (`text`, `command`, `effect`, `allow`), in words.

    `asked` is a command that a look-alike offers: it carries no effect, so its own comment says where it may run. A
    read-only step may speak of maintenance ("was the firmware updated?"), but its command must not do it.
    """
    wording, command, effect = _wording(step), str(step.get("command") or ""), step.get("effect")
    if not step.get("allow"):
        for why, pattern in _HARMFUL_RE.items():
            if found := _harmful(pattern, str(step.get("text") or ""), command):
                yield f"'{found[0]:.60}': {why}; leave it out, or say with 'allow:' why it is right here"
    if effect != "maintenance":
        for what, pattern in _MAINTENANCE_RE.items():
            if found := pattern.search(command if effect == "read-only" else wording):
                yield f"'{found[0]:.60}': {what} is 'maintenance'"
    if found := _DESTRUCTIVE_RE.search(command):
        yield f"'{found[0]:.60}': a command must not destroy or feed a shell"
    if effect == "read-only" and (found := _CHANGES_RE.search(command)):
        yield f"'{found[0]:.60}' is not read-only"
    if step.get("asked"):
        if (found := _LOADS_RE.search(command)) and not _DRAINED.search(command):
            yield f"'{found[0]:.60}' loads what it measures: end the command with '# on drained hosts'"
    elif effect == "read-only" and (found := _LOADS_RE.search(wording)):
        yield f"'{found[0]:.60}' loads what it measures: it is 'maintenance', on drained hosts"


def only_longer_timeouts(steps: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all that the steps change is a timeout."""
    changes = [step for step in steps if step["effect"] != "read-only"]
    longer = _HARMFUL_RE[_TIMEOUT]
    return bool(changes) and all(longer.search(_wording(step)) and not step.get("allow") for step in changes)

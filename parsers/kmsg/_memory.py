"""Memory: what the OOM killer did, memory errors and machine checks."""

from __future__ import annotations

import re

from ._event import Event, Match, Recogniser, event, named


def _oom_detail(m: Match, message: str) -> Event:
    constraint = m["constraint"].lower()
    pid = int(m["pid"])
    where = {"memcg": "memcg", "none": "host"}.get(constraint, constraint)
    memcg = m["memcg"] or m["task_memcg"]
    return event(
        "oom_kill", message, memcg, m["task"], constraint=where, cgroup=memcg, process=m["task"], pid=pid,
    )  # fmt: skip


def _oom_killed(m: Match, message: str) -> Event:
    found = event(
        "oom_kill", message, None, m["task"], constraint="memcg" if m["memcg"] else "host", process=m["task"],
        pid=int(m["pid"]),
    )  # fmt: skip
    found.weak = True
    return found


def _old_kill(m: Match, message: str) -> Event:
    """Linux up to 4.x names the process that was really killed, a child perhaps, on a line of its own."""
    found = event("oom_kill", message, None, m["task"], process=m["task"], pid=int(m["pid"]))
    found.weak = True
    return found


def _edac(m: Match, message: str) -> Event:
    severity = "corrected" if m["kind"] == "CE" else "uncorrected"
    return event("mce", message, m["device"], severity, device=m["device"], severity=severity)


RECOGNISERS: tuple[Recogniser, ...] = (
    (
        "oom-kill:",
        re.compile(
            r"oom-kill:constraint=CONSTRAINT_(?P<constraint>[A-Z_]{3,20}),.{0,200}?(?:oom_memcg=(?P<memcg>[^,]{1,400}),|global_oom,)"
            r"(?:task_memcg=(?P<task_memcg>[^,]{1,400}),)?task=(?P<task>[^,]{1,64}),pid=(?P<pid>\d{1,9})"
        ),
        _oom_detail,
    ),
    (
        "ut of memory: Kill",
        re.compile(
            r"(?:(?P<memcg>Memory cgroup) out of memory|Out of memory(?: \([^)]{1,40}\))?): Kill(?:ed)? process "
            r"(?P<pid>\d{1,9}) \((?P<task>[^)]{1,64})\)"
        ),
        _oom_killed,
    ),
    (
        "Killed process ",
        re.compile(r"^Killed process (?P<pid>\d{1,9}) \((?P<task>[^)]{1,64})\),? (?:UID \d{1,9},? )?total-vm:"),
        _old_kill,
    ),
    ("EDAC ", re.compile(r"EDAC (?P<device>MC\d{1,3}): \d{1,9} (?P<kind>CE|UE) "), _edac),
    ("Machine check events logged", re.compile(r"\bmce: .{0,40}Machine check events logged"), named("mce")),
    ("Machine Check", re.compile(r"\bmce: .{0,40}CPU \d{1,5}: Machine Check"), named("mce", severity="uncorrected")),
)

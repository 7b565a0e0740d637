"""Kubernetes: `kubectl describe pod`, `get pods` (also wide), events, and the status part of `get pod -o yaml`."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator

from diagnose.model import Line
from diagnose.parsing import parse_time

from ._seen import Seen, exited, short

GATES = (
    "OOMKilled", "Exit Code:", "exitCode:", "Evict", "Preempt", "OOMKilling", "NodeNotReady", "TaintManager", "READY",
    "DeadlineExceeded", "SystemOOM", "FailedScheduling", "UnexpectedAdmissionError", "liveness probe",
)  # fmt: skip

_KEY = re.compile(
    r"(?P<indent>\s*)(?P<key>Name|Node|State|Last State|Reason|Exit Code|Signal|Finished|Message|Status):"
    r"\s*(?P<value>.*)$"
)
_CONTAINER = re.compile(r"  (?P<name>[a-z0-9][a-z0-9.-]{0,62}):$")
_YAML = re.compile(r"\s*(?:- )?(?P<key>exitCode|reason|finishedAt|nodeName|signal): ?\"?(?P<value>[^\"]{1,200}?)\"?$")
_EVENT = re.compile(
    r"\s*(?P<object>(?:\S{1,60}\s{1,40})?)(?P<type>Warning|Normal)\s{1,40}(?P<reason>[A-Z][A-Za-z]{2,40})\s{1,40}(?P<rest>\S.*)$"
)
_EVENTS = {
    "Evicted": "evicted", "TaintManagerEviction": "evicted", "Preempted": "preempted", "OOMKilling": "oom",
    "SystemOOM": "oom", "NodeNotReady": "node_fail", "DeadlineExceeded": "time_limit",
    "UnexpectedAdmissionError": "unschedulable",
}  # fmt: skip
_MAX_WAITING = 10_000
_POD = re.compile(r"\bpod/(?P<pod>[a-z0-9][a-z0-9.-]{0,62})")
_ON_NODE = re.compile(r"\b(?:on node |[Nn]ode/)(?P<host>[a-z0-9][a-z0-9.-]{0,62})\b")
_STATUS_EVENTS = {"Evicted": "evicted", "Preempting": "preempted", "NodeLost": "node_fail", "NodeShutdown": "node_fail"}


class Kubernetes:
    """Reads line by line; remembers the pod, container and terminated state it is in."""

    def __init__(self) -> None:
        self.judged = False
        self._pod: str | None = None
        self._node: str | None = None
        self._container: str | None = None
        self._state: dict[str, str] = {}
        self._lines: list[Line] = []
        self._ran_on: str | None = None
        self._columns: dict[str, int] = {}
        self._yaml: dict[str, str] = {}
        self._yaml_lines: list[Line] = []
        self._waiting: dict[str | None, Seen] = {}
        """Pods that the scheduler could not place at first; events are not always in the order of time."""
        self._placed: set[str | None] = set()

    def feed(self, line: Line, text: str) -> Iterator[Seen]:
        """What this line says, or completes."""
        m = _KEY.match(text)
        if m:
            self._columns = {}
            yield from self._key(line, m["indent"], m["key"], m["value"].strip())
            return
        m = _CONTAINER.match(text)
        if m:
            yield from self.finish()
            self._container = m["name"]
            return
        m = _YAML.match(text)
        if m:
            yield from self._yaml_key(line, m["key"], m["value"].strip())
            return
        m = _EVENT.match(text)
        if m:
            yield from self._event(line, m)
        elif "READY" in text and "STATUS" in text:
            self._columns = {word: n for n, word in reversed(list(enumerate(text.split())))}  # NODE, not NOMINATED NODE
        elif self._columns:
            yield from self._pod_row(line, text)

    def close(self) -> Iterator[Seen]:
        """What is left at the end: the terminated state that was being read, and pods without a node."""
        yield from self.finish()
        yield from (said for pod, said in self._waiting.items() if pod not in self._placed)

    def finish(self) -> Iterator[Seen]:
        """The terminated state that was being read."""
        state, lines = self._state, self._lines
        self._state, self._lines = {}, []
        code = state.get("Exit Code", "")
        if state.get("State") != "Terminated" or not re.fullmatch(r"-?\d{1,5}", code):
            return
        at = _date(state.get("Finished", ""))
        yield from self._terminated(int(code), state.get("Reason", ""), lines, at, self._ran_on)

    def _key(self, line: Line, indent: str, key: str, value: str) -> Iterator[Seen]:
        if not indent and key == "Name":
            yield from self.finish()
            self._pod, self._node, self._container = value[:120], None, None
        elif not indent and key == "Node":
            self._node = value.split("/", 1)[0][:64] or None
            if self._node == "<none>":
                self._node = None
        elif not indent and key == "Reason" and value in _STATUS_EVENTS:
            yield self._happened(_STATUS_EVENTS[value], f"pod {self._pod} {value}", line)
        elif key in ("State", "Last State"):
            yield from self.finish()
            self._state, self._lines, self._ran_on = {"State": value}, [line], self._node
        elif self._state and indent:
            self._state.setdefault(key, value)
            self._lines.append(line)

    def _terminated(
        self, code: int, reason: str, lines: list[Line], at: float | None, host: str | None
    ) -> Iterator[Seen]:
        self.judged = True
        oom = reason == "OOMKilled"  # the code is 0 where only a child was killed
        if code == 0 and not oom:
            return
        fields = exited(code)
        if oom:
            fields["reason"] = "oom"
        elif reason == "DeadlineExceeded":
            fields["reason"] = "time_limit"
        what = "/".join(part for part in (self._pod, self._container) if part)
        fields |= {"reporter": "kubernetes", "text": short(f"{what} {reason} exit code {code}")}
        yield Seen("process_exit", fields, lines, host, at=at, key=("pod", what, code, reason, at))
        if oom:
            event = {"event": "oom", "text": fields["text"]}
            yield Seen("job_event", event, lines, host, at=at, key=("oom", what, at))

    def _yaml_key(self, line: Line, key: str, value: str) -> Iterator[Seen]:
        if key == "nodeName":
            self._node = value
            return
        if key == "exitCode":
            self._yaml, self._yaml_lines = {}, []
        elif not self._yaml or line.number - self._yaml_lines[-1].number > 3:
            return
        self._yaml[key] = value
        self._yaml_lines.append(line)
        if key == "reason" and re.fullmatch(r"\d{1,5}", self._yaml.get("exitCode", "")):
            at, _ = parse_time(self._yaml.get("finishedAt", ""))
            yield from self._terminated(int(self._yaml["exitCode"]), value, self._yaml_lines, at, self._node)
            self._yaml = {}

    def _event(self, line: Line, m: re.Match[str]) -> Iterator[Seen]:
        event = _EVENTS.get(m["reason"])
        if m["reason"] in ("FailedScheduling", "Scheduled"):
            named = _POD.search(f"{m['object']} {m['rest']}")
            pod = named["pod"] if named else self._pod
            if m["reason"] == "Scheduled":
                self._placed.add(pod)
            elif len(self._waiting) < _MAX_WAITING:
                fields = {"event": "unschedulable", "text": short(f"{m['reason']} {m['rest']}")}
                self._waiting[pod] = Seen("job_event", fields, [line], key=("unschedulable", pod))
        elif m["reason"] == "Killing" and "failed liveness probe" in m["rest"]:
            yield self._happened("unhealthy", f"{m['reason']} {m['rest']}", line)
        elif event:
            host = _ON_NODE.search(m["rest"])
            yield self._happened(event, f"{m['reason']} {m['rest']}", line, host["host"] if host else None)

    def _happened(self, event: str, text: str, line: Line, host: str | None = None) -> Seen:
        self.judged = True
        host = host or self._node
        return Seen("job_event", {"event": event, "text": short(text)}, [line], host, key=(event, self._pod, host))

    def _pod_row(self, line: Line, text: str) -> Iterator[Seen]:
        # RESTARTS may be `3 (5m ago)`
        cells = re.sub(r" \(\S{1,12} ago\)", "", text).split()
        ready = self._columns["READY"]
        if len(cells) <= max(ready, self._columns["STATUS"]) or not re.fullmatch(r"\d{1,3}/\d{1,3}", cells[ready]):
            self._columns = {}
            return
        name, status = cells[self._columns.get("NAME", 0)], cells[self._columns["STATUS"]]
        node = cells[self._columns["NODE"]] if "NODE" in self._columns and self._columns["NODE"] < len(cells) else None
        node = None if node in (None, "<none>") else node
        if status in ("Running", "Completed", "Succeeded", "OOMKilled", "Error", "CrashLoopBackOff", "Evicted"):
            self.judged = True
        if status in ("OOMKilled", "Error"):
            fields = {"reason": "oom" if status == "OOMKilled" else "error", "reporter": "kubernetes"}
            fields["text"] = f"pod {name} {status}"
            yield Seen("process_exit", fields, [line], node, key=("pods", name, status))
            if status == "OOMKilled":
                yield Seen("job_event", {"event": "oom", "text": fields["text"]}, [line], node, key=("oom", name, None))
        elif status in _STATUS_EVENTS:
            event = _STATUS_EVENTS[status]
            yield Seen("job_event", {"event": event, "text": f"pod {name} {status}"}, [line], node, key=(event, name))


def _date(text: str) -> float | None:
    """`Mon, 30 Nov 2026 17:20:00 +0100` as epoch seconds."""
    try:
        at = calendar.timegm(time.strptime(text[:25].strip(), "%a, %d %b %Y %H:%M:%S"))
    except ValueError:
        return None
    zone = re.search(r"([+-])(\d\d)(\d\d)$", text.strip())
    shift = (int(zone[2]) * 60 + int(zone[3])) * 60 if zone else 0
    return float(at - (shift if zone and zone[1] == "+" else -shift))

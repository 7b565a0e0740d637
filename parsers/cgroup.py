"""Files of control groups: cpu.max, cpu.stat, cpu.cfs_*, memory.* and *.pressure, v2 and v1.

Read alone, behind `grep -H` prefixes, under `== path` or `==> path <==` headers, or pasted behind prompts that name the
group. Units: cpu.stat `throttled_usec` (v2) is microseconds, `throttled_time` (v1) nanoseconds; quotas and periods are
microseconds. Each path is a record of its own: parent and child count the same throttling and are never added up.
Source: Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst, accounting/psi.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from diagnose.model import Evidence, Fields, Line, Record, Source
from diagnose.parsing import drop_none, evidence

KIND = "cgroup"
TOPICS = ("cgroup_files",)

UNNAMED = "job"
"""Path of a group that neither prompt, header nor command names."""
MAX_GROUPS = 5_000
_UNLIMITED_V1 = 1 << 62

_FILES = (
    r"(?:cpu\.stat|cpu\.max|cpu\.cfs_quota_us|cpu\.cfs_period_us|memory\.events(?:\.local)?|memory\.max|memory\.current|"
    r"memory\.peak|memory\.limit_in_bytes|memory\.usage_in_bytes|memory\.max_usage_in_bytes|memory\.oom_control|"
    r"(?:cpu|memory|io)\.pressure)"
)
_FILE = re.compile(rf"(?:^|[\s/'\"=])(?P<dir>/?(?:[^\s'\":;|&$]{{0,1000}}/)?)(?P<file>{_FILES})(?=$|[\s'\";:|&.-])")
_PSI_FILE = re.compile(r"/proc/pressure/(?P<file>cpu|memory|io)\b")
_GREP = re.compile(
    rf"^(?P<dir>[^\s:]{{0,1000}}/)?(?P<file>{_FILES}|/proc/pressure/(?:cpu|memory|io)):(?P<rest>.{{1,200}})$"
)
_HEADER = re.compile(
    rf"^\s{{0,4}}(?:==>?|###?|---)\s{{0,4}}(?P<dir>[^\s]{{0,1000}}/)?(?P<file>{_FILES}|/proc/pressure/(?:cpu|memory|io))"
    r"\s{0,4}(?:<?==|:|---)?\s*$"
)
_KEYED = re.compile(
    r"^\s{0,4}(nr_periods|nr_throttled|throttled_usec|throttled_time|usage_usec|nr_bursts|oom_kill|oom_group_kill)\s+(\d{1,20})\s*$"
)
_QUOTA = re.compile(r"^\s{0,4}(max|\d{1,12}) (\d{3,9})\s*$")
_BARE = re.compile(r"^\s{0,4}(max|-?\d{1,20})\s*$")
_PRESSURE = re.compile(r"^\s{0,4}(some|full) avg10=(\d{1,3}(?:\.\d{1,4})?) avg60=")
_PRESSURE_NAME = re.compile(r"(?:pressure[.\-_/]?(cpu|memory|io)|(cpu|memory|io)[.\-_]pressure)", re.I)
_NAME = re.compile(rf"^(?:.{{0,100}}[-_.])?({_FILES})(?=$|[.\-_])")
_SURE = re.compile(
    r"^\s{0,4}nr_(?:periods|throttled)\s+\d|cpu\.stat:nr_throttled \d|(?:cpu|memory|io)\.pressure:some avg10="
    r"|^(?:some|full) avg10=\d|cpu\.max:(?:max|\d{1,12}) \d{3,9}\s*$"
    r"|^oom_kill \d{1,20}\s*$|memory\.events:oom_kill \d",
    re.M,
)


@dataclass(slots=True)
class _Group:
    """What is known of one group; a list item per snapshot of cpu.stat."""

    quota: str | None = None
    period: int | None = None
    limit_lines: list[Line] = field(default_factory=list[Line])
    stats: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    stat_lines: list[list[Line]] = field(default_factory=list[list[Line]])
    memory: dict[str, int] = field(default_factory=dict[str, int])
    memory_lines: list[Line] = field(default_factory=list[Line])
    pressure: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    pressure_lines: dict[str, Line] = field(default_factory=dict[str, Line])


def sniff(head: str, name: str) -> float:
    """Sure on the keys of cpu.stat, memory.events and pressure files; otherwise by the name of a lone file."""
    if _SURE.search(head):
        return 0.9
    if "$ " in head or "# " in head or "==" in head:
        for text in head[:200_000].split("\n"):
            prompt = _split_prompt(text)
            if _HEADER.match(text) or (prompt and _FILE.search(prompt[1])):
                return 0.6
    lone = head.strip()
    if _NAME.match(name) and (_QUOTA.match(lone) or _BARE.match(lone)):
        return 0.7
    return 0.0


def _split_prompt(text: str) -> tuple[str, str] | None:
    """What stands before and after the `$ ` or `# ` of a prompt; None for lines that have none."""
    ends = [at for at in (text.find("$ "), text.find("# ")) if at >= 0]
    if not ends:
        return None
    at = min(ends)
    prompt, command = text[:at].strip(), text[at + 2 :].strip()
    return (prompt, command) if command and len(prompt) < 1_500 and prompt.count(" ") < 3 else None


class _Reader:
    """Follows which file of which group the lines belong to."""

    def __init__(self, source: Source) -> None:
        self.groups: dict[str, _Group] = {}
        self.path = UNNAMED
        self.cwd: str | None = None
        self.queue: list[tuple[str, str]] = []
        self.resource: str | None = None
        named = _NAME.match(source.name)
        self.expect(source.command or "")
        if not self.queue and named:
            self.queue = [(UNNAMED, named.group(1))]
        if not self.queue:
            m = _PRESSURE_NAME.search(source.name)
            if m:
                resource = (m.group(1) or m.group(2)).lower()
                self.queue = [("host", f"{resource}.pressure")]

    def expect(self, command: str) -> None:
        """Queue the files that a command prints."""
        found: list[tuple[int, str, str]] = []
        for m in _FILE.finditer(command):
            folder = m["dir"]
            path = _path(folder) if folder.startswith("/") else self._relative(folder)
            found.append((m.start(), path, m["file"]))
        for m in _PSI_FILE.finditer(command):
            found.append((m.start(), "host", f"{m['file']}.pressure"))
        self.queue = [(path, file) for _, path, file in sorted(found)][:200]
        if self.queue:
            self.path = self.queue[0][0]

    def _relative(self, folder: str) -> str:
        if self.cwd is not None:
            return _path(f"{self.cwd}/{folder}")
        return _path(f"/{folder}") if folder.strip("./") else UNNAMED

    def line(self, line: Line) -> None:
        """Take in one line."""
        text = line.text.rstrip()
        m = _GREP.match(text)
        if m:
            path, file = self._named(m["dir"] or "", m["file"])
            self._content(path, file, m["rest"], line)
            return
        m = _HEADER.match(text)
        if m:
            self.queue = [self._named(m["dir"] or "", m["file"])]
            self.path = self.queue[0][0]
            return
        prompt = _split_prompt(text)
        if prompt:
            self._prompt(*prompt)
            return
        self._unnamed(text, line)

    def _named(self, folder: str, file: str) -> tuple[str, str]:
        if file.startswith("/proc/pressure/"):
            return "host", f"{file.rsplit('/', 1)[1]}.pressure"
        return (_path(folder) if folder.startswith("/") else self._relative(folder)), file

    def _prompt(self, prompt: str, command: str) -> None:
        at = prompt.find("/sys/fs/cgroup")
        if at >= 0:
            self.cwd = prompt[at:].rstrip("]")
        elif prompt and "/" not in prompt:
            self.cwd = None
        moved = re.search(r"\bcd (/sys/fs/cgroup[^\s;&|]{0,1000})", command)
        if moved:
            self.cwd = moved.group(1)
        self.path = _path(self.cwd) if self.cwd else UNNAMED
        self.expect(command)

    def _unnamed(self, text: str, line: Line) -> None:
        """A content line: its form and the files still expected tell which file it is."""
        m = _KEYED.match(text)
        if m:
            file = "memory.events" if m.group(1).startswith("oom") else "cpu.stat"
            self._content(self._take(file), file, text, line)
            return
        if _PRESSURE.match(text):
            if text.lstrip().startswith("some") or self.resource is None:
                waiting = next((q for q in self.queue if q[1].endswith(".pressure")), None)
                if waiting is None:
                    self.resource = None
                    return
                self.path, self.resource = waiting
                self.queue.remove(waiting)
            self._content(self.path, self.resource, text, line)
            return
        if _QUOTA.match(text) and any(f == "cpu.max" for _, f in self.queue):
            self._content(self._take("cpu.max"), "cpu.max", text, line)
        elif _BARE.match(text) and self.queue:
            path, file = self.queue[0]
            if file.startswith(("cpu.cfs", "memory.")) and not file.startswith("memory.events"):
                del self.queue[0]
                self._content(path, file, text, line)

    def _take(self, file: str) -> str:
        """Path of an expected file of that name; files expected before it were empty or missing."""
        for n, (path, name) in enumerate(self.queue):
            if name == file or name.startswith(f"{file}."):
                if n or not file.endswith((".stat", ".events")):
                    del self.queue[: n if file.endswith((".stat", ".events")) else n + 1]
                self.path = path
                return path
        return self.path

    def _content(self, path: str, file: str, text: str, line: Line) -> None:
        group = self.groups.get(path)
        if group is None:
            if len(self.groups) >= MAX_GROUPS:
                return
            group = self.groups[path] = _Group()
        if file == "cpu.stat":
            _stat(group, text, line)
        elif file == "cpu.max":
            m = _QUOTA.match(text)
            if m:
                group.quota, group.period = m.group(1), int(m.group(2))
                group.limit_lines.append(line)
        elif file.endswith(".pressure"):
            m = _PRESSURE.match(text)
            if m:
                resource = file.partition(".")[0]
                group.pressure.setdefault(resource, {})[m.group(1)] = float(m.group(2))
                group.pressure_lines.setdefault(resource, line)
        elif file.startswith("memory.events"):
            m = _KEYED.match(text)
            if m and m.group(1) == "oom_kill":
                group.memory["oom_kill"] = max(int(m.group(2)), group.memory.get("oom_kill", 0))
                group.memory_lines.append(line)
        else:
            _bare(group, file, text, line)


def _stat(group: _Group, text: str, line: Line) -> None:
    m = _KEYED.match(text)
    if m is None:
        return
    key, value = m.group(1), int(m.group(2))
    if not group.stats or (key in group.stats[-1]):
        if len(group.stats) >= 64:
            return
        group.stats.append({})
        group.stat_lines.append([])
    group.stats[-1][key] = value
    if key in ("nr_periods", "nr_throttled", "throttled_usec", "throttled_time"):
        group.stat_lines[-1].append(line)


def _bare(group: _Group, file: str, text: str, line: Line) -> None:
    m = _BARE.match(text)
    if m is None:
        return
    word = m.group(1)
    if file == "cpu.cfs_quota_us":
        group.quota = "max" if word.startswith("-") else word
        group.limit_lines.append(line)
    elif file == "cpu.cfs_period_us" and word.isdecimal():
        group.period = int(word)
    elif word.isdecimal() and int(word) < _UNLIMITED_V1:
        name = {
            "memory.max": "max_bytes", "memory.limit_in_bytes": "max_bytes", "memory.current": "current_bytes",
            "memory.usage_in_bytes": "current_bytes", "memory.peak": "peak_bytes",
            "memory.max_usage_in_bytes": "peak_bytes",
        }.get(file)  # fmt: skip
        if name:
            group.memory[name] = int(word)
            group.memory_lines.append(line)


def _path(folder: str) -> str:
    """Path of a group below the mount point of its hierarchy; `/` is the root group."""
    path = re.sub(r"/{2,}", "/", folder)
    at = path.find("/sys/fs/cgroup")
    if at >= 0:
        path = path[at + len("/sys/fs/cgroup") :]
        path = re.sub(r"^/(?:cpu,cpuacct|cpuacct,cpu|cpu|cpuacct|memory|blkio|unified)(?=/|$)", "", path)
    parts = [p for p in path.split("/") if p not in ("", ".")]
    return "/" + "/".join(parts)


def parse(lines: Iterable[Line], source: Source) -> Iterator[Record]:
    """One `cgroup_cpu` per group and snapshot of cpu.stat, one `cgroup_memory`, one `pressure` per resource."""
    reader = _Reader(source)
    for line in lines:
        if len(line.text) < 6_000:
            reader.line(line)
    told = False
    for path, group in reader.groups.items():
        for record in _records(path, group, source):
            told = True
            yield record
    if reader.groups and not told:
        yield Record("covered", {"topic": "cgroup_files"})


def _records(path: str, group: _Group, source: Source) -> Iterator[Record]:
    if path == "/" and group.limit_lines:
        path = UNNAMED
    stats = [
        (s, at) for s, at in zip(group.stats, group.stat_lines, strict=True) if "nr_periods" in s or "nr_throttled" in s
    ]
    limit = _limit(group)
    for n, (stat, at) in enumerate(stats or [({}, [])]):
        fields = {**limit, **_throttling(stat)}
        if fields:
            if len(stats) > 1:
                fields["snapshot"] = n
            grounds = _grounds(source, at) + _grounds(source, group.limit_lines)
            yield Record("cgroup_cpu", cast(Fields, {"path": path, **fields}), grounds)
    if group.memory:
        yield Record(
            "cgroup_memory", cast(Fields, {"path": path, **group.memory}), _grounds(source, group.memory_lines)
        )
    for resource, share in group.pressure.items():
        fields = drop_none(path=path, resource=resource, some_avg10=share.get("some"), full_avg10=share.get("full"))
        yield Record("pressure", cast(Fields, fields), (evidence(source, group.pressure_lines[resource]),))


def _limit(group: _Group) -> dict[str, object]:
    if group.quota is None:
        return {}
    if group.quota == "max":
        return {"unlimited": True}
    period = group.period or 100_000
    return {"quota_cores": round(int(group.quota) / period, 4), "unlimited": False}


def _throttling(stat: dict[str, int]) -> dict[str, object]:
    periods, throttled = stat.get("nr_periods"), stat.get("nr_throttled")
    seconds = None
    if "throttled_usec" in stat:
        seconds = stat["throttled_usec"] / 1e6
    elif "throttled_time" in stat:
        seconds = stat["throttled_time"] / 1e9
    share = round(throttled / periods, 6) if periods and throttled is not None else None
    return drop_none(nr_periods=periods, nr_throttled=throttled, throttled_s=seconds, throttled_share=share)


def _grounds(source: Source, lines: list[Line]) -> tuple[Evidence, ...]:
    """Evidence of the lines; neighbours become one excerpt."""
    runs: list[list[Line]] = []
    for line in sorted(lines[:40]):
        if runs and line.number == runs[-1][-1].number + 1:
            runs[-1].append(line)
        elif not runs or line.number != runs[-1][-1].number:
            runs.append([line])
    return tuple(evidence(source, *run) for run in runs[:6])

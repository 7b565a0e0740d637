"""Output of several hosts or tasks in one text, taken apart: prefixes on every line, or a heading for each host.

Decided once per file. Prefixes are those of srun -l, mpirun, pdsh, clush, Kubernetes, docker compose, Ray, syslog, CI
and stamps in front of everything; headings are those of clush -b, dshbak, pssh, ansible and loops over ssh. Logs that
know their own prefixes are read whole all the same, see `chosen`.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from diagnose.bundle.columns import rejoined_columns
from diagnose.bundle.origins import names_host
from diagnose.model import Line
from diagnose.parsing import clean, parse_time

READ_FROM = 0.5
"""A parser reads a text when its sniff reaches this."""
MAX_SIZE = 64 << 20
"""Longer files are not taken apart (bytes): their streams are held in memory."""
MAX_STREAMS = 4_096
MAX_HOSTS = 64
"""Hosts that one heading may name."""
_CHUNKS, _CHUNK = 20, 100
"""The lines looked at in a long file: so many groups of so many."""
_MIN_LINES = 2
_REPEATED = 3
"""Lines for each name, on average, that make it a prefix whatever it looks like."""
_SHARE = 0.3
"""Share of the lines that must carry a prefix: the rest may be other text of the same paste."""
_INNER = 0.9
"""Share of those that must carry a further one."""
_LAYERS = 4

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
_HOST = r"[A-Za-z][\w.-]{1,62}"
_FORMS = re.compile(
    r"(?P<mpi>\s{0,4}\[(?:\d{1,10}|pr(?:te|rte)[\w.-]{0,80}@\d{1,10}),(?P<mpi_rank>\d{1,6})\]"
    r"<(?:stdout|stderr|stddiag)>:)"
    r"|(?P<pod>\[pod/(?P<pod_host>[a-z0-9.-]{1,120})/[a-z0-9.-]{1,63}\](?: |$))"
    rf"|(?P<stamp>\[?(?P<at>{_STAMP})\]?(?:[ \t]|$))"
    r"|(?P<clock>\[\d\d:\d\d:\d\d(?:\.\d{1,6})?\](?: |$))"
    r"|(?P<cri>(?:stdout|stderr) [FP](?: |$))"
    rf"|(?P<ci>[^\t\n]{{1,80}}\t[^\t\n]{{1,80}}\t(?={_STAMP} ))"
    r"|(?P<label>\{host=\"(?P<label_host>[\w.-]{1,101})\"\} )"
    r"|(?P<ray>\((?:[\w.]{1,80}(?:\([^()]{0,80}\))? )?pid=\d{1,9}(?:, ip=(?P<ray_host>[\w.:-]{2,60}))?\)(?: |$))"
    r"|(?P<rank>\s{0,8}\[?(?:rank|Rank |default)(?P<rank_number>\d{1,6})\]?:(?: |$))"
    rf"|(?P<syslog>(?:{_SYSLOG}(?:\.\d{{1,6}})? )?(?P<syslog_host>{_HOST}) [\w./-]{{1,60}}\[\d{{1,9}}\]:(?: |$))"
    r"|(?P<task>(?:P\d{1,3} )?\s{0,6}(?P<task_rank>\d{1,6}):(?!\s\[?[\w.@-]{1,40}(?:: <|\s{1,8}inet6? ))(?: |$))"
    rf"|(?P<compose>(?P<compose_host>{_HOST})\s{{1,30}}\|(?: |$))"
    rf"|(?P<host>(?P<host_host>{_HOST}):(?: |$))"
    rf"|(?P<fabric>\[(?P<fabric_host>{_HOST})\](?: out:)?(?: |$))"
    rf"|(?P<parallel>(?P<parallel_host>{_HOST})\t)"
)
_SURE = frozenset({"mpi", "pod", "stamp", "clock", "cri", "ci", "label", "ray", "rank"})
"""Forms that nothing else looks like; the others must prove themselves by what comes again and again."""
_HOST_GROUPS = {
    form: f"{form}_host"
    for form in ("pod", "label", "ray", "syslog", "compose", "host", "fabric", "parallel")
}  # fmt: skip
_RANK_GROUPS = {"mpi": "mpi_rank", "rank": "rank_number", "task": "task_rank"}
_PARTS_OF_HOSTS = re.compile(
    r"(?i:gpu|cpu|core|numa|rank|tc|prio|port|lane|queue|ring|ch|channel|module|slot|bay|fan|psu|temp|sensor|tx|rx|nvidia"
    r"|nvme|sd|md|loop|line|row|col|page|step|epoch|layer|level|link|switch|plane|default|local)[-_]?\d*"
)

_RULE = re.compile(r"[-=]{5,200}\s*")
_NODES = re.compile(r"[A-Za-z][\w.,\[\]-]{0,200}(?: \(\d{1,6}\))?")
_HEADINGS = re.compile(
    rf"(?P<ansible>(?P<ansible_host>{_HOST}) \| (?:CHANGED|SUCCESS|FAILED)(?: \| rc=-?\d{{1,3}})? (?:>>|\(stdout\)).*)"
    rf"|(?P<pssh>\[\d{{1,5}}\] \d\d:\d\d:\d\d \[(?:SUCCESS|FAILURE)\] (?P<pssh_host>{_HOST})(?: .*)?)"
    rf"|(?P<loop>(?:[=#*>-]{{2,40}}\s?(?P<loop_host>{_HOST})\s?:?\s?[=#*<-]{{0,40}}))\s*"
)


_ANSWERS = 2_000
"""Lines of a text in which such answers are looked for: it has few, and long ones."""
_ANSWER = re.compile(r"\"(?:stdout|output|result)\": ?\"(?P<text>(?:[^\"\\]|\\.)*)(?:\"|$)")
_TASK_OF = re.compile(rf"(?:ok|changed|failed|fatal): \[({_HOST})\]")


@dataclass(slots=True)
class Stream:
    """Lines of one host or task without their prefix; `told` is False for lines that carried none."""

    host: str | None = None
    rank: int | None = None
    told: bool = True
    lines: list[Line] = field(default_factory=list[Line])
    scores: dict[str, float] = field(default_factory=dict[str, float])

    def text(self) -> str:
        """All of it, for `sniff`."""
        return "\n".join(line.text for line in self.lines)


@dataclass(frozen=True, slots=True)
class Parts:
    """The streams of a text. `headed`: by headings, so that each is a run of whole lines."""

    streams: tuple[Stream, ...]
    headed: bool


def parts_of(lines: Sequence[Line]) -> Parts | None:
    """The streams of a text; None when it is one."""
    headed = list(_headed(lines)) or list(_answers(lines))
    if any(stream.told for stream in headed):
        return Parts(tuple(headed), True)
    layers = _layers(_sample(lines))
    if not layers:
        whole = rejoined_columns(lines)
        return None if whole is None else Parts((Stream(lines=whole),), False)
    found: dict[tuple[str | None, int | None, bool], Stream] = {}
    for line in lines:
        host, rank, at, text = _unlayered(line.text, layers)
        key = (host, rank, text is not None)
        if key not in found and len(found) >= MAX_STREAMS:
            continue
        stream = found.setdefault(key, Stream(host, rank, text is not None))
        stream.lines.append(line if text is None else Line(line.number, text, at if at is not None else line.at))
    _drop_blank_column(found.values(), layers)
    return Parts(tuple(found.values()), False)


def chosen(parser: ModuleType, parts: Parts, whole: float, name: str) -> list[Stream]:
    """The streams that a parser reads; none when it reads the text as a whole.

    `whole` is what it sniffs there. A parser with READS_PREFIXES reads whole what it recognises whole, except under
    headings, which it does not know.
    """
    if whole >= READ_FROM and getattr(parser, "READS_PREFIXES", False) and not parts.headed:
        return []
    if not parts.headed and not hasattr(parser, "parse"):
        return []
    streams = [s for s in parts.streams if _score(parser, s, name) >= READ_FROM]
    return streams if any(s.told for s in streams) else []


def _score(parser: ModuleType, stream: Stream, name: str) -> float:
    if parser.KIND not in stream.scores:
        stream.scores[parser.KIND] = float(parser.sniff(stream.text(), name))
    return stream.scores[parser.KIND]


# --- prefixes ------------------------------------------------------------------------------------------


def _sample(lines: Sequence[Line]) -> list[str]:
    if len(lines) <= _CHUNKS * _CHUNK:
        return [line.text for line in lines if line.text.strip()]
    stride = len(lines) // _CHUNKS
    return [
        line.text for n in range(_CHUNKS) for line in lines[n * stride : n * stride + _CHUNK] if line.text.strip()
    ]  # fmt: skip


def _layers(texts: Sequence[str]) -> tuple[str, ...]:
    """The forms of prefix that the lines carry, outermost first."""
    layers: list[str] = []
    while len(layers) < _LAYERS and len(texts) >= _MIN_LINES:
        matches: dict[str, list[re.Match[str]]] = {}
        for text in texts:
            m = _match(text)
            if m is not None:
                matches.setdefault(str(m.lastgroup), []).append(m)
        needed = max(_MIN_LINES, (_INNER if layers else _SHARE) * len(texts))
        best = max(matches, key=lambda form: len(matches[form]), default=None)
        if best is None or len(matches[best]) < needed or not _comes_again(best, matches[best], len(texts)):
            break
        layers.append(best)
        texts = [rest for m in matches[best] if (rest := m.string[m.end() :]).strip()]
    return tuple(layers)


def _match(text: str) -> re.Match[str] | None:
    m = _FORMS.match(text)
    if m is not None and m.lastgroup in ("syslog", "compose", "host", "fabric", "parallel"):
        return m if _is_host(str(m.group(_HOST_GROUPS[str(m.lastgroup)]))) else None
    return m


@functools.lru_cache(4_096)
def _is_host(name: str) -> bool:
    if not any(c.isdigit() or c == "-" for c in name) or _PARTS_OF_HOSTS.fullmatch(name):
        return False
    return names_host(name) is not None


def _comes_again(form: str, matches: Sequence[re.Match[str]], lines: int) -> bool:
    """Whether the same names or numbers stand before many lines, or those of one series before a line each."""
    if form in _SURE:
        return True
    group = _HOST_GROUPS.get(form) or _RANK_GROUPS[form]
    names = Counter(str(m.group(group)) for m in matches)
    if len(matches) >= _REPEATED * len(names):
        return True
    if form in _RANK_GROUPS:
        return len(matches) == lines and {int(name) for name in names} == set(range(len(names))) and len(names) > 1
    shapes = Counter(re.sub(r"\d+", "0", name) for name in names)
    return max(shapes.values()) >= max(_MIN_LINES, len(names) - 1)


def _unlayered(text: str, layers: tuple[str, ...]) -> tuple[str | None, int | None, float | None, str | None]:
    """Host, rank, time and what is left of a line; no text when the outer prefix is missing."""
    host: str | None = None
    rank: int | None = None
    at: float | None = None
    for depth, form in enumerate(layers):
        m = _match(text)
        if m is None or m.lastgroup != form:
            if not depth:
                return None, None, None, None
            break
        if form in _HOST_GROUPS:
            host = m.group(_HOST_GROUPS[form]) or host
        elif form in _RANK_GROUPS:
            rank = int(m.group(_RANK_GROUPS[form]))
        elif form == "stamp":
            at = parse_time(m.group("at"))[0]
        text = text[m.end() :]
    return host, rank, at, text


def _drop_blank_column(streams: Iterable[Stream], layers: tuple[str, ...]) -> None:
    """mpirun of Open MPI 5 puts a blank after its tag, that of 4 does not."""
    if "mpi" not in layers:
        return
    told = [line for stream in streams if stream.told for line in stream.lines]
    if all(line.text[:1] in (" ", "") for line in told):
        for stream in streams:
            if stream.told:
                stream.lines = [line._replace(text=line.text[1:]) for line in stream.lines]


# --- headings ------------------------------------------------------------------------------------------


def _headed(lines: Sequence[Line]) -> Iterator[Stream]:
    """A stream for each host and heading; what comes before the first one carries no name."""
    heads = _heads(lines)
    if not heads:
        return
    starts = [start for start, _, _ in heads]
    yield Stream(told=False, lines=list(lines[: starts[0]]))
    for (_, begin, hosts), end in zip(heads, [*starts[1:], len(lines)], strict=True):
        for host in hosts:
            yield Stream(host, lines=list(lines[begin:end]))


def _heads(lines: Sequence[Line]) -> list[tuple[int, int, tuple[str, ...]]]:
    """Index of each heading, of the first line under it, and the hosts that it names."""
    found: dict[str, list[tuple[int, int, tuple[str, ...]]]] = {}
    for n, line in enumerate(lines):
        text = line.text
        if text[:5] in ("-----", "=====") and n + 2 < len(lines) and _RULE.fullmatch(text):
            name = lines[n + 1].text.strip()
            if _NODES.fullmatch(name) and _RULE.fullmatch(lines[n + 2].text):
                found.setdefault("rules", []).append((n, n + 3, _expanded(name.partition(" ")[0])))
            continue
        m = _HEADINGS.fullmatch(text) if len(text) < 200 else None
        if m is not None:
            form = str(m.lastgroup)
            found.setdefault(form, []).append((n, n + 1, (str(m.group(f"{form}_host")),)))
    valid = {
        form: kept for form, heads in found.items()
        if (kept := [head for head in heads if head[2] and all(map(_is_host, head[2]))])
        and (form != "loop" or len({head[2] for head in kept}) > 1)
    }  # fmt: skip
    return max(valid.values(), key=len, default=[])


def _answers(lines: Sequence[Line]) -> Iterator[Stream]:
    """Whole outputs that stand as one string in a line of JSON, as Ansible prints them; all lines bear its number."""
    if len(lines) > _ANSWERS:
        return
    for line in lines:
        for m in _ANSWER.finditer(line.text) if "\\n" in line.text else ():
            try:
                text = json.loads(f'"{m.group("text").rstrip(chr(92))}"')
            except ValueError:
                continue
            if text.count("\n") >= _MIN_LINES:
                named = _TASK_OF.match(line.text)
                host = named.group(1) if named and _is_host(named.group(1)) else None
                yield Stream(host, lines=[line._replace(text=clean(part)) for part in text.split("\n")])


def _expanded(nodes: str) -> tuple[str, ...]:
    """`node[01-03,07]` and `a1,a2` as names; none when there are too many or it is no such list."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*", nodes):
        m = re.fullmatch(r"([\w.-]+)(?:\[([\d,-]+)\]([\w.-]*))?", part)
        if m is None:
            return ()
        if m.group(2) is None:
            names.append(m.group(1))
            continue
        for piece in m.group(2).split(","):
            first, _, last = piece.partition("-")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) - int(first) >= MAX_HOSTS:
                return ()
            names += [f"{m.group(1)}{n:0{len(first)}d}{m.group(3)}" for n in range(int(first), int(last or first) + 1)]
    return tuple(names) if len(names) <= MAX_HOSTS else ()

"""What launchers, schedulers, log shippers and editors put in front of a message, understood in one place."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from diagnose.model import Line
from diagnose.parsing.values import parse_ctime, parse_time


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the prefixes told. `text` is the message; it starts at column `offset` of the line.

    `rank` is a rank or task number as printed: global in `[rank3]:` and mpirun tags, a task in `3: ` of srun, local in
    `[default3]:` (then `local_rank` holds it too). `host` is a host, pod or address. `at` is in epoch seconds, read as
    UTC (or in the zone of `assumed_zone`) when `zone` is False.
    """

    text: str
    rank: int | None = None
    host: str | None = None
    at: float | None = None
    zone: bool = False
    offset: int = 0
    local_rank: int | None = None


_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CTIME = rf"{_DAY} [A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \d{{4}}"
_SIGNED = r"[A-Za-z0-9][\w.%/-]{0,254}:\d{1,10}:\d{1,10} "
_TORCH = r"\[(?:rank|default)\d|\[[EWIF](?:\d{3,4} \d\d:| [A-Za-z]\w*\.)|[EWIF]\d{4} \d\d:\d\d:"
_SYSLOG = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
_KERNEL = (
    rf"(?:<\d{{1,3}}>)?\[\s{{0,8}}\d{{1,9}}\.\d{{6}}\]|\[{_DAY} [A-Z][a-z]{{2}} [ \d]?\d \d\d:\d\d:\d\d \d{{4}}\]"
    rf"|(?:kern|user|daemon)\s{{0,4}}:[a-z]{{3,7}}\s{{0,4}}: |{_SYSLOG}(?:\.\d{{6}})? [\w.-]{{1,63}} kernel: "
)
_STARTS = (
    rf"(?:{_KERNEL}|\s{{0,12}}(?:{_SIGNED}|\[?\d{{4}}-\d\d-\d\d[T ]\d\d:|{_TORCH}|\[\d{{1,10}},\d{{1,6}}\]<|\[pod/|"
    r"\((?:[\w.]{1,60} )?(?:pid|rank)=|(?:stdout|stderr) [FP] |Traceback \(|File \"|NCCL version "
    r"|[A-Za-z.]{0,60}Error: ))"
)
"""How the messages start that are worth taking an ambiguous prefix off for."""
_NO_HOST = (
    r"(?!(?i:srun|slurmstepd|error|warning|warn|info|debug|note|fatal|critical|hint|rank|step|epoch|out|err"
    r"|std(?:out|err)|(?:rank|default)\d+|\w*(?:error|exception))\b)"
)

_PREFIX = re.compile(
    rf"(?P<quote>[ ]?(?:(?:> ){{1,8}}|>{{1,8}} ?(?={_STARTS})))"
    rf"|(?P<stamp>(?:\d{{13,19}}[\s,]\s{{0,3}})?\s{{0,8}}\[?(?P<at>{_STAMP})\]?(?:\s*[|,]?\s+|\t|(?={_SIGNED}|[\[(])))"
    rf"|(?P<ctime>\s{{0,4}}(?P<at2>{_CTIME})(?=<std|\[\d{{1,10}},\d)(?:<(?:stdout|stderr|stddiag)>:)?)"
    rf"|(?P<full>{_DAY} (?P<at3>{_STAMP}) (?:UTC|[A-Z]{{2,5}}|[+-]\d\d) (?=\S))"
    rf"|(?P<rfc5424>(?:<\d{{1,3}}>)?1 (?P<at4>{_STAMP}) (?P<rfc_host>[\w.-]{{1,80}}) [\w./-]{{1,48}} "
    r"[\w.-]{1,64} [\w.-]{1,32} (?:-|\[[^\]\n]{1,400}\]) )"
    r"|(?P<ci>[^\t\n]{1,80}\t[^\t\n]{1,80}\t(?=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z ))"
    r"|(?P<cri>\s{0,4}(?:stdout|stderr) [FP] )"
    r"|(?P<mpi>\s{0,4}\[(?:\d{1,10}|pr(?:te|rte)[\w.-]{0,80}@\d{1,10}),(?P<mpi_rank>\d{1,6})\]"
    r"<(?:stdout|stderr|stddiag)>:\s?)"
    r"|(?P<rank>\s{0,8}\[?(?:rank|Rank )(?P<rank_number>[0-9]{1,6})\]:\s?)"
    r"|(?P<local>\s{0,8}\[?default(?P<local_number>[0-9]{1,6})\]:\s?)"
    r"|(?P<role>\s{0,8}\[(?:trainer|worker|train|actor|learner)_?(?P<role_number>[0-9]{1,4})\]:\s?)"
    r"|(?P<worker>\s{0,4}\((?:[\w.]{1,80}(?:\([^()]{0,80}\))? )?(?:pid|rank)=\d{1,9}"
    r"(?:, ip=(?P<ip>[\w.:-]{2,60}))?\)\s?)"
    r"|(?P<srun>(?:P\d{1,3} )?\s{0,6}(?P<task>\d{1,6}): (?![\w.@-]{1,40}: <)(?=\S|\s{1,12}[A-Za-z\"'~^(\[]))"
    r"|(?P<pod>\[pod/(?P<pod_name>[a-z0-9.-]{1,120})/[a-z0-9.-]{1,63}\] )"
    rf"|(?P<syslog>(?:{_SYSLOG}(?:\.\d{{1,6}})? )?(?P<sys_host>[\w.-]{{1,80}}) [\w./-]{{1,60}}\[\d{{1,9}}\]: "
    rf"(?={_STARTS}))"
    r"|(?P<label>\{host=\"(?P<label_host>[\w.-]{1,101})\"\} )"
    rf"|(?P<loki>\{{(?:[^{{}}\n]{{0,200}}?\b(?:host|hostname|node|node_name|nodename)=\"(?P<loki_host>[\w.-]{{1,80}})\")?"
    rf"[^{{}}\n]{{0,400}}\}}\s{{1,4}}(?={_STARTS}))"
    rf"|(?P<pdsh>{_NO_HOST}(?P<pdsh_host>[A-Za-z][\w.-]{{1,62}})(?:: |\s{{0,30}}\| |\t)"
    rf"(?=(?:\s{{0,6}}\d{{1,6}}: )?{_STARTS}))"
    rf"|(?P<fabric>\[{_NO_HOST}(?P<fabric_host>[A-Za-z][\w.-]{{2,62}})\] (?:out: )?(?={_STARTS}))"
    rf"|(?P<stern>(?P<stern_pod>[a-z][a-z0-9.]{{0,40}}-[a-z0-9.-]{{1,80}}) (?:› )?[a-z][a-z0-9-]{{0,40}} (?={_STARTS}))"
    rf"|(?P<file>[\w./-]{{1,120}}\.(?:log|out|err|txt)[:-]\d{{1,8}}[:-]\s?(?={_STARTS}))"
    r"|(?P<numbered>(?: {5}\d| {4}\d\d| {3}\d{3}| {2}\d{4}| \d{5})\t)"
    rf"|(?P<editor>\s{{0,8}}(?:\[\d{{1,8}}\] ?|\d{{1,8}}(?:[|:\t→] ?| {{1,4}}))(?={_STARTS}))"
    rf"|(?P<bar>[^|\n]{{0,200}}?%\|[^|\n]{{0,400}}\|[^\[\]\n]{{0,80}}\[[^\[\]\n]{{0,400}}\]\s{{0,8}}(?={_STARTS}))"
)


def unprefix(text: str) -> Prefix:
    """Take launcher prefixes off a line: srun, mpirun, torchrun, Ray, Kubernetes (kubectl, CRI, stern), docker compose,
    pdsh and clush, fabric, syslog, journal, Loki, CI logs, ISO stamps, `cat -n`, editor and grep numbers, ticket
    quotes, progress bars before a message.

    They stack, so the search repeats until none matches. Ambiguous ones (`node01: `, `12 `) go only before a message of
    NCCL, torch or another known prefix. Linear time.
    """
    rank: int | None = None
    local: int | None = None
    host: str | None = None
    at: float | None = None
    zone = False
    offset = 0
    for _ in range(8):
        m = _PREFIX.match(text, offset)
        if m is None or m.end() == offset:
            break
        kind = m.lastgroup
        if kind == "stamp":
            at, zone = parse_time(m.group("at"))
        elif kind == "ctime":
            at = parse_ctime(m.group("at2"))
        elif kind in _STAMP_GROUPS:
            at, zone = parse_time(m.group(_STAMP_GROUPS[kind]))
            host = m.group("rfc_host") or host
        elif kind == "mpi":
            rank = int(m.group("mpi_rank"))
        elif kind == "rank":
            rank = int(m.group("rank_number"))
        elif kind == "local":
            local = int(m.group("local_number"))
            rank = rank if rank is not None else local
        elif kind == "role":
            local = int(m.group("role_number"))
        elif kind == "srun":
            rank = int(m.group("task"))
        elif kind == "worker":
            host = m.group("ip") or host
        elif kind in _HOST_GROUPS:
            host = m.group(_HOST_GROUPS[kind]) or host
        offset = m.end()
    return Prefix(text[offset:], rank, host, at, zone, offset, local)


_STAMP_GROUPS = {"full": "at3", "rfc5424": "at4"}
_HOST_GROUPS = {
    "loki": "loki_host",
    "fabric": "fabric_host",
    "pod": "pod_name",
    "syslog": "sys_host",
    "pdsh": "pdsh_host",
    "stern": "stern_pod",
}

_SPLICE = re.compile(
    rf"(?:\[{_STAMP}\] )?(?<![\w.%/-])(?P<host>[A-Za-z0-9][\w.%/-]{{0,254}})"
    r":\d{1,10}:\d{1,10} (?:\[-?\d{1,20}\] |NCCL CALL )"
    r"|\[\d{1,10},\d{1,6}\]<(?:stdout|stderr|stddiag)>:"
    r"|\[(?:rank|default)\d{1,6}\]:(?=\[|\s|\S{1,254}:\d)"
    r"|\[[EWIF](?:\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})?)? ?\w{1,80}\.(?:cpp|hpp|h|cu):\d{1,6}\] "
)


def split_spliced(line: Line) -> list[Line]:
    """Parts of a line in which several messages were spliced (pipes cut output anywhere), all with the line's number.

    A part begins at each NCCL signature, mpirun tag, `[rankN]:` or torch header that does not directly follow another;
    prefixes that `unprefix` knows stay with their message. A line with one message comes back as it is. The end of a
    torn word glued to a host name is parted from it when that host has signed earlier in the line.
    """
    text = line.text
    base = unprefix(text).offset
    starts = [0]
    end = -1
    hosts: list[str] = []
    for m in _SPLICE.finditer(text):
        at = m.start()
        host = m.group("host")
        if host:
            at += next((len(host) - len(known) for known in hosts if host.endswith(known)), 0) if text[at] != "[" else 0
            hosts.append(host)
        if at > base and m.start() != end:
            starts.append(at)
        end = m.end()
    if len(starts) == 1:
        return [line]
    return [Line(line.number, text[a:b], line.at) for a, b in itertools.pairwise([*starts, len(text)])]

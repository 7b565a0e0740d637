"""Outputs of several hosts in one text: each is read as if it had come alone, and belongs to its host."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import bundle, intake, packs
from diagnose.bundle.streams import parts_of
from diagnose.model import Line, Record
from diagnose.parsing import MAX_LINE
from tests import dirt
from tests.parsers.support import FIXTURES

PARSERS = functools.cache(packs.load_parsers)
KINDS = sorted(
    f"{kind}/{name}"
    for kind, names in {
        "cgroup": "healthy-twice sick-grep", "cgtop": "healthy sick-tty", "chrony": "healthy", "dcb": "healthy sick",
        "ethtool": "healthy sick", "host_misc": "healthy sick", "ib_write_bw": "healthy-client sick-server",
        "ip_link": "healthy sick", "kmsg": "healthy sick-T", "lspci": "healthy sick", "mlnx_qos": "healthy sick",
        "nvbandwidth": "healthy sick", "nvidia_smi_query": "healthy-q sick-q", "nvidia_smi_topo": "healthy sick",
        "rdma_counters": "healthy sick", "rdma_port": "healthy sick", "roce_sysfs": "healthy sick",
        "show_gids": "healthy sick",
    }.items()
    for name in names.split()
)  # fmt: skip
HOSTED: dict[str, Callable[[str, str], str]] = {
    "clush": lambda host, line: f"{host}: {line}",
    "clush, blank lines bare": lambda host, line: f"{host}: {line}".rstrip(),
    "docker compose": lambda host, line: f"{host}  | {line}",
    "kubectl --prefix": lambda host, line: f"[pod/{host}/worker] {line}",
    "kubectl --prefix --timestamps": lambda host, line: f"[pod/{host}/worker] 2026-03-19T21:20:09.123456789Z {line}",
    "journal": lambda host, line: f"Mar 19 21:20:09 {host} probe[4711]: {line}",
    "srun -l in clush": lambda host, line: f"{host}: 0: {line}",
    "parallel --tag": lambda host, line: f"{host}\t{line}",
    "fabric": lambda host, line: f"[{host}] out: {line}",
}
TASKED: dict[str, Callable[[int, str], str]] = {
    "srun -l": lambda task, line: f"{task:2d}: {line}",
    "mpirun 4": lambda task, line: f"[1,{task}]<stdout>:{line}",
    "mpirun 5": lambda task, line: f"[prterun-login-77@1,{task}]<stdout>: {line}",
}
Seen = Counter[str]


def text_of(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_bytes().decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n")


def read(text: str, folder: Path) -> list[Record]:
    """All records, by the kinds that the bundle finds."""
    file = folder / "paste.txt"
    file.write_text(text + "\n", "utf-8", newline="\n")
    found: list[Record] = []
    with bundle.open_bundle([str(file)], PARSERS()) as opened:
        for source in opened.sources:
            _, records, problems = intake.parse(source, {p.KIND: p for p in PARSERS()}, None)
            assert not problems
            found += records
    return found


def seen(records: list[Record], host: str | None = None) -> Seen:
    """What was read, told apart from where it stood."""
    return Counter(
        f"{r.kind} {sorted(map(str, r.fields.items()))} {r.count}" for r in records if host is None or r.host == host
    )


def interleaved(*texts: list[str]) -> str:
    return "\n".join(line for lines in itertools.zip_longest(*texts) for line in lines if line is not None)


@pytest.mark.parametrize("form", sorted(HOSTED))
@pytest.mark.parametrize("name", KINDS)
def test_interleaved_hosts_are_read_as_if_alone(name: str, form: str, tmp_path: Path) -> None:
    kind = name.partition("/")[0]
    mine, theirs = text_of(name), text_of(next((n for n in KINDS if n.startswith(kind + "/") and n != name), name))
    put = HOSTED[form]
    mixed = interleaved(*([put(h, x) for x in t.split("\n")] for h, t in (("gpu-n07", mine), ("gpu-n12", theirs))))
    records = read(mixed, tmp_path)
    for host, text in (("gpu-n07", mine), ("gpu-n12", theirs)):
        alone = seen([replace(r, host=None) for r in read(text, tmp_path)])
        assert alone <= seen(records, host)
    lines = mixed.split("\n")
    for record in (r for r in records if r.host):
        for e in record.evidence:
            assert e.text.split("\n")[0].strip() in lines[e.first - 1]
            assert str(record.host) in lines[e.first - 1]


@pytest.mark.parametrize("form", sorted(TASKED))
@pytest.mark.parametrize("name", [n for n in KINDS if not n.startswith("kmsg")])
def test_interleaved_tasks_are_read_as_if_alone(name: str, form: str, tmp_path: Path) -> None:
    text = text_of(name)
    mixed = interleaved(*([TASKED[form](task, line) for line in text.split("\n")] for task in (3, 11)))
    alone, records = read(text, tmp_path), read(mixed, tmp_path)
    for task in (3, 11):
        assert seen(alone) == seen([r for r in records if r.rank == task])


@pytest.mark.parametrize(
    "heading",
    [
        "---------------\ngpu-n[07,12] (2)\n---------------\n{0}\n",
        "---------------\ngpu-n07\n---------------\n{0}\n---------------\ngpu-n12\n---------------\n{0}\n",
        "gpu-n07 | CHANGED | rc=0 >>\n{0}\ngpu-n12 | CHANGED | rc=0 >>\n{0}\n",
        "[1] 09:10:11 [SUCCESS] gpu-n07\n{0}\n[2] 09:10:12 [SUCCESS] gpu-n12\n{0}\n",
        "=== gpu-n07 ===\n{0}\n=== gpu-n12 ===\n{0}\n",
        "==> gpu-n07 <==\n{0}\n==> gpu-n12 <==\n{0}\n",
    ],
)
@pytest.mark.parametrize("name", KINDS)
def test_headings_name_the_host(name: str, heading: str, tmp_path: Path) -> None:
    text = text_of(name)
    alone = seen([replace(r, host=None) for r in read(text, tmp_path)])
    records = read(heading.format(text), tmp_path)
    assert seen(records, "gpu-n07") == seen(records, "gpu-n12") == alone


@pytest.mark.parametrize(
    "form", ["[{0}] {1}", "2026-03-19T21:20:09.123456789Z {1}", "2026-03-19T21:20:09Z stdout F {1}"]
)
@pytest.mark.parametrize("name", KINDS)
def test_times_before_every_line(name: str, form: str, tmp_path: Path) -> None:
    text = text_of(name)
    put = "\n".join(form.format(f"08:14:{n % 60:02d}", line) for n, line in enumerate(text.split("\n")))
    assert seen(read(text, tmp_path)) == seen(read(put, tmp_path))


@pytest.mark.parametrize("name", KINDS)
def test_outputs_in_one_string_of_json(name: str, tmp_path: Path) -> None:
    """As Ansible prints what a task got: every line of it stands in line 2."""
    text = text_of(name)
    put = f"TASK [probe] ****\nok: [gpu-n07] => {json.dumps({'changed': False, 'rc': 0, 'stdout': text})}"
    if len(put) > MAX_LINE:
        return
    alone = seen([replace(r, host=None) for r in read(text, tmp_path)])
    records = read(put, tmp_path)
    assert seen(records, "gpu-n07") == alone
    assert {(e.first, e.last) for r in records for e in r.evidence} <= {(2, 2)}


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", [n for n in KINDS if not n.startswith(("kmsg", "ib_write_bw"))])
def test_lines_that_a_terminal_broke(name: str, width: int, tmp_path: Path) -> None:
    """What is read where several lines broke stands there. (Of perftest one row is told: a lost one shows.)"""
    text = text_of(name)
    whole, broken = seen(read(text, tmp_path)), seen(read(dirt.wrapped(text, width).decode().rstrip("\n"), tmp_path))
    facts = Counter({k: n for k, n in broken.items() if not k.startswith("parse_problem")})
    if sum(len(line) > width for line in text.split("\n")) >= 3:
        assert facts - whole == Counter()


def test_other_text_around_prefixed_lines_is_read_too(tmp_path: Path) -> None:
    pause = "Pause parameters for eth2:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\ton"
    mtu = "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000"
    text = "we looked at this:\n" + "\n".join(f"gpu-n07: {line}" for line in pause.split("\n")) + f"\n\n{mtu}\n"
    assert {(r.kind, r.host) for r in read(text, tmp_path)} == {("nic_pause", "gpu-n07"), ("ip_interface", None)}


@pytest.mark.parametrize("form", ["{0}: {1}", "gpu-n0{0}: {1}", "[1,{0}]<stdout>:{1}", "[pod/w-{0}/c] {1}"])
def test_answers_of_one_line(form: str, tmp_path: Path) -> None:
    text = "\n".join(form.format(n, f"mlx5_{n} port 1 ==> ens{n}np0 (Up)") for n in range(3))
    records = read(text, tmp_path)
    assert len(records) == 3
    assert len({r.host if "gpu" in form or "pod" in form else r.rank for r in records}) == 3


KNOWN = {
    "chrony/dirty-pdsh.txt", "ethtool/dirty.txt", "ip_link/dirty.txt", "mlnx_qos/dirty.txt", "nvidia_smi_topo/pdsh.txt",
    "py_spy/dirty.txt",
}  # fmt: skip


def test_texts_of_one_host_stay_whole() -> None:
    apart: set[str] = set()
    for file in sorted(p for p in FIXTURES.glob("*/*") if p.is_file()):
        with bundle.open_bundle([str(file)], PARSERS()) as opened:
            apart |= {f"{file.parent.name}/{file.name}" for source in opened.sources if source.apart}
    assert apart == KNOWN


@pytest.mark.parametrize(
    "text",
    [
        "rx-checksumming: on\ntx-checksumming: on\nscatter-gather: on\n" * 2,
        "eth0: a\neth0: b\neth0: c\neth1: a\n",
        "mlx5_0: a\nmlx5_0: b\nmlx5_0: c\n",
        "GPU0: a\nGPU0: b\nGPU0: c\nGPU1: d\n",
        "1: lo: <LOOPBACK> mtu 65536\n2: eth0: <UP> mtu 1500\n3: eth1: <UP> mtu 1500\n",
        "2: eth0    inet 192.0.2.1/24\n2: eth0    inet6 fe80::1/64\n2: eth0    inet 192.0.2.2/24\n",
        "error: a\nerror: b\nerror: c\n",
    ],
)
def test_what_looks_like_a_prefix(text: str) -> None:
    assert parts_of([Line(n, line) for n, line in enumerate(text.splitlines(), 1)]) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=40).map(lambda t: t.replace("\n", "")),
            st.sampled_from(["n1: x", "n1: ", "12: y", "[1,2]<stdout>:z", "-----", "n[1-9]", "== n-3 ==", "n1  | q"]),
        ),
        max_size=30,
    )
)
def test_no_line_is_invented(lines: list[str]) -> None:
    parts = parts_of([Line(n, line) for n, line in enumerate(lines, 1)])
    for stream in parts.streams if parts else ():
        for line in stream.lines:
            assert line.text in lines[line.number - 1]

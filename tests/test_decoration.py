"""Quotes, line numbers and code-block indents come off; what only looks like them stays."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from diagnose.bundle import LineReader, excerpt, read_lines
from diagnose.bundle.decoration import undecorated
from diagnose.bundle.streams import parts_of
from diagnose.model import Line, Source
from diagnose.parsing import MAX_LINE

TEXT = ["Settings for eth0:", "\tSpeed: 100000Mb/s", "", "\tDuplex: Full", "\tLink detected: yes", "# end"]


def bare(lines: list[str]) -> list[str] | None:
    strip = undecorated(lines)
    return None if strip is None else [strip(line) for line in lines]


@pytest.mark.parametrize(
    "form",
    ["> {1}", ">{1}", " > > {1}", "{0:6d}\t{1}", "{0} | {1}", "{0:4d}│{1}", "{0}:{1}", "    {1}", "> {0:4d}\t{1}"],
)
def test_what_is_on_every_line_comes_off(form: str) -> None:
    lines = [form.format(n, line) for n, line in enumerate(TEXT, 41)]
    assert [line.rstrip() for line in bare(lines) or []] == TEXT


def test_words_around_a_quote_stay() -> None:
    lines = ["Hello,", "it hangs:", *(f"> {line}" for line in TEXT), "Regards"]
    assert [line.rstrip() for line in bare(lines) or []] == ["Hello,", "it hangs:", *TEXT, "Regards"]


def test_items_of_a_json_list_are_lines() -> None:
    items = [f"        {json.dumps(line)}," for line in TEXT]
    lines = ["ok: [node07] => {", '    "out.stdout_lines": [', *items, "    ]", "}"]
    assert bare(lines) == [*lines[:2], *TEXT, *lines[-2:]]


@pytest.mark.parametrize(
    "form",
    [
        "out/eth0.txt:{0}:{1}",
        "eth-0.txt-{0}-{1}",
        "{0:6d}  {1}",
        "│{1}",
        "+{1}",
        "| {1:60} |",
    ],
)
def test_marks_of_tools_come_off(form: str) -> None:
    lines = [form.format(n, line) for n, line in enumerate(TEXT, 41)]
    assert [line.strip() for line in bare(lines) or []] == [line.strip() for line in TEXT]


def test_html_copied_as_text_is_text_again() -> None:
    link = '2: eth0: <BROADCAST,UP> mtu 9000 qdisc mq state UP "x" & y'
    escaped = link.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert bare([f"<pre><code>{escaped}", escaped, escaped, "</code></pre>"]) == [link, link, link, ""]
    assert bare(["a &amp; b", "<0> c", "d"]) is None


@pytest.mark.parametrize("heading", ["output: |", "stdout: >-", "::", "As told::"])
def test_blocks_of_yaml_and_restructured_text(heading: str) -> None:
    assert bare([heading, *(f"   {line}" for line in TEXT)]) == [heading, *TEXT]


def test_prompts_of_a_pager_go() -> None:
    lines = [*TEXT[:4], "--More--(40%)", ":", *TEXT[4:], "lines 1-6/6 (END)", "(END)"]
    assert [line for line in bare(lines) or [] if line] == [line for line in TEXT if line]


def test_blanks_that_text_recognition_doubled() -> None:
    lines = ["Settings  for  eth0:", "  Link  detected:  yes", "  Current  message  level:  0x7", "a  b", "c  d"]
    assert bare(lines) == [
        line.replace("  ", " ") if line[0] != " " else "  " + line[2:].replace("  ", " ") for line in lines
    ]
    table = ["  Port  TxQ  Drop/pkts", "------  ---  ---------", "  Eth0  UC0          0", "  Eth0  UC1          1"]
    assert bare(table) is None


@pytest.mark.parametrize(
    "lines",
    [
        TEXT,
        ["{", '  "driver": "mlx5_core",', '  "version": "5.8",', '  "bus-info": "0000:5e:00.0"', "}"],
        ["> one", "> two"],
        [f"{n}: {name}: <UP> mtu 1500" for n, name in enumerate(("lo", "eth0", "eth1", "ib0", "ib1"), 1)],
        [f"{n}: step" for n in range(9)],
        [f"0: line {n}" for n in range(9)],
        [f"{n}, NVIDIA H100, 5" for n in range(8)],
        [f"{n} 5 5 16" for n in range(8)],
        [f"{hour:02d}:10:00 epoch {hour}" for hour in range(9, 20)],
        [f"     rx{n}: 1" for n in range(9)],
        ["NIC statistics:", "     rx_packets: 1", "     tx_packets: 2", "     rx_bytes: 3"],
        ["Settings for eth0:", "   Speed: 1", "   Duplex: 2", "   Port: 3"],
        ["+----+----+", "| 0  | a  |", "+----+----+", "| 1  | b  |"],
        [f"/sys/class/net/eth{n}/mtu:9000" for n in range(8)],
        [f"10.0.0.{n}:80:up" for n in range(8)],
        ["\tSpeed: 5", "\tDuplex: Full", "\tPort: x", "\tAuto: on"],
    ],
)
def test_what_belongs_to_the_text_stays(lines: list[str]) -> None:
    assert bare(lines) is None


@pytest.mark.parametrize(
    "unit", ["|", "| ", " ", "\t", "> ", "+", "&lt;", '"\\', "--  ", "a-1-", "1:", "<pre ", "::", "x  ", "["]
)
def test_hostile_lines_take_linear_time(unit: str) -> None:
    lines = [unit * (MAX_LINE // len(unit))] * 40
    start = time.process_time()
    bare(lines)
    parts_of([Line(n, line) for n, line in enumerate(lines, 1)])
    assert time.process_time() - start < 2


def test_all_ways_of_reading_show_the_same(tmp_path: Path) -> None:
    file = tmp_path / "mail.txt"
    file.write_text("\r\n".join(f"> {n}\u00a0x\u200b" for n in range(1, 30_000)))
    source = Source("s", "mail.txt", str(file), file.stat().st_size)
    lines = list(read_lines(source))
    assert [line.text for line in lines[:2]] == ["1 x", "2 x"]
    assert LineReader(source)[20_000:20_010] == lines[20_000:20_010]
    assert excerpt(source, 29_000, 29_000, 2) == lines[28_997:29_002]

"""The kit for parser writers: prefixes, re-joining, splitting, times, terminals."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import parsing
from diagnose.model import Block, Line, Source
from diagnose.parsing import (
    assumed_zone,
    clean,
    device_from_command,
    device_from_name,
    evidence,
    is_gap,
    parse_ctime,
    parse_time,
    rejoin,
    rejoin_text,
    rejoined,
    sections,
    split_spliced,
    unprefix,
    unwrap_json,
    wrap_width,
)

INFO = "gpu07:4242:4290 [3] NCCL INFO Channel 00/0 : 3[3] -> 11[3] [send] via NET/IB/3/GDRDMA"
WARN = "gpu07:4242:4290 [3] misc/socket.cc:488 NCCL WARN socketProgress: Connection closed by remote peer"
TORCH = "[E1130 17:20:00.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout"


def numbered(*texts: str) -> list[Line]:
    return [Line(n, text) for n, text in enumerate(texts, 1)]


# --- prefixes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "rank", "host"),
    [
        ("", None, None),
        ("3: ", 3, None),
        ("   3: ", 3, None),
        ("P0  3: ", 3, None),
        ("[1,12]<stdout>:", 12, None),
        ("[1,12]<stderr>:", 12, None),
        ("[prterun-login1-4711@1,7]<stdout>: ", 7, None),
        ("Mon Nov 30 17:47:45 2026[1,4]<stdout>:", 4, None),
        ("[default5]:", 5, None),
        ("[rank6]:", 6, None),
        ("[rank6]: ", 6, None),
        ("(Worker pid=912) ", None, None),
        ("(RayTrainWorker pid=1234, ip=10.0.0.5) ", None, "10.0.0.5"),
        ("(Trainer(name=a) pid=7) ", None, None),
        ("[pod/train-worker-0/pytorch] ", None, "train-worker-0"),
        ("[pod/train-worker-0/pytorch] 2026-11-30T17:20:00.123456789Z ", None, "train-worker-0"),
        ("train-worker-0 pytorch ", None, "train-worker-0"),
        ("train-worker-0 › pytorch ", None, "train-worker-0"),
        ("2026-11-30T17:20:00.123456789Z stdout F ", None, None),
        ("2026-11-30T17:20:00.123456789+01:00 stderr P ", None, None),
        ("[2026-11-30 17:20:00] ", None, None),
        ("2026-11-30 17:20:00,123 ", None, None),
        ("2026-11-30 17:20:00\t", None, None),
        ("Nov 30 18:55:12 node01 python3[123]: ", None, "node01"),
        ("Nov  3 18:55:12 node01 slurm_script[123]: ", None, "node01"),
        ("node01: ", None, "node01"),
        ("node01.cluster.example: ", None, "node01.cluster.example"),
        ("worker-1  | ", None, "worker-1"),
        ("80646  ", None, None),
        ("  80646\t", None, None),
        ("[80646] ", None, None),
        ("80646:", None, None),
        ("train.log:80646:", None, None),
        ("> ", None, None),
        (">> ", None, None),
        ("> > 3: ", 3, None),
        ("1701364800000000000\t2023-11-30T17:20:00Z\t", None, None),
        ('2023-11-30T17:20:00Z {app="train"} ', None, None),
        ("Epoch 0:  12%|█▏        | 32/500 [00:10<02:30,  3.1it/s, loss=2.6]", None, None),
        ("worker-0: 12: [default4]:[rank12]:", 12, "worker-0"),
        ("12: [default4]:", 12, None),
    ],
)
@pytest.mark.parametrize("message", [INFO, TORCH])
def test_prefixes(before: str, message: str, rank: int | None, host: str | None) -> None:
    told = unprefix(before + message)
    assert told.text == message
    assert told.offset == len(before)
    assert (told.rank, told.host) == (rank, host)


def test_local_ranks_are_told_apart() -> None:
    assert unprefix("12: [default4]:[rank12]:x").local_rank == 4
    assert unprefix("[trainer3]:x").local_rank == 3
    assert unprefix("[trainer3]:x").rank is None
    assert unprefix("[rank3]:x").local_rank is None


@pytest.mark.parametrize(
    "text",
    [
        "5c1d46baa8d5:4241:4262 [2] NCCL INFO Call to connect",
        "10.0.0.1:1:2 [0] NCCL INFO x",
        "ip-10-0-0-1:1:2 [0] NCCL INFO x",
        "2: eth0: <BROADCAST,MULTICAST,UP> mtu 9000",
        "node   0   1",
        "  0:  10  21",
        "GPU0\t X \tNV18\tNV18",
        "RuntimeError: [rank0]: something",
        "srun: error: gpu003: task 12: Killed",
        "Nov 30 18:55:12 node01 kernel: [1.2] NVRM: Xid (PCI:0000:1b:00): 79",
        "     rx_packets: 12345",
        "System time     : 0.000012 seconds fast of NTP time",
        "12.5 of 100",
        "a | b",
        "key: value",
    ],
)
def test_what_is_no_prefix_stays(text: str) -> None:
    assert unprefix(text).text == text


def test_times_of_prefixes() -> None:
    at = 1796059200.0
    assert unprefix("2026-11-30T17:20:00Z x").at == at
    assert unprefix("[2026-11-30 17:20:00] " + INFO).zone is False
    assert unprefix("2026-11-30T18:20:00+01:00 x").at == at
    assert unprefix("2026-11-30T17:20:00.25Z x").at == at + 0.25
    assert unprefix("2026-13-45T17:20:00Z x").at is None


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='[]<>(),:|rankdefoultpidN 0123456789-TZ.%>\t"{}', max_size=80))
def test_any_text_keeps_its_message(text: str) -> None:
    told = unprefix(text)
    assert text[told.offset :] == told.text
    parts = split_spliced(Line(1, text))
    assert "".join(part.text for part in parts) == text


@pytest.mark.parametrize(
    "piece",
    [
        "[rank1]:",
        "> ",
        "1: ",
        "{",
        "%|",
        "|",
        "(pid=1) ",
        "[",
        " ",
        "x:1:",
        "host:1:2 [0] ",
        "[1,2]<stdout>:",
        "1",
        "a.",
    ],
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (parsing.MAX_LINE // len(piece))
    start = time.process_time()
    unprefix(text)
    split_spliced(Line(1, text))
    wrap_width(f"{text}\n" * 3)
    list(sections([Line(1, text)]))
    clean(text + "\x1b[" * 100)
    unwrap_json("{" + text)
    assert time.process_time() - start < 0.5


# --- JSON records -------------------------------------------------------------------------------------------


def test_json_records() -> None:
    docker = json.dumps({"log": INFO + "\n", "stream": "stderr", "time": "2026-11-30T17:20:00Z"})
    assert unwrap_json(docker) == f"2026-11-30T17:20:00Z stderr F {INFO}"
    assert unprefix(unwrap_json(docker)).text == INFO
    assert unwrap_json(json.dumps({"line": INFO, "labels": {"app": "x"}})) == INFO
    assert unwrap_json(json.dumps({"message": INFO, "@timestamp": "2026-11-30T17:20:00Z"})).endswith(INFO)
    assert "\n" not in unwrap_json(json.dumps({"log": "a\nb\rc", "time": "x"}))
    for other in ("{", "{}", '{"entries": []}', "[1]", INFO, '{"log": 3, "time": 4}', '{"log": "no other key"}'):
        assert unwrap_json(other) == other


# --- wrapping ------------------------------------------------------------------------------------------------


def wrapped(texts: list[str], width: int) -> list[str]:
    return [text[i : i + width] for text in texts for i in range(0, len(text), width)]


MESSAGES = [
    INFO,
    "[2026-11-30 17:20:00] " + WARN + " 192.0.2.7<41988>",
    f"[rank3]:{TORCH}: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001"
    " milliseconds before timing out.",
    "gpu07:4242:4291 [4] NCCL INFO comm 0x55 rank 4 nranks 16 cudaDev 4 busId 48000 commId 0x49bbd7 - Init COMPLETE",
]


@pytest.mark.parametrize("width", [72, 80, 100])
def test_hard_wrapped_messages_are_joined_even_inside_words(width: int) -> None:
    texts = MESSAGES * 3
    pieces = wrapped(texts, width)
    joined = list(rejoin(numbered(*pieces)))
    assert [line.text for line in joined] == texts
    assert all(pieces[line.number - 1] == line.text[:width] for line in joined)


def test_a_single_message_over_several_lines() -> None:
    pieces = wrapped([MESSAGES[2]], 80)
    assert len(pieces) > 2
    assert [line.text for line in rejoin(numbered(*pieces))] == [MESSAGES[2]]


def test_quoted_and_wrapped() -> None:
    pieces = ["> " + piece for piece in wrapped(MESSAGES, 76)]
    assert next(unprefix(line.text).text for line in rejoin(numbered(*pieces))) == unprefix(MESSAGES[0]).text


def test_blank_at_the_cut_is_restored() -> None:
    text = MESSAGES[3]
    cut = text.index(" busId") + 1
    pieces = [*wrapped(MESSAGES[2:3] * 2, cut), text[: cut - 1], text[cut:]]
    assert [line.text for line in rejoin(numbered(*pieces))][-1] == text


def test_unwrapped_logs_pass_unchanged() -> None:
    rng = random.Random(3)
    texts = [
        rng.choice([*MESSAGES, INFO, INFO, "", "loss 3.2", "Traceback (most recent call last):", '  File "a.py"'])
        for _ in range(400)
    ]
    assert [line.text for line in rejoin(numbered(*texts))] == texts
    text = "\n".join(texts)
    assert rejoin_text(text) is text
    block = Block(7, text)
    assert next(rejoined([block])) is block


def test_equal_lines_followed_by_text_of_their_own_are_not_wrapped() -> None:
    texts = [
        "gpu07:1:2 [0] NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152",
        "This is usually caused by",
    ] * 20
    assert wrap_width("\n".join(texts)) is None


def test_last_pieces_that_fill_the_line_by_chance_do_not_hide_the_wrapping() -> None:
    starts = [
        f"node-gp{n:02d}:17:417 [0] NCCL INFO ncclCommInitRankConfig comm 0x55b595b37b5b rank 0 "
        "nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x9f3c11d2a64be870 - Init START" for n in range(9)
    ]  # fmt: skip
    assert {len(line) % 80 for line in starts} == {0}
    assert wrap_width("\n".join(wrapped(starts + MESSAGES, 80))) == 80


def test_blocks_keep_their_line_numbers() -> None:
    pieces = wrapped(MESSAGES * 2, 80)
    (block,) = rejoined([Block(11, "\n".join(pieces))])
    lines = block.text.split("\n")
    assert block.first == 11
    assert len(lines) == len(pieces)
    assert [line for line in lines if line] == MESSAGES * 2
    assert lines[0] == MESSAGES[0]
    assert lines[1] == ""


# --- splicing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (INFO, [INFO]),
        ("3: " + INFO, ["3: " + INFO]),
        (INFO + WARN, [INFO, WARN]),
        (INFO[:50] + WARN, [INFO[:50], WARN]),
        (INFO + "[2026-11-30 17:20:00] " + WARN, [INFO, "[2026-11-30 17:20:00] " + WARN]),
        ("[1,0]<stdout>:no newline[1,1]<stderr>:err", ["[1,0]<stdout>:no newline", "[1,1]<stderr>:err"]),
        ("[rank0]:" + TORCH + "[rank1]:" + TORCH, ["[rank0]:" + TORCH, "[rank1]:" + TORCH]),
        ("[1,13]<stdout>:" + INFO, ["[1,13]<stdout>:" + INFO]),
        ("2026-11-30T17:20:00Z " + INFO, ["2026-11-30T17:20:00Z " + INFO]),
        ("some text " + INFO, ["some text ", INFO]),
        ("", [""]),
    ],
)
def test_spliced_lines(text: str, parts: list[str]) -> None:
    assert split_spliced(Line(5, text)) == [Line(5, part) for part in parts]


# --- times, numbers, names, terminals ---------------------------------------------------------------------------


def test_times_without_a_zone() -> None:
    assert parse_time("2026-07-01 12:00:00") == (1782907200.0, False)
    with assumed_zone("Europe/Berlin"):
        assert parse_time("2026-07-01 12:00:00") == (1782907200.0 - 7200, True)
        assert parse_time("2026-07-01 12:00:00Z") == (1782907200.0, True)
        assert parse_ctime("Wed Jul  1 12:00:00 2026") == 1782907200.0 - 7200
        with assumed_zone(None):
            assert parse_time("2026-07-01 12:00:00") == (1782907200.0, False)
    with assumed_zone("+05:30"):
        assert parse_time("2026-07-01T12:00:00")[0] == 1782907200.0 - 19800
    with pytest.raises(ValueError, match="unknown time zone"), assumed_zone("Mars/Olympus"):
        pass
    assert parse_time("2026-99-01 12:00:00") == (None, False)
    assert parse_ctime("nonsense") is None


@pytest.mark.parametrize("zone", ["UTC", "Z", "+00:00", "-0000", "utc+0"])
def test_names_of_utc(zone: str) -> None:
    with assumed_zone(zone):
        assert parse_time("1970-01-01 00:00:00") == (0.0, True)


def test_numbers() -> None:
    assert parsing.number("rate 25.5 Gb/s") == 25.5
    assert parsing.number(None) is None
    assert parsing.number("none") is None
    assert (parsing.integer("0x1F"), parsing.integer(" 12 "), parsing.integer("1.5"), parsing.integer(None)) == (
        31,
        12,
        None,
        None,
    )
    assert parsing.drop_none(a=1, b=None, c=0) == {"a": 1, "c": 0}


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("ethtool-S.eth2.t0.txt", "eth2"),
        ("ethtool-S-ens3.txt", "ens3"),
        ("ethtool-S-flannel.1.txt", "flannel.1"),
        ("mlnx_qos.eth2.txt", "eth2"),
        ("hw_counters.mlx5_2.t1.txt", "mlx5_2"),
        ("topo.txt", None),
        ("nccl.log", None),
    ],
)
def test_devices_in_names(name: str, device: str | None) -> None:
    assert device_from_name(name) == device


def test_devices_in_commands() -> None:
    assert device_from_command("ethtool -S eth0") == "eth0"
    assert device_from_command("mlnx_qos -i eth2") == "eth2"
    assert device_from_command("lspci") is None
    assert device_from_command(None) is None


def test_sections_of_a_pasted_terminal() -> None:
    lines = numbered(
        "intro",
        "root@gpu07:~# nvidia-smi topo -m",
        "GPU0 X",
        "$ ethtool eth0",
        "Settings for eth0:",
        "==> a.log <==",
        "x",
    )
    found = [(s.command, [line.number for line in s.lines]) for s in sections(lines)]
    assert found == [(None, [1]), ("nvidia-smi topo -m", [3]), ("ethtool eth0", [5]), ("a.log", [7])]


def test_clean() -> None:
    assert clean("\x1b[1mbold\x1b[0m\tx\x00y\x7f\u202ez") == "bold\txyz"
    assert clean("\x1b]0;title") == ""
    assert clean("plain ü 東") == "plain ü 東"
    typed = "\u201cdriver\u201d: it\u2019s \u2013json \u2013\u2013\u2013 a \u2013 b"
    assert clean(typed) == '"driver": it\'s --json ------ a \u2013 b'


def test_evidence_spans_lines() -> None:
    source = Source("s1", "a.log")
    found = evidence(source, Line(3, "a  "), Line(4, "b"), spans=[(0, 1)])
    assert (found.source, found.first, found.last, found.text, found.spans) == ("a.log", 3, 4, "a\nb", ((0, 1),))
    record = parsing.problem(source, "torn", Line(9, "x"))
    assert (record.kind, record.fields["text"], record.evidence[0].first) == ("parse_problem", "torn", 9)


def test_times_that_no_calendar_has() -> None:
    assert parse_time("0000-01-01T00:00:00Z") == (None, False)
    assert parse_time("9999-12-31 23:59:59") == (None, False)
    with assumed_zone("Europe/Berlin"):
        assert parse_time("2026-02-31 00:00:00")[0] is not None


@pytest.mark.parametrize(
    "text", ["...", "[...]", "  […]", "<snip>", "[200 lines omitted]", "(truncated)", "--- snip ---", "-- 8<"]
)
def test_gaps(text: str) -> None:
    assert is_gap(text)


@pytest.mark.parametrize(
    "text", ["", "-", "----", "loading...", "[0]", "cut", "...done", "NCCL INFO [...]", "<inactive>", "[1, 2]"]
)
def test_no_gaps(text: str) -> None:
    assert not is_gap(text)

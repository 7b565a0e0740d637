"""NCCL logs of every age: signatures, start-up, network, communicators, channels, calls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import foreign, hostile
from support import fixture, lines_of, load, of, run

from diagnose.model import Block, Digest, Line, Record, Source

PARSER = load("nccl_log")
KIND = "nccl_log"


def read(name: str, **told: object) -> list[Record]:
    return run(PARSER, fixture(KIND, name), name, **told)


def said(message: str) -> list[Record]:
    """Records of one signed INFO message."""
    return run(PARSER, f"n1:10:11 [0] NCCL INFO {message}")


def fields(records: list[Record], kind: str) -> list[dict[str, object]]:
    return [dict(r.fields) for r in of(records, kind)]


def one(records: list[Record], kind: str) -> Record:
    (found,) = of(records, kind)
    return found


# --- healthy logs -----------------------------------------------------------------------------------


def test_a_healthy_log_of_two_ranks() -> None:
    records = read("healthy-2.27.txt")
    assert not [r for r in records if r.kind in ("nccl_warning", "parse_problem", "nccl_connect_error")]
    assert one(records, "nccl_version").fields == {"version": "2.27.5", "cuda": "12.8", "flavour": "nccl"}
    env = {r.fields["name"]: r for r in of(records, "nccl_env")}
    assert env["NCCL_IB_TIMEOUT"].fields["number"] == 22
    assert env["NCCL_IB_TIMEOUT"].fields["value"] == "22"
    assert env["NCCL_SOCKET_IFNAME"].fields["value"] == "=bond0"
    assert env["NCCL_SOCKET_IFNAME"].count == 2
    assert "pid" not in env["NCCL_SOCKET_IFNAME"].fields
    bootstrap = one(records, "nccl_bootstrap")
    assert (bootstrap.fields["scope"], bootstrap.fields["subnet"], bootstrap.fields["interface_class"]) == (
        "private",
        "10.61.2.0/24",
        "physical",
    )
    speeds = {r.fields["device"]: r.fields["speed_mbps"] for r in of(records, "nccl_net_device")}
    assert speeds == {"mlx5_0": 400000, "mlx5_1": 200000}
    assert one(records, "nccl_net_list").fields["devices"] == "mlx5_0:1/RoCE,mlx5_1:1/RoCE"
    assert one(records, "nccl_network").fields["transport"] == "rdma"
    assert [f["state"] for f in fields(records, "nccl_plugin")] == ["not_found", "not_found"]
    assert one(records, "nccl_channel_count").fields == {"coll": 16, "p2p": 8, "nvls": 12, "nranks": 16}
    graph = one(records, "nccl_graph")
    assert (graph.fields["pattern"], graph.fields["bw_inter_gbps"], graph.fields["type_inter"]) == ("ring", 25.0, "PIX")


def test_communicators_tell_the_rank_of_processes() -> None:
    records = read("healthy-2.27.txt")
    first, second = of(records, "nccl_comm")
    assert (first.fields["state"], first.fields["rank"], first.rank, first.fields["seconds"]) == (
        "destroyed",
        8,
        8,
        2.33,
    )
    assert [(e.first, e.last) for e in first.evidence] == [(18, 18), (42, 42)]
    assert (second.fields["state"], second.rank, second.host) == ("complete", 9, "amber-n07")
    assert one(records, "nccl_network").rank == 8


def test_channels_are_counted_by_transport() -> None:
    p2p, net = of(read("healthy-2.27.txt"), "nccl_transport")
    assert (p2p.fields["transport"], p2p.fields["detail"], p2p.fields["channels"]) == ("P2P", "CUMEM", 2)
    assert p2p.fields["intra_host"] is True
    assert (net.fields["network"], net.fields["gdr"], net.fields["device"]) == ("IB", True, "0")
    assert (net.fields["pairs"], net.rank, net.evidence[0].first) == (2, 8, 29)


def test_the_last_calls_with_numbers_in_hexadecimal() -> None:
    calls = of(read("healthy-2.27.txt"), "nccl_collective")
    assert [(r.rank, r.fields["op"], r.fields["op_count"], r.fields["calls"]) for r in calls] == [
        (8, "AllReduce", 0, 3),
        (8, "ReduceScatter", 1, 3),
        (8, "AllGather", 26, 3),
        (9, "AllReduce", 0, 1),
    ]
    assert calls[1].fields["datatype"] == "float32"
    assert calls[2].fields["comm_id"] == "0x9c3f1177aa55e201"
    assert calls[2].evidence[0].first == 41


def test_an_old_log() -> None:
    records = read("healthy-2.7.txt")
    assert one(records, "nccl_version").fields["version"] == "2.7.8"
    assert one(records, "nccl_network").fields["transport"] == "socket"
    assert {f["device"]: f["interface_class"] for f in fields(records, "nccl_net_device")} == {
        "ib0": "physical",
        "docker0": "docker",
    }
    assert [f["transport"] for f in fields(records, "nccl_transport")] == ["SHM", "P2P", "NET"]
    assert one(records, "nccl_comm").fields["state"] == "complete"


def test_an_rccl_log() -> None:
    records = read("healthy-rccl.txt")
    assert one(records, "nccl_version").fields == {"version": "2.18.3", "cuda": "6.0", "flavour": "rccl"}
    assert one(records, "nccl_plugin").fields["name"] == "librccl-net.so"
    assert one(records, "nccl_comm").rank == 0


# --- what start-up says ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "kind", "wanted"),
    [
        ("NCCL_DEBUG_SUBSYS set by environment to INIT,COLL", "nccl_env", {"value": "INIT,COLL"}),
        ("NCCL_IB_HCA set to =mlx5_0,mlx5_1", "nccl_env", {"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1"}),
        ("NCCL_BUFFSIZE set by environment to 0x400000.", "nccl_env", {"number": 4194304}),
        ("Comm config Blocking set to 1", "nccl_env", {"name": "config Blocking", "number": 1}),
        ("Bootstrap : Using docker0:172.17.0.1<0>", "nccl_bootstrap",
         {"scope": "docker_bridge", "interface_class": "docker"}),
        ("Bootstrap: Using eth0:fe80::5054:ff:fe12:1%eth0<0>", "nccl_bootstrap", {"scope": "link_local"}),
        ("Bootstrap: Using lo:127.0.0.1<0>", "nccl_bootstrap", {"scope": "loopback", "interface_class": "loopback"}),
        ("NET/IB : No device found.", "nccl_net_absent", {"reason": "no_device"}),
        ("Failed to open libibverbs.so[.1]", "nccl_net_absent", {"reason": "no_verbs_library"}),
        ("NET/OFI No eligible providers were found", "nccl_net_absent", {"reason": "no_provider"}),
        ("Using network IBext_v8", "nccl_network", {"transport": "rdma"}),
        ("Using network AWS Libfabric", "nccl_network", {"transport": "efa"}),
        ("Using network FasTrak", "nccl_network", {"transport": "plugin"}),
        ("NET/Plugin: Loaded net plugin Libfabric (v8)", "nccl_plugin", {"state": "loaded", "name": "Libfabric"}),
        ("TUNER/Plugin: Using tuner plugin nccl_ofi_tuner", "nccl_plugin", {"type": "tuner", "state": "loaded"}),
        ("Failed to initialize NET plugin gIB", "nccl_plugin", {"state": "failed", "name": "gIB"}),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "nccl_gdr", {"enabled": True, "device": "mlx5_0"}),
        ("NET/IBext_v8 : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "nccl_gdr", {"enabled": False}),
        ("GPU Direct RDMA Disabled for GPU 3 / HCA 1 (distance 8 > 5)", "nccl_gdr",
         {"reason": "distance", "distance": "8 > 5"}),
        ("NVLS multicast support is not available on dev 3", "nccl_nvls", {"state": "unavailable"}),
        ("2 coll channels, 4 p2p channels, 1 p2p channels per peer", "nccl_channel_count", {"coll": 2, "p2p": 4}),
        ("NET/IB : mlx5_1:1 speed change detected: 400000 -> 100000 Mbps", "nccl_link_speed_change",
         {"to_mbps": 100000}),
        ("Could not enable P2P between dev 0(=1b000) and dev 1(=1c000)", "nccl_p2p_state", {"state": "enable_failed"}),
        ("CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA", "nccl_transport", {"transport": "COLLNET", "gdr": True}),
        ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/AWS Libfabric/2/GDRDMA/Shared", "nccl_transport",
         {"network": "AWS Libfabric", "device": "2", "gdr": True}),
        ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/2/GDR", "nccl_transport", {"network": "IB", "gdr": None}),
        ("Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/2/Shared", "nccl_transport", {"network": "IB", "gdr": False}),
        ("Channel 03/0 : 1[1] -> 9[1] via P2P/MNNVL", "nccl_transport", {"detail": "MNNVL"}),
    ],
)  # fmt: skip
def test_a_message(message: str, kind: str, wanted: dict[str, object]) -> None:
    record = one(said(message), kind)
    assert {name: record.fields.get(name) for name in wanted} == wanted
    assert record.host == "n1"


@pytest.mark.parametrize(
    "message",
    [
        "HINT: In many cases this error occurs when the incorrect GID index is forced by NCCL_IB_GID_INDEX",
        "NET/Plugin: Using internal network plugin.",
        "Trees [0] 1/-1/-1->0->-1",
        "Channel 00/16 :    0   1   2   3",
        "cudaDriverVersion 12080",
        "Rank 2 has 8 local Net devices (max 8).",
    ],
)
def test_messages_that_say_nothing_cover_the_host(message: str) -> None:
    (record,) = said(message)
    assert (record.kind, record.fields["topic"], record.host) == ("covered", "nccl_log", "n1")


def test_a_list_cut_short_is_no_list() -> None:
    records = said("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5")
    assert not of(records, "nccl_net_list")
    assert len(of(records, "nccl_net_device")) == 2


# --- whose rank --------------------------------------------------------------------------------------

INIT = "comm 0x{p} rank {r} nranks {n} cudaDev {d} nvmlDev {d} busId {d}b000 commId 0x{c} - Init COMPLETE"


def comm(pid: int, tid: int, dev: int, rank: int, size: int, name: str, host: str = "n1") -> str:
    message = INIT.format(p=f"{pid}{tid}", r=rank, n=size, d=dev, c=name)
    return f"{host}:{pid}:{tid} [{dev}] NCCL INFO ncclCommInitRank {message}"


def test_a_process_with_several_ranks_tells_them_apart_by_device_and_thread() -> None:
    text = "\n".join(
        [
            comm(7, 71, 0, 0, 4, "aa"),
            comm(7, 72, 1, 1, 4, "aa"),
            "n1:7:72 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [send] via NET/IB/0",
            "n1:7:7 [0] misc/x.cc:1 NCCL WARN Cuda failure 'out of memory'",
        ]
    )
    records = run(PARSER, text)
    assert one(records, "nccl_transport").rank == 1
    assert one(records, "nccl_cuda_error").rank == 0


def test_ranks_of_subgroups_are_no_global_ranks() -> None:
    text = "\n".join(
        [
            comm(7, 71, 0, 0, 2, "aa"),
            comm(8, 81, 1, 1, 2, "aa"),
            comm(9, 91, 2, 0, 2, "bb"),
            comm(10, 92, 3, 1, 2, "bb"),
        ]
    )
    assert [r.rank for r in of(run(PARSER, text), "nccl_comm")] == [None, None, None, None]


def test_the_world_is_the_largest_communicator() -> None:
    text = "\n".join([comm(7, 71, 0, 5, 16, "aa"), comm(7, 72, 0, 1, 2, "bb")])
    assert [r.rank for r in of(run(PARSER, text), "nccl_comm")] == [5, 5]


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [("[rank37]: ", 37), ("[1,13]<stdout>:", 13), ("12: ", 12), ("[default4]:", None), ("", None)],
)
def test_hints_of_launchers(prefix: str, rank: int | None) -> None:
    record = one(run(PARSER, f"{prefix}n1:10:11 [3] NCCL INFO Using network IB"), "nccl_network")
    assert (record.rank, record.host) == (rank, "n1")


def test_srun_tasks_that_hold_several_processes_are_no_ranks() -> None:
    text = "3: n1:10:11 [0] NCCL INFO Using network IB\n3: n1:12:13 [1] NCCL INFO Using network Socket"
    assert {r.rank for r in of(run(PARSER, text), "nccl_network")} == {None}


# --- dirt and damage -----------------------------------------------------------------------------------


def test_spliced_and_prefixed_lines() -> None:
    records = read("dirty.txt")
    networks = {r.host: r.rank for r in of(records, "nccl_network")}
    assert networks == {"dog-1": None, "fox-3": 37, "owl-4": None, "elk-5": 12}
    assert one(records, "nccl_bootstrap").host == "dog-1"
    warning = next(r for r in of(records, "nccl_warning") if r.host == "cat-2")
    assert warning.fields["text"] == "Net : Connect to 192.0.2.1<4000> failed : Connection timed out"
    assert "cuda_dev" not in warning.fields
    assert one(records, "nccl_error_return").at == 1796115600.0
    closed = one(records, "nccl_peer_closed")
    assert (closed.host, closed.fields["peer_host"]) == ("ape-8", "dog-1")
    assert one(records, "nccl_cuda_error").at == pytest.approx(1796115600.1234567)


def test_an_init_that_hangs_in_a_log_cut_short() -> None:
    records = read("truncated.txt")
    waiting = {r.host: r for r in of(records, "nccl_comm")}
    assert waiting["gnu-1"].fields["last_marker"] == "Connected all rings"
    assert waiting["gnu-2"].fields["last_marker"] == "connecting channels"
    assert {r.fields["state"] for r in waiting.values()} == {"started"}
    assert one(records, "nccl_transport").fields["intra_host"] is False
    retries = one(records, "nccl_connect_error")
    assert (retries.fields["final"], retries.fields["error"]) == (False, "timed_out")


def test_a_pointer_used_again_is_a_new_communicator() -> None:
    line = "n1:7:71 [0] NCCL INFO comm 0xaa rank 0 nranks 2 cudaDev 0 busId 1000"
    text = "\n".join([f"{line} commId 0x{i} - Init COMPLETE\n{line} - Destroy COMPLETE" for i in (1, 2)])
    assert [r.fields["comm_id"] for r in of(run(PARSER, text), "nccl_comm")] == ["0x1", "0x2"]


# --- digests ------------------------------------------------------------------------------------------


def outcome(blocks: list[Block]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for item in PARSER.scan(blocks, Source("x", "x")):
        for r in item.records() if isinstance(item, Digest) else [item]:
            found.append((r.kind, sorted(r.fields.items()), r.host, r.rank, r.count, r.evidence, r.at))
    return found


@pytest.mark.parametrize("name", ["healthy-2.27.txt", "sick-2.32.txt", "dirty.txt", "truncated.txt", "sick-2.30.txt"])
def test_blocks_give_what_the_whole_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.text for line in lines_of(fixture(KIND, name))]
    whole = outcome([Block(1, "\n".join(lines))])
    monkeypatch.setattr(f"{PARSER.__name__}._reader.REGION", 1)
    for size in (1, 7, 20):
        blocks = [Block(at + 1, "\n".join(lines[at : at + size])) for at in range(0, len(lines), size)]
        assert outcome(blocks) == whole
    numbered = (Line(n, text) for n, text in enumerate(lines, 1))
    assert [i.records() and sorted(r.kind for r in i.records()) for i in PARSER.parse(numbered, Source("x", "x"))
            if isinstance(i, Digest)] == [sorted(str(kind) for kind, *_ in whole if kind != "covered")]  # fmt: skip


def coll(pid: int, count: int, op: str = "AllReduce") -> str:
    return (
        f"n1:{pid}:{pid + 1} [0] NCCL INFO {op}: opCount {count:x} sendbuff 0x7f00 recvbuff 0x7f00 count 64 datatype 7 "
        f"op 0 root 0 comm 0x{pid}a [nranks=8] stream 0x5581"
    )


@pytest.mark.parametrize("odd", [None, "stalled", "new", "gap", "torn", "foreign"])
def test_regions_of_calls_read_from_their_end_give_what_reading_all_gives(
    odd: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    for count in range(400):
        for pid in (10, 20, 30):
            if odd == "stalled" and pid == 20 and count > 150:
                continue
            if odd == "gap" and pid == 30 and count == 200:
                continue
            lines.append(coll(pid, count))
        if odd == "new" and count == 210:
            lines.append(coll(40, 0, "Broadcast"))
        if odd == "torn" and count == 211:
            lines[-1] = lines[-1][7:]
        if odd == "foreign" and count == 215:
            lines.append("step 4 loss 2.1")
    plain = outcome([Block(1, "\n".join(lines))])
    monkeypatch.setattr(f"{PARSER.__name__}._reader.REGION", 30_000)
    monkeypatch.setattr(f"{PARSER.__name__}._calls._CHUNK", 4_000)
    blocks = [Block(at + 1, "\n".join(lines[at : at + 40])) for at in range(0, len(lines), 40)]
    counted = [kind for kind, *_ in plain] if odd == "torn" else plain
    assert ([kind for kind, *_ in outcome(blocks)] if odd == "torn" else outcome(blocks)) == counted
    tails = {
        (fields["comm"], fields["op_count"], fields["calls"])
        for kind, items, *_ in plain
        if kind == "nccl_collective"
        for fields in [dict(items)]  # type: ignore[call-overload]
    }
    assert ("0x10a", 399, 400) in tails
    assert (("0x20a", 150, 151) in tails) == (odd == "stalled")
    assert (("0x40a", 0, 1) in tails) == (odd == "new")


def test_a_big_log_is_folded_by_host_and_stays_bounded() -> None:
    text = "\n".join(
        f"h{i // 8}:{1000 + i}:{2000 + i} [{i % 8}] NCCL INFO Channel 00/0 : {i}[0] -> {i + 1}[0] [send] via NET/IB/0"
        for i in range(4_096)
    )
    records = run(PARSER, text)
    transports = of(records, "nccl_transport")
    assert len(transports) == 512
    assert {r.fields["channels"] for r in transports} == {8}
    assert all("pid" not in r.fields and r.rank is None for r in transports)


def test_what_cannot_be_kept_is_said() -> None:
    text = "\n".join(f"h{i}:1:2 [0] NCCL INFO NCCL_X{i} set by environment to 1." for i in range(13_000))
    problem = one(run(PARSER, text), "parse_problem")
    assert "1000 of nccl_env" in str(problem.fields["text"])


# --- sniffing and hostility -------------------------------------------------------------------------


def test_sniff_knows_its_own() -> None:
    for name in ("healthy-2.27.txt", "sick-2.12.txt", "dirty.txt", "truncated.txt", "sick-efa.txt"):
        assert PARSER.sniff(fixture(KIND, name), "x.txt") >= 0.9
    assert PARSER.sniff("NCCL version 2.21.5+cuda12.4\n", "out") >= 0.5
    assert PARSER.sniff("NCCL version 2.24.3 compiled with CUDA 12.6\n", "ras.txt") == 0.0
    assert PARSER.sniff("set NCCL_DEBUG=INFO and read the NCCL INFO lines\n", "readme") < 0.9


WITHOUT_NCCL = [(name, text) for name, text in foreign(KIND) if "NCCL " not in text and "libfabric" not in text]


@pytest.mark.parametrize(("name", "text"), WITHOUT_NCCL, ids=lambda value: value if len(value) < 60 else "")
def test_foreign_text_yields_nothing_without_nccl_in_it(name: str, text: str) -> None:
    assert PARSER.sniff(text, name) == 0.0
    assert run(PARSER, text) == []


@settings(max_examples=100, deadline=None)
@given(hostile(KIND))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert 0.0 <= PARSER.sniff(text, "x") <= 1.0
    run(PARSER, text)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["sick-2.23.txt", "sick-2.30.txt", "healthy-2.27.txt"]), st.integers(1, 60))
def test_splitting_anywhere_changes_nothing(name: str, at: int) -> None:
    lines = [line.text for line in lines_of(fixture(KIND, name))]
    halves = [Block(1, "\n".join(lines[:at])), Block(at + 1, "\n".join(lines[at:]))] if at < len(lines) else []
    if halves:
        assert outcome(halves) == outcome([Block(1, "\n".join(lines))])


def test_tcp_has_no_gpudirect_to_lose() -> None:
    lines = "n1:7:71 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth2'\n"
    assert not of(run(PARSER, lines), "nccl_gdr")


def test_torn_and_glued_calls() -> None:
    def calls(*lines: str) -> dict[object, tuple[object, object]]:
        found = run(PARSER, "\n".join(lines))
        last: dict[object, tuple[object, object]] = {}
        for r in found:
            if r.kind == "nccl_collective":
                last[r.fields["pid"]] = (r.fields["op_count"], r.fields.get("torn", 0))
        return last

    whole = [coll(pid, count) for count in range(5) for pid in (10, 20)]
    assert calls(*whole) == {10: (4, 0), 20: (4, 0)}
    assert calls(*whole[:-1], whole[-1][:70]) == {10: (4, 0), 20: (3, 1)}
    assert calls(*whole[:-1], whole[-1][:30]) == {10: (4, 0), 20: (3, 1)}
    assert calls(*whole[:-1], whole[-1][:-20]) == {10: (4, 0), 20: (4, 0)}
    assert calls(*whole[:4], whole[4][:70], *whole[5:]) == {10: (4, 0), 20: (4, 0)}
    assert calls(*whole[:-2], whole[-2][:60] + whole[-1]) == {10: (3, 1), 20: (4, 0)}
    assert "are torn" in str(of(run(PARSER, "\n".join([*whole, whole[-1][:70]])), "parse_problem")[0].fields["text"])

"""Observations and facts: whose they are, each said once, what was covered, and names that join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import facts
from diagnose.facts import MAX_EVIDENCE, fold, pci_address
from diagnose.model import UNNAMED_HOST, Evidence, Fact, FactBase, Record, Source, fold_ranks, unfold_ranks
from diagnose.vocabulary import vocabulary


def source(path: str = "a.log", **told: Any) -> Source:
    return Source(path, path, **told)


def record(
    kind: str, line: int = 1, *, path: str = "a.log", about: dict[str, Any] | None = None, **fields: Any
) -> Record:
    """A record; `about` sets host, rank, at, count of the record itself."""
    return Record(kind, fields, (Evidence(path, line, line, "x"),), **(about or {}))


def build(*read: tuple[Source, Sequence[Record]], extra: Sequence[Any] = ()) -> FactBase:
    made = facts.build(read, extra)
    for fact in (*made.observations, *made.facts):
        assert not (wrong := vocabulary().check(fact.kind, fact.fields)), wrong
    return made


def only(base: FactBase, kind: str) -> Fact:
    (fact,) = [f for f in base.facts if f.kind == kind]
    return fact


def coverage(base: FactBase) -> set[tuple[Any, Any]]:
    return {(f.get("host"), f.get("topic")) for f in base.facts if f.kind == "covered"}


VERSION = {"version": "2.27.7"}


# --- hosts --------------------------------------------------------------------------------------------


def test_content_knows_the_host_better_than_the_path():
    told = build((source(host="from-path"), [record("nccl_version", **VERSION, about={"host": "from-content"})]))
    assert only(told, "nccl_version").get("host") == "from-content"
    assert "from-path" not in {f.get("host") for f in told.facts}


def test_the_path_tells_the_host_where_the_content_does_not():
    assert only(build((source(host="n1"), [record("nccl_version", **VERSION)])), "nccl_version").get("host") == "n1"


def test_short_and_full_names_are_one_host():
    told = build(
        (source("a"), [record("nccl_version", **VERSION, about={"host": "n7"})]),
        (source("b", host="n7.cluster.example"), [record("clocksource", current="tsc")]),
    )
    assert told.hosts == ("n7",)


def test_two_domains_stay_two_hosts():
    told = build(
        *((source(x, host=x), [record("clocksource", current="tsc")]) for x in ("n7.a.example", "n7.b.example", "n8")),
    )
    assert told.hosts == ("n7.a.example", "n7.b.example", "n8")


def test_addresses_are_not_cut_at_their_dots():
    told = build(*((source(x, host=x), [record("clocksource", current="tsc")]) for x in ("192.0.2.1", "192.0.2.2")))
    assert told.hosts == ("192.0.2.1", "192.0.2.2")


def test_files_that_name_no_host_belong_to_the_only_one_there_is():
    told = build(
        (source("a", host="n1"), [record("clocksource", current="tsc")]),
        (source("topo.txt"), [record("topo_summary", gpus=8, nics=8)]),
    )
    assert only(told, "topo_summary").get("host") == "n1"


def test_files_that_name_no_host_share_one_unnamed_host():
    told = build((source("topo.txt"), [record("topo_summary", gpus=8, nics=8)]))
    assert only(told, "topo_summary").get("host") == UNNAMED_HOST
    told = build(
        (source("a", host="n1"), [record("clocksource", current="tsc")]),
        (source("b", host="n2"), [record("clocksource", current="tsc")]),
        (source("topo.txt"), [record("topo_summary", gpus=8, nics=8)]),
    )
    assert only(told, "topo_summary").get("host") == UNNAMED_HOST, "of two hosts neither is a guess"


def test_a_log_of_the_whole_job_has_no_host_of_its_own():
    told = build((source("job.log"), [record("torch_backend", backend="nccl")]))
    assert only(told, "torch_backend").get("host") is None


# --- ranks --------------------------------------------------------------------------------------------


def comm(rank: int, nranks: int, pid: int, host: str = "n1") -> Record:
    return record("nccl_comm", rank=rank, nranks=nranks, pid=pid, state="complete", about={"host": host})


def test_a_process_is_the_rank_of_its_largest_communicator():
    told = build((source(), [
        comm(1, 2, 4711), comm(37, 64, 4711), comm(0, 8, 4711),
        record("nccl_warning", area="NET", level="WARN", text="t", pid=4711, about={"host": "n1"}),
    ]))  # fmt: skip
    assert only(told, "nccl_warning").get("rank") == 37
    assert told.world == 64


def test_the_rank_within_a_communicator_is_not_the_global_rank():
    told = build((source(), [comm(1, 2, 4711), comm(37, 64, 4711)]))
    small = next(o for o in told.observations if o.fields.get("nranks") == 2)
    assert (small.fields["comm_rank"], small.fields["rank"]) == (1, 37)


def test_equal_pids_on_two_hosts_are_two_processes():
    told = build((source(), [
        comm(0, 2, 99, "n1"), comm(1, 2, 99, "n2"),
        record("nccl_warning", area="NET", level="WARN", text="t", pid=99, about={"host": "n2"}),
    ]))  # fmt: skip
    assert only(told, "nccl_warning").get("rank") == 1


def test_a_rank_tells_its_host():
    told = build(
        (source("a"), [record("torch_backend", backend="nccl", about={"rank": 3, "host": "n2"})]),
        (source("b"), [record("torch_timeout", op="ALLREDUCE", seq=7, about={"rank": 3})]),
    )
    assert only(told, "torch_timeout").get("host") == "n2"
    assert dict(told.rank_host) == {3: "n2"}


def test_the_rank_of_a_log_file_holds_for_all_its_lines():
    assert only(build((source(rank=5), [record("torch_backend", backend="nccl")])), "torch_backend").get("rank") == 5


# --- folding ------------------------------------------------------------------------------------------


def test_what_ranks_say_alike_is_one_fact():
    records = [
        record("nccl_version", n, **VERSION, about={"host": "n1", "rank": n, "at": 100.0 - n}) for n in range(1, 9)
    ]
    told = build((source(), records))
    fact = only(told, "nccl_version")
    assert (fact.get("ranks"), fact.get("times"), fact.get("at")) == ("1-8", 8, 92.0)
    assert fact.get("rank") is None
    assert [e.first for e in fact.evidence] == list(range(1, MAX_EVIDENCE + 1))
    assert len([o for o in told.observations if o.kind == "nccl_version"]) == 8


def test_one_speaker_keeps_its_rank_process_and_time():
    fact = only(build((source(), [
        record("nccl_version", **VERSION, pid=12, about={"host": "n1", "rank": 4, "at": 9.0, "count": 3})
    ])), "nccl_version")  # fmt: skip
    assert (fact.get("rank"), fact.get("ranks"), fact.get("pid"), fact.get("at"), fact.get("times")) == (
        4,
        "4",
        12,
        9.0,
        3,
    )


def test_hosts_and_values_are_not_folded_together():
    told = build((source(), [
        record("nccl_version", version=v, about={"host": h}) for h, v in (("n1", "1"), ("n1", "2"), ("n2", "1"))
    ]))  # fmt: skip
    assert len([f for f in told.facts if f.kind == "nccl_version"]) == 3


def test_two_snapshots_stay_two_facts_for_tables():
    counter = {"device": "eth2", "name": "rx_crc_errors_phy", "value": 4}
    told = build(
        (source("a", host="n1", snapshot=0, taken_at=50.0), [record("nic_counter", **counter)]),
        (source("b", host="n1", snapshot=1, taken_at=60.0), [record("nic_counter", **counter)]),
    )
    assert [(o.get("snapshot"), o.get("at")) for o in told.observations if o.kind == "nic_counter"] == [
        (0, 50.0),
        (1, 60.0),
    ]


def test_folding_nothing_gives_nothing():
    assert list(fold([])) == []


# --- coverage -----------------------------------------------------------------------------------------


def test_reading_covers_the_topics_of_what_was_read():
    told = build(
        (source(host="n1", taken_at=7.0), [record("clocksource", current="tsc"), record("nccl_version", **VERSION)])
    )
    assert coverage(told) == {("n1", "clocksource"), ("n1", "nccl_init")}
    covered = next(f for f in told.facts if f.kind == "covered")
    assert (covered.get("from_at"), covered.get("to_at")) == (7.0, 7.0)


def test_a_silent_log_covers_its_topic():
    told = build((source(host="n1"), [record("covered", topic="kernel_log")]))
    assert coverage(told) == {("n1", "kernel_log")}


def test_job_wide_topics_are_covered_for_no_host():
    assert coverage(build((source("job.log"), [record("torch_backend", backend="nccl")]))) == {(None, "torch_log")}


def test_nothing_read_covers_nothing():
    assert build().facts == ()


# --- problems -----------------------------------------------------------------------------------------


def test_unreadable_lines_become_problems_and_no_facts():
    told = build((source("a.log"), [record("parse_problem", 7, text="torn")]))
    (problem,) = told.problems
    assert (problem.text, problem.source, problem.first) == ("torn", "a.log", 7)
    assert told.facts == ()


@pytest.mark.parametrize("fields", [{"current": 3}, {"currant": "tsc"}, {}])
def test_a_parser_that_breaks_the_vocabulary_is_told_of(fields: dict[str, Any]):
    told = facts.build([(source("a.log"), [record("clocksource", **fields)])])
    assert told.facts == () and "broke the vocabulary" in told.problems[0].text


def test_facts_of_the_site_file_join():
    told = build(
        (source(host="n1"), [record("clocksource", current="tsc")]), extra=[("site_contract", {"priority": 3})]
    )
    assert only(told, "site_contract").get("priority") == 3
    assert [f.id for f in told.facts] == [f"f{n}" for n in range(len(told.facts))]


# --- PCI addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:9B:00.0", "0000:9b:00"),
        ("0000:9b:00", "0000:9b:00"),
        ("9b:00.0", "0000:9b:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("9b000", "0000:9b:00"),
        ("c1000", "0000:c1:00"),
        ("3b1e0", "0000:3b:1e"),
        ("7000", "0000:07:00"),
        ("101b000", "0010:1b:00"),
        ("unknown", "unknown"),
        ("GPU-1", "GPU-1"),
        ("", ""),
    ],
)
def test_one_spelling_of_an_address(text: str, address: str):
    assert pci_address(text) == address


@pytest.mark.parametrize(
    ("text", "address"), [("5E:00.1", "0000:5e:00.1"), ("0000:5e:00", "0000:5e:00"), ("5e001", "0000:5e:00.1")]
)
def test_with_its_function(text: str, address: str):
    assert pci_address(text, function=True) == address


@given(st.text(max_size=40))
def test_any_text_has_a_stable_spelling(text: str):
    assert pci_address(pci_address(text)) == pci_address(text)


def test_tools_agree_on_a_gpu():
    told = build((source(host="n1"), [
        record("gpu", index=3, bus_id="00000000:9B:00.0"),
        record("gpu_process", bus_id="00000000:9B:00.0", pid=7),
        record("kernel_event", event="xid", code=79, device="0000:9b:00", text="NVRM: Xid (PCI:0000:9b:00): 79"),
        record("nccl_comm", bus_id="9b000", nranks=2, state="complete"),
        record("pcie_link", bus_id="9b:00.0", role="gpu"),
    ]))  # fmt: skip
    assert {o.get("bus_id") or o.get("device") for o in told.observations} == {"0000:9b:00"}
    assert only(told, "kernel_event").get("text") == "NVRM: Xid (PCI:0000:9b:00): 79"


def test_other_devices_keep_their_function():
    told = build((source(host="n1"), [
        record("pcie_link", bus_id="5E:00.1", role="nic"),
        record("kernel_event", event="mlx5_health", device="0000:5e:00.1", text="t"),
    ]))  # fmt: skip
    assert only(told, "pcie_link").get("bus_id") == "0000:5e:00.1"
    assert only(told, "kernel_event").get("device") == "0000:5e:00.1"


def xid(device: str = "0000:9b:00", host: str = "n1", **fields: Any) -> Record:
    return record("kernel_event", event="xid", code=79, device=device, text="t", **fields, about={"host": host})


def test_an_xid_gets_the_index_of_its_gpu():
    told = build((source("a", host="n1"), [record("gpu", index=3, bus_id="00000000:9B:00.0")]), (source("b"), [xid()]))
    assert only(told, "kernel_event").get("gpu") == 3


@pytest.mark.parametrize(
    "event", [xid(host="n2"), xid("0000:9c:00")], ids=["another host", "another GPU"]
)  # fmt: skip
def test_an_unknown_gpu_has_no_index(event: Record):
    told = build((source("a", host="n1"), [record("gpu", index=3, bus_id="00000000:9B:00.0")]), (source("b"), [event]))
    assert only(told, "kernel_event").get("gpu") is None


def test_what_the_driver_said_itself_stays():
    told = build((source("a", host="n1"), [record("gpu", index=3, bus_id="9b:00.0")]), (source("b"), [xid(gpu=6)]))
    assert only(told, "kernel_event").get("gpu") == 6


# --- switch ports -------------------------------------------------------------------------------------


def neighbour(host: str, port: str = "Ethernet4", switch: str = "leaf1") -> Record:
    return record("lldp_neighbour", device="eth2", switch=switch, port=port, about={"host": host})


def test_a_switch_port_names_the_host_behind_it():
    told = build((source("a"), [
        neighbour("n1"), record("switch_pfc", switch="leaf1", port="Ethernet4", priority=3, rx_pause=9),
        record("switch_pfc_watchdog", switch="leaf1", port="Ethernet4", priority=3, status="stormed"),
    ]))  # fmt: skip
    for kind in ("switch_pfc", "switch_pfc_watchdog"):
        assert (only(told, kind).get("neighbour"), only(told, kind).get("neighbour_device")) == ("n1", "eth2")


@pytest.mark.parametrize(
    "seen",
    [[neighbour("n1", "Ethernet8")], [neighbour("n1", switch="leaf2")], [neighbour("n1"), neighbour("n2")]],
    ids=["another port", "another switch", "two claim it"],
)
def test_a_port_without_a_clear_neighbour(seen: list[Record]):
    told = build((source("a"), [*seen, record("switch_pfc", switch="leaf1", port="Ethernet4", priority=3)]))
    assert only(told, "switch_pfc").get("neighbour") is None


# --- hostile input ------------------------------------------------------------------------------------

HOSTS = st.none() | st.sampled_from(["n1", "n1.example", "192.0.2.1", "", "\x00"])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            HOSTS, st.none() | st.integers(-5, 9), st.none() | st.floats(allow_nan=False), st.text(max_size=6),
            st.none() | st.integers(0, 3), st.booleans(),
        ),
        max_size=20,
    )
)  # fmt: skip
def test_any_records_give_conforming_facts(rows: list[tuple[Any, ...]]):
    read = []
    for n, (host, rank, at, text, pid, big) in enumerate(rows):
        about = {k: v for k, v in (("host", host), ("rank", rank), ("at", at)) if v is not None}
        fields = {"pid": pid} if pid is not None else {}
        records = [
            record("nccl_comm", rank=n, nranks=64 if big else 2, bus_id=text, state="start", **fields, about=about),
            record("kernel_event", event="xid", device=text, text=text, about=about),
            record("gpu", index=n, bus_id=text, about=about),
        ]
        read.append((source(str(n), host=host or None), records))
    told = build(*read)
    assert len(told.facts) <= len(told.observations) + len({(f.get("host"), f.get("topic")) for f in told.facts})


def test_nameless_files_that_contradict_each_other_are_of_several_hosts():
    def link(name: str, mtu: int) -> tuple[Source, list[Record]]:
        return source(name), [Record("ip_interface", {"device": "eth0", "mtu": mtu}, (Evidence(name, 1, 1, "x"),))]

    def counted(name: str, snapshot: int, value: int) -> tuple[Source, list[Record]]:
        fields = {"device": "eth0", "name": "rx_discards_phy", "value": value}
        return source(name, snapshot=snapshot), [Record("nic_counter", fields, (Evidence(name, 1, 1, "x"),))]

    def hosts(told: FactBase) -> set[object]:
        return {o.get("host") for o in told.observations}

    assert hosts(build(link("a.txt", 1500), link("b.txt", 1500))) == {UNNAMED_HOST}
    assert hosts(build(link("a.txt", 1500), link("b.txt", 9000))) == {None}
    assert hosts(build(counted("a.1", 1, 5), counted("a.2", 2, 9))) == {UNNAMED_HOST}
    assert hosts(build(counted("a.1", 1, 5), counted("a.2", 2, 9), counted("b.2", 2, 7))) == {None}
    named = source("n7/a.txt", host="n7"), link("a.txt", 9000)[1]
    assert hosts(build(named, link("b.txt", 9000))) == {"n7"}
    assert hosts(build(named, link("b.txt", 1500))) == {"n7", None}


def test_a_world_and_ranks_that_cannot_be() -> None:
    comm = {"comm_id": "0xab", "nranks": 9_999_999, "rank": 3, "state": "complete"}
    base = facts.build([(Source("a", "a.log"), [Record("nccl_comm", comm, rank=-7)])])
    assert base.world is None and "rank" not in base.observations[0].fields
    assert [p.text for p in base.problems] == ["a job of 9999999 ranks is not believed"]
    assert (fold_ranks([-7, 1, 2, 10**9]), unfold_ranks("-7--1,x,2-3")) == ("1-2", [2, 3])
    assert len(unfold_ranks("0-99999999,0-99999999")) <= 1_000_000

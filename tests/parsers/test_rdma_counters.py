"""RDMA counters in all pasted forms."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

from diagnose.model import Record

COUNTERS = support.load("rdma_counters")


def read(name: str, file: str = "x.txt") -> list[Record]:
    return support.run(COUNTERS, support.fixture("rdma_counters", name), file)


def values(records: list[Record]) -> dict[tuple[object, ...], object]:
    return {
        (r.fields["device"], r.fields.get("port"), r.fields["name"], r.fields.get("snapshot")): r.fields["value"]
        for r in support.of(records, "rdma_counter")
    }


def test_sysfs_paths() -> None:
    records = read("healthy.txt")
    found = values(records)
    assert found["mlx5_3", 1, "np_cnp_sent", None] == 512 and found["mlx5_3", 1, "port_xmit_data", None] == 8123456789
    assert not any(key[2] == "lifespan" for key in found)
    families = {r.fields["name"]: r.fields["family"] for r in support.of(records, "rdma_counter")}
    assert families["symbol_error"] == "port" and families["out_of_sequence"] == "hw"
    assert [r.fields for r in support.of(records, "covered")] == [{"topic": "ib_counters"}]
    assert {r.at for r in support.of(records, "rdma_counter")} == {1772438400.0}


def test_two_readings_of_rdma_statistic() -> None:
    found = values(read("sick.txt"))
    assert found["mlx5_3", 1, "local_ack_timeout_err", 0] == 118
    assert found["mlx5_3", 1, "local_ack_timeout_err", 1] == 240
    assert not any(key[2] == "rx_bytes" for key in found)


def test_banners_prompts_prefixes_and_fabric_queries() -> None:
    records = read("dirty.txt")
    assert values(records) == {
        ("mlx5_6", 1, "local_ack_timeout_err", None): 7, ("rdmap16s27", 1, "retrans_pkts", None): 41,
        ("rdmap16s27", None, "cmds_err", None): 2, ("bnxt_re0", 1, "rx_roce_discards", None): 55,
        ("mlx5_2", 1, "SymbolErrorCounter", None): 12, ("mlx5_2", 1, "PortXmitWait", None): 4411,
        ("spine-03", 22, "LinkDownedCounter", None): 3,
    }  # fmt: skip
    hosts = {r.fields["device"]: r.host for r in support.of(records, "rdma_counter")}
    assert hosts["rdmap16s27"] == "gpu-e10" and hosts["mlx5_2"] == "gpu-e11" and hosts["spine-03"] is None


def test_a_bare_list_takes_its_device_from_the_file_name() -> None:
    found = values(read("list.txt", "hw_counters.mlx5_8.t0.txt"))
    assert found["mlx5_8", None, "vendor_new_counter", None] == 9 and len(found) == 4
    assert ("hca", None, "out_of_sequence", None) in values(read("list.txt"))


def test_perfquery_and_json() -> None:
    found = values(read("perfquery.txt"))
    assert found == {
        ("mlx5_4", 1, "PortXmitData", None): 88120, ("mlx5_4", 1, "SymbolErrorCounter", None): 31,
        ("mlx5_4", 1, "LinkDownedCounter", None): 2,
    }  # fmt: skip
    assert values(read("json.txt")) == {
        ("mlx5_1", 1, "out_of_sequence", None): 8, ("mlx5_1", 1, "np_cnp_sent", None): 2,
    }  # fmt: skip


def test_cut_output() -> None:
    assert values(read("truncated.txt")) == {("mlx5_3", 1, "out_of_sequence", None): 3}


def test_evidence_lines() -> None:
    (record,) = [r for r in read("dirty.txt") if r.fields.get("name") == "local_ack_timeout_err"]
    assert (record.evidence[0].first, record.evidence[0].last) == (2, 3)


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("rdma_counters"):
        assert COUNTERS.sniff(text, "x") >= 0.5
    for name, text in mutations.foreign("rdma_counters"):
        if "hw_counters" not in text:
            assert COUNTERS.sniff(text, name) == 0.0, name
            assert support.of(support.run(COUNTERS, text), "rdma_counter") == [], name


def test_a_banner_without_a_name_is_skipped() -> None:
    assert support.of(support.run(COUNTERS, "==> \n==> local_ack_timeout_err <==\n7\n"), "rdma_counter") == support.of(
        support.run(COUNTERS, "\n==> local_ack_timeout_err <==\n7\n"), "rdma_counter"
    )


@given(mutations.hostile("rdma_counters"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    COUNTERS.sniff(text, "x")
    support.run(COUNTERS, text)

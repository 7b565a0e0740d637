"""perftest results: units, sides, what is no result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("perftest")
KIND = "ib_write_bw"


def benches(name: str) -> list[Record]:
    return of(run(parser, fixture(KIND, name)), "bench_ib")


def test_client_with_gpu_memory() -> None:
    (record,) = benches("healthy-client.txt")
    assert dict(record.fields) == {
        "test": "ib_write_bw",
        "device": "mlx5_0",
        "peer": "gpu-a02",
        "bytes": 1048576,
        "avg_gbps": 393.4,
        "link_layer": "IB",
        "gpu_memory": True,
        "mtu": 4096,
        "bidirectional": False,
        "qps": 4,
    }
    assert [e.first for e in record.evidence] == [8, 25]


def test_server_in_megabytes() -> None:
    (record,) = benches("sick-server.txt")
    f = record.fields
    assert (f["test"], f["bidirectional"], f["link_layer"], f["mtu"]) == ("ib_send_bw", True, "Ethernet", 1024)
    assert f["avg_gbps"] == pytest.approx(1000 * 2**20 * 8 / 1e9)
    assert f["peak_gbps"] == pytest.approx(1200 * 2**20 * 8 / 1e9)
    assert (f["peer"], f["bytes"], f["gpu_memory"]) == ("192.0.2.22", 65536, False)


def test_latency_and_failures_are_no_bandwidth() -> None:
    (record,) = benches("dirty.txt")
    assert (record.fields["test"], record.fields["peer"], record.fields["bytes"]) == (
        "ib_read_bw",
        "192.0.2.7",
        8388608,
    )
    assert record.fields["avg_gbps"] == pytest.approx(23400.20 * 2**20 * 8 / 1e9, abs=1e-6)


def test_cut_before_the_result() -> None:
    assert parser.sniff(fixture(KIND, "truncated.txt"), "x") >= 0.5
    assert not benches("truncated.txt")


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign(KIND):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=80, deadline=None)
@given(hostile(KIND))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)

"""ibstat, ibstatus, ibv_devinfo, rdma link, ibdev2netdev, sysfs."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

PORTS = support.load("rdma_port")


def read(name: str) -> dict[tuple[str | None, object], dict[str, object]]:
    records = support.run(PORTS, support.fixture("rdma_port", name))
    assert {r.kind for r in records} <= {"rdma_port"}
    return {(r.host, r.fields["device"]): dict(r.fields) for r in records}


def test_two_tools_are_joined_by_port() -> None:
    found = read("healthy.txt")
    assert found[None, "mlx5_0"] == {
        "device": "mlx5_0", "port": 1, "state": "active", "physical_state": "link_up", "rate_gbps": 400.0, "lid": 31,
        "link_layer": "IB", "netdev": "ibp24s0", "firmware": "28.43.1014",
    }  # fmt: skip
    assert found[None, "mlx5_1"]["link_layer"] == "RoCE" and "lid" not in found[None, "mlx5_1"]
    assert found[None, "mlx5_1"]["netdev"] == "ens1f0"


def test_down_init_and_narrow_ports() -> None:
    found = read("sick.txt")
    assert found[None, "mlx5_4"]["state"] == "down" and found[None, "mlx5_4"]["physical_state"] == "polling"
    assert "rate_gbps" not in found[None, "mlx5_4"]
    assert found[None, "mlx5_5"]["state"] == "init" and found[None, "mlx5_5"]["lid"] == 0
    assert (found[None, "mlx5_6"]["width"], found[None, "mlx5_6"]["rate_gbps"]) == (2, 100.0)
    assert found[None, "mlx5_6"]["lid"] == 31


def test_ibv_devinfo() -> None:
    port = read("devinfo.txt")[None, "mlx5_2"]
    assert port["active_mtu"] == 1024 and port["rate_gbps"] == 200.0 and port["width"] == 4
    assert port["firmware"] == "28.43.1014"


def test_one_line_tools_and_damage() -> None:
    found = read("dirty.txt")
    assert found["gpu-f01", "mlx5_0"] == {"device": "mlx5_0", "port": 1, "state": "active", "netdev": "ens1np0"}
    assert found["gpu-f02", "mlx5_0"]["state"] == "down"
    assert found[None, "mlx5_3"]["netdev"] == "ens3np0" and found[None, "mlx5_3"]["firmware"] == "28.43.1014"
    assert found[None, "rdmap0s6"]["rate_gbps"] == 200.0 and found[None, "rdmap0s6"]["state"] == "active"
    assert found[None, "mlx4_0"]["state"] == "init" and len(found) == 5


def test_cut_and_json_output() -> None:
    assert read("truncated.txt")[None, "mlx5_9"]["state"] == "active"
    port = read("json.txt")[None, "mlx5_7"]
    assert port["state"] == "down" and port["physical_state"] == "disabled" and port["netdev"] == "ens7"


def test_evidence_lines() -> None:
    records = support.run(PORTS, support.fixture("rdma_port", "healthy.txt"))
    assert [e.first for e in records[0].evidence] == [8, 9, 10, 11, 15, 32]


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("rdma_port"):
        assert PORTS.sniff(text, "x") == 0.9
    for name, text in mutations.foreign("rdma_port"):
        if name.split("/")[0] not in ("show_gids",):
            assert support.run(PORTS, text) == [] and PORTS.sniff(text, name) == 0.0, name


@given(mutations.hostile("rdma_port"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    PORTS.sniff(text, "x")
    support.run(PORTS, text)

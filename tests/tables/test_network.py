"""Encapsulated data paths, and the retry window of the verbs transport."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.model import Fact
from diagnose.tables import network
from tests.tables.support import Given, base, derived, lines


def link(device: str, kind: str, host: str = "n1", **fields: Any) -> Given:
    return ("ip_interface", {"host": host, "device": device, "type": kind, **fields})


def uses(transport: str, device: str | None = None, host: str = "n1") -> list[Given]:
    name = {"socket": "Socket", "rdma": "IB"}[transport]
    found: list[Given] = [("nccl_network", {"host": host, "name": name, "transport": transport})]
    if device:
        found.append(("nccl_net_device", {"host": host, "network": name, "device": device}))
    return found


def paths(*given: Given) -> list[Fact]:
    return derived(network, base(*given), "overlay_path")


# --- overlays -------------------------------------------------------------------------------------------


def test_pod_traffic_over_vxlan_with_its_underlay():
    (path,) = paths(
        *uses("socket", "eth0"), link("eth0", "veth", mtu=1450), link("flannel.1", "vxlan", mtu=1450, parent="ens3"),
        link("ens3", "physical", mtu=1500),
    )  # fmt: skip
    wanted = {
        "host": "n1", "device": "eth0", "overlay": "flannel.1", "overlay_type": "vxlan", "rdma": False, "mtu": 1450,
        "underlay": "ens3", "underlay_mtu": 1500,
    }  # fmt: skip
    assert path.fields == wanted
    assert lines(path) == [2, 4], "the device that NCCL uses, then the overlay"


def test_a_host_interface_beside_an_overlay_is_no_overlay_path():
    assert paths(*uses("socket", "ens3"), link("ens3", "physical"), link("flannel.1", "vxlan", parent="ens3")) == []


def test_an_overlay_beside_rdma_carries_only_control_traffic():
    (path,) = paths(*uses("rdma"), link("vxlan.calico", "vxlan"))
    assert (path.fields["rdma"], path.fields["device"]) == (True, "rdma")


def test_an_interface_known_by_name_only():
    assert len(paths(*uses("socket", "cilium_vxlan"), link("cilium_vxlan", "vxlan"))) == 1
    assert len(paths(*uses("socket", "tunl0"), link("tunl1", "ipip"))) == 1


@pytest.mark.parametrize(
    "given",
    [
        [link("flannel.1", "vxlan")],
        uses("socket", "eth0"),
        [*uses("socket", "eth0", host="n2"), link("eth0", "veth"), link("flannel.1", "vxlan")],
    ],
    ids=["no NCCL", "no overlay", "another host"],
)
def test_nothing_is_concluded_without_both(given: list[Given]):
    assert paths(*given) == []


# --- retry window -----------------------------------------------------------------------------------------


def windows(*given: Given) -> list[Fact]:
    return derived(network, base(*given), "ib_window")


def env(name: str, value: str, **fields: Any) -> Given:
    return ("nccl_env", {"host": "n1", "name": name, "value": value, **fields})


def version(text: str) -> Given:
    return ("nccl_version", {"host": "n1", "version": text})


@pytest.mark.parametrize(
    ("text", "exponent"), [("2.13.4", 14), ("2.14.3", 18), ("2.22.3", 18), ("2.23.4", 20), ("2.27.7", 20)]
)
def test_default_depends_on_the_version(text: str, exponent: int):
    (window,) = windows(*uses("rdma"), version(text))
    assert (window.fields["timeout_exponent"], window.fields["retry_count"]) == (exponent, 7)
    assert window.fields["window_s"] == pytest.approx(4.096e-6 * 2**exponent * 7)
    assert window.fields["from_env"] is False


def test_about_thirty_seconds_by_default_of_today():
    (window,) = windows(*uses("rdma"), version("2.27.7"))
    assert 30 < float(window.fields["window_s"]) < 31  # type: ignore[arg-type]


def test_set_by_environment():
    (window,) = windows(env("NCCL_IB_TIMEOUT", "22", number=22), env("NCCL_IB_RETRY_CNT", "3", number=3))
    assert (window.fields["timeout_exponent"], window.fields["retry_count"], window.fields["from_env"]) == (22, 3, True)
    assert lines(window) == [1, 2]


@pytest.mark.parametrize("value", [0, 32, 3600])
def test_values_without_end(value: int):
    (window,) = windows(env("NCCL_IB_TIMEOUT", str(value), number=value))
    assert window.fields["infinite"] is True and "window_s" not in window.fields


def test_the_shortest_watchdog_is_beside_it():
    timeouts: list[Given] = [("torch_timeout", {"op": "ALLREDUCE", "timeout_ms": ms}) for ms in (600_000.0, 30_000.0)]
    (window,) = windows(*uses("rdma"), version("2.27.7"), *timeouts)
    assert window.fields["watchdog_s"] == 30.0


@pytest.mark.parametrize(
    "given",
    [
        uses("rdma"),
        [*uses("rdma"), version("built from a fork")],
        [env("NCCL_IB_TIMEOUT", "twenty")],
        [*uses("socket"), version("2.27.7")],
    ],
    ids=["no version", "unreadable version", "unreadable value", "no verbs"],
)
def test_what_is_not_known_is_not_made_up(given: list[Given]):
    assert windows(*given) == []

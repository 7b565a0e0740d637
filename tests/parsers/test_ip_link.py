"""ip link, ip addr, ifconfig: kinds of interfaces, lower devices, damaged and JSON output."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

from diagnose.model import Record

IP = support.load("ip_link")


def read(name: str) -> dict[tuple[str | None, object], dict[str, object]]:
    records = support.run(IP, support.fixture("ip_link", name))
    assert {r.kind for r in records} <= {"ip_interface"}
    return {(r.host, r.fields["device"]): dict(r.fields) for r in records}


def test_a_healthy_host() -> None:
    found = {device: fields for (_, device), fields in read("healthy.txt").items()}
    assert [f["type"] for f in found.values()] == ["loopback", "physical", "ipoib", "bond", "physical", "vlan"]
    assert found["ens8np0"]["master"] == "bond0" and found["ens7np0"]["mtu"] == 9000
    assert found["bond0.210"] == {
        "device": "bond0.210", "up": True, "mtu": 1500, "state": "UP", "type": "vlan", "parent": "bond0",
        "address": "198.51.100.9",
    }  # fmt: skip


def test_overlays() -> None:
    found = {device: fields for (_, device), fields in read("sick.txt").items()}
    assert found["flannel.7"]["type"] == "vxlan" and found["flannel.7"]["parent"] == "eth0"
    assert (found["flannel.7"]["vxlan_id"], found["flannel.7"]["vxlan_port"]) == (7, 8472)
    assert found["cilium_vxlan"]["up"] is False and "vxlan_id" not in found["cilium_vxlan"]
    assert (found["wgx"]["type"], found["gnv7"]["type"]) == ("wireguard", "geneve")
    assert found["mv1"]["type"] == "macvlan" and found["mv1"]["parent"] == "eth0"


def test_evidence_lines() -> None:
    records = support.run(IP, support.fixture("ip_link", "sick.txt"))
    (record,) = [r for r in records if r.fields["device"] == "flannel.7"]
    assert [e.first for e in record.evidence] == [6, 7, 8]


def test_prefixed_brief_and_ifconfig_lines() -> None:
    found = read("dirty.txt")
    assert found["gpu-d02", "eth0"]["address"] == "10.244.3.9" and "type" not in found["gpu-d02", "eth0"]
    assert found[None, "ens9"] == {"device": "ens9", "state": "UP", "up": True, "address": "192.0.2.44"}
    assert found[None, "ens10"]["up"] is False
    assert found[None, "docker0"]["type"] == "bridge" and found[None, "flannel.3"]["mtu"] == 1450
    assert found[None, "flannel.3"]["type"] == "vxlan"


def test_cut_output() -> None:
    found = {device: fields for (_, device), fields in read("truncated.txt").items()}
    assert found["cali0123456789a"]["type"] == "veth" and found["tunl0"]["type"] == "ipip"


def test_json() -> None:
    found = {device: fields for (_, device), fields in read("json.txt").items()}
    assert found["eth0"]["type"] == "physical" and found["eth0"]["address"] == "192.0.2.2"
    assert found["flannel.1"]["parent"] == "eth0" and found["flannel.1"]["vxlan_port"] == 8472
    assert found["eth0.40"]["type"] == "vlan" and found["eth0.40"]["up"] is False


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("ip_link"):
        assert IP.sniff(text, "x") == 0.9 or "cali" in text
    for name, text in mutations.foreign("ip_link"):
        records: list[Record] = support.run(IP, text)
        assert records == [] and IP.sniff(text, name) == 0.0, name


@given(mutations.hostile("ip_link"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    IP.sniff(text, "x")
    support.run(IP, text)

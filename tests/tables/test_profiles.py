"""Settings of few NICs, put into words."""

from __future__ import annotations

from diagnose.tables import profiles
from tests.tables.support import Given, base, derived


def nic(kind: str, device: str = "ens3", **fields: str | int | bool) -> Given:
    return (kind, {"host": "vm03", "device": device, **fields})


def test_a_virtual_nic():
    (fact,) = derived(
        profiles,
        base(
            nic("nic_driver", driver="virtio_net"),
            nic("nic_queues", combined=1, combined_max=1),
            nic("nic_timestamping", hardware=False),
        ),
        "nic_profile",
    )
    assert fact.fields["text"] == "driver virtio_net; single queue (all it has); PTP hardware clock: none"


def test_rings_pause_and_speed():
    (fact,) = derived(
        profiles,
        base(
            nic("nic_link", speed_mbps=25_000, max_supported_mbps=100_000),
            nic("nic_ring", rx=1024, rx_max=4096, tx=512, tx_max=4096),
            nic("nic_pause", rx=True, tx=False, autoneg=False),
            nic("nic_queues", rx=8, rx_max=16),
            nic("nic_timestamping", hardware=True, phc=0),
        ),
        "nic_profile",
    )
    assert fact.fields["text"] == (
        "25000 Mb/s of 100000 Mb/s; 8 queues (of 16); RX ring 1024 of 4096, TX ring 512 of 4096;"
        " global pause RX on, TX off; PTP hardware clock 0"
    )


def test_a_speed_alone_and_many_nics_need_no_words():
    assert not derived(profiles, base(nic("nic_link", speed_mbps=100_000)), "nic_profile")
    many = [nic("nic_driver", f"eth{n}", driver="mlx5_core") for n in range(9)]
    assert not derived(profiles, base(*many), "nic_profile")

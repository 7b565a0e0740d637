"""One snapshot of few NICs, put into words."""

from __future__ import annotations

from diagnose.tables import readings
from tests.tables.support import Given, base, derived


def counters(device: str = "eth2", **values: int) -> list[Given]:
    return [("nic_counter", {"host": "n1", "device": device, "name": n, "value": v}) for n, v in values.items()]


def test_a_clean_jumbo_port():
    (fact,) = derived(
        readings,
        base(*counters(rx_crc_errors_phy=0, rx_prio0_bytes=9, rx_prio3_bytes=0, rx_8192_to_10239_bytes_phy=4)),
        "nic_reading",
    )
    assert fact.fields["quiet"] is True and fact.fields["jumbo"] is True and fact.fields["priorities"] == "0"
    assert "all bytes in priority 0" in str(fact.fields["text"])


def test_what_is_above_zero_is_named():
    (fact,) = derived(readings, base(*counters(rx_dropped=7, rx_crc_errors=0, tx_bytes=5)), "nic_reading")
    assert fact.fields["quiet"] is False and "rx_dropped 7" in str(fact.fields["text"])


def test_an_old_ena_driver_cannot_tell():
    (fact,) = derived(readings, base(*counters(wd_expired=0, tx_timeout=0)), "nic_reading")
    assert "no allowance counters" in str(fact.fields["text"])


def test_two_snapshots_or_many_nics_are_for_others():
    assert not derived(readings, base(*counters(rx_dropped=7), *counters(rx_dropped=9)), "nic_reading")
    many = [g for n in range(9) for g in counters(f"eth{n}", rx_dropped=1)]
    assert not derived(readings, base(*many), "nic_reading")

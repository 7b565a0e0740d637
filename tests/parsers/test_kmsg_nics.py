"""The kernel log parser on NICs: links that go down and come back, drivers without a NIC, refused resources."""

from __future__ import annotations

import pytest

from diagnose.model import Record
from tests.parsers.support import load, of, run

parser = load("kmsg")

DOWN = "mlx5_core 0000:5c:00.0 ens3f0np0: Link down"
UP = "mlx5_core 0000:5c:00.0 ens3f0np0: Link up"


def find(records: list[Record], event: str) -> Record:
    (found,) = (r for r in records if r.fields["event"] == event)
    return found


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((DOWN,), {}),
        ((UP, DOWN), {}),
        ((DOWN, UP), {"recovered": True}),
        (("mlx5_core 0000:5c:00.0: firmware version: 28.39.1002", DOWN), {"at_start": True}),
        (("mlx5_core 0000:5c:00.0: firmware version: 28.39.1002", UP, DOWN), {}),
        (("mlx5_core 0000:aa:00.0: firmware version: 28.39.1002", DOWN), {}),
        ((UP, DOWN, "mlx5_core 0000:5c:00.0: firmware version: 28.39.1002"), {"recovered": True}),
        ((UP, DOWN, "mlx5_core 0000:5c:00.0: Shutdown was called"), {"recovered": True}),
        ((UP, DOWN, "mlx5_core 0000:aa:00.0: Shutdown was called"), {}),
        ((UP, DOWN, "reboot: Restarting system"), {"recovered": True}),
    ],
)
def test_whether_a_link_that_went_down_was_up_and_came_back(lines: tuple[str, ...], told: dict[str, bool]) -> None:
    text = "\n".join(f"[90000.{n:06}] {line}" for n, line in enumerate(lines))
    down = find(of(run(parser, text), "kernel_event"), "link_down")
    assert {k: v for k, v in down.fields.items() if k in ("recovered", "at_start")} == told


@pytest.mark.parametrize(
    ("line", "event", "device"),
    [
        ("mlx5_core: probe of 0000:5c:00.0 failed with error -22", "nic_probe_failed", "0000:5c:00.0"),
        (
            "mlx5_core 0000:5c:00.0: probe with driver mlx5_core failed with error -16",
            "nic_probe_failed",
            "0000:5c:00.0",
        ),
        (
            "infiniband mlx5_3: create_mkey_callback:131:(pid 0): async reg mr failed. status -12",
            "rdma_refused",
            "mlx5_3",
        ),
        (
            "infiniband efa_1: Failed to process command ALLOC_PD (opcode 14) comp_status 1 err -12",
            "rdma_refused",
            "efa_1",
        ),
        ("infiniband efa_1: Failed to process command ALLOC_PD (opcode 14) err -12", "rdma_refused", "efa_1"),
    ],
)
def test_a_nic_that_cannot_be_used(line: str, event: str, device: str) -> None:
    text = f"[12.345678] {line}"
    assert parser.sniff(text, "paste.txt") >= 0.5 or "probe with" in line
    (found,) = of(run(parser, text), "kernel_event")
    assert (found.fields["event"], found.fields["device"]) == (event, device)


def test_a_link_that_fell_long_before_a_restart_fell_on_its_own() -> None:
    text = f"[90000.000001] {UP}\n[90010.000001] {DOWN}\n[99000.000001] reboot: Restarting system"
    assert "recovered" not in find(of(run(parser, text), "kernel_event"), "link_down").fields


def test_a_port_that_is_unused_before_and_after_a_restart_without_years_in_stamps() -> None:
    lines = ("01:00:00 node01 kernel: mlx5_core 0000:5c:00.0 ens3f0np0: Link down",
             "01:06:00 node01 kernel: Linux version 5.15.0-91-generic",
             "01:06:04 node01 kernel: mlx5_core 0000:5c:00.0: firmware version: 28.39.1002",
             "01:06:09 node01 kernel: mlx5_core 0000:5c:00.0 ens3f0np0: Link down")  # fmt: skip
    text = "\n".join(f"Dec 01 {line}" for line in lines)
    assert find(of(run(parser, text), "kernel_event"), "link_down").fields["at_start"] is True


@pytest.mark.parametrize(
    ("later", "recovered"),
    [
        ("mlx5_core 0000:5c:00.0: firmware version: 28.39.1002", True),
        (UP, True),
        ("mlx5_core 0000:aa:00.0: firmware version: 28.39.1002", None),
        ("EXT4-fs (sda2): mounted filesystem with ordered data mode", None),
    ],
)
def test_a_nic_that_its_driver_takes_later(later: str, recovered: bool | None) -> None:
    lines = ("mlx5_core 0000:5c:00.0: firmware version: 28.39.1002",
             "mlx5_core: probe of 0000:5c:00.0 failed with error -110", later)  # fmt: skip
    text = "\n".join(f"[{5 + n}.000001] {line}" for n, line in enumerate(lines))
    assert find(of(run(parser, text), "kernel_event"), "nic_probe_failed").fields.get("recovered") is recovered


def test_a_bond_tells_no_driver_and_the_next_line_does() -> None:
    text = (
        "[90000.000001] bond0: (slave eno2): link status definitely down, disabling slave\n"
        "[90000.000002] tg3 0000:04:00.1 eno2: Link is down"
    )
    assert find(of(run(parser, text), "kernel_event"), "link_down").fields["driver"] == "tg3"


def test_a_probe_that_is_deferred_is_no_failure() -> None:
    assert not of(run(parser, "[12.3] mlx5_core: probe of 0000:5c:00.0 failed with error -517"), "kernel_event")


@pytest.mark.parametrize(
    ("line", "driver"),
    [
        (DOWN, "mlx5_core"),
        ("tg3 0000:04:00.1 eno2: Link is down", "tg3"),
        ("eth0: NIC Link is Down", None),
    ],
)
def test_the_driver_of_a_link(line: str, driver: str | None) -> None:
    down = find(of(run(parser, f"[90000.000001] {line}"), "kernel_event"), "link_down")
    assert down.fields.get("driver") == driver

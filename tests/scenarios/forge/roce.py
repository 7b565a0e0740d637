"""RoCE NICs: ethtool, mlnx_qos, ibdev2netdev, lspci, hw_counters (formats: ethtool 6, MLNX_OFED 24, pciutils 3.10)."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from .cluster import Host, Nic

Counters = dict[str, int]


def counters(rng: Random, priority: int) -> Counters:
    """`ethtool -S` of a mlx5 NIC after weeks of RDMA in one priority; what is not zero is harmless."""
    rx, tx = rng.randrange(30, 50) * 10**14, rng.randrange(30, 50) * 10**14
    table: Counters = {
        "rx_packets": rng.randrange(10**8, 10**9), "rx_bytes": rng.randrange(10**11, 10**12),
        "tx_packets": rng.randrange(10**8, 10**9), "tx_bytes": rng.randrange(10**11, 10**12),
        "tx_tso_packets": rng.randrange(10**6, 10**7), "rx_csum_complete": rng.randrange(10**8, 10**9), "tx_queue_stopped": 0,
        "tx_queue_dropped": 0, "rx_wqe_err": 0, "rx_buff_alloc_err": 0, "ch_events": rng.randrange(10**8, 10**9),
        "rx_out_of_buffer": 0, "rx_if_down_packets": 31, "rx_steer_missed_packets": 39259,
        "rx_vport_rdma_unicast_packets": rx // 4150, "rx_vport_rdma_unicast_bytes": rx,
        "tx_vport_rdma_unicast_packets": tx // 4150, "tx_vport_rdma_unicast_bytes": tx,
        "tx_packets_phy": tx // 4150 + 10**8, "rx_packets_phy": rx // 4150 + 10**8, "rx_crc_errors_phy": 0,
        "tx_bytes_phy": tx + 10**12, "rx_bytes_phy": rx + 10**12, "rx_oversize_pkts_phy": 0, "rx_symbol_err_phy": 0,
        "rx_pause_ctrl_phy": 0, "tx_pause_ctrl_phy": 0, "rx_discards_phy": 0, "tx_discards_phy": 0, "tx_errors_phy": 0,
        "link_down_events_phy": 2, "rx_pcs_symbol_err_phy": 0, "rx_corrected_bits_phy": rng.randrange(10**10, 4 * 10**10),
        "rx_err_lane_0_phy": rng.randrange(10**8, 9 * 10**8), "rx_buffer_passed_thres_phy": 0, "rx_pci_signal_integrity": 0,
        "tx_pci_signal_integrity": 15, "outbound_pci_stalled_rd": 0, "outbound_pci_stalled_wr": 0,
        "outbound_pci_stalled_rd_events": 0, "outbound_pci_stalled_wr_events": 0, "outbound_pci_buffer_overflow": 0,
    }  # fmt: skip
    for p in range(8):
        main = p == priority
        small = 7 * 10**11 + rng.randrange(10**9) if p == 0 else 0
        table |= {
            f"rx_prio{p}_bytes": rx if main else small, f"rx_prio{p}_packets": (rx if main else small) // 4150,
            f"rx_prio{p}_discards": 0, f"tx_prio{p}_bytes": tx if main else small,
            f"tx_prio{p}_packets": (tx if main else small) // 4150,
        }  # fmt: skip
    for p in range(8):
        table |= {
            f"rx_prio{p}_pause": 0,
            f"rx_prio{p}_pause_duration": 0,
            f"tx_prio{p}_pause": 0,
            f"tx_prio{p}_pause_duration": 0,
        }
    return table | {"tx_pause_storm_warning_events": 0, "tx_pause_storm_error_events": 0}


def later(
    table: Counters, rng: Random, *, seconds: float, gbps: float, tx_priority: int, rx_priority: int | None = None,
    tx_pause: Mapping[int, float] | None = None, rx_pause: Mapping[int, float] | None = None, **more: int,
) -> Counters:  # fmt: skip
    """The same `seconds` later under RDMA traffic; pauses as shares of the time per priority; `more` adds to counters."""
    after = dict(table)
    moved = int(gbps * 1e9 / 8 * seconds * rng.uniform(0.97, 1.03))
    for way, priority in (("tx", tx_priority), ("rx", tx_priority if rx_priority is None else rx_priority)):
        for name in (f"{way}_vport_rdma_unicast_bytes", f"{way}_bytes_phy", f"{way}_prio{priority}_bytes"):
            after[name] += moved
        for name in (f"{way}_vport_rdma_unicast_packets", f"{way}_packets_phy", f"{way}_prio{priority}_packets"):
            after[name] += moved // 4150
        after[f"{way}_prio0_bytes"] += 40_000_000
        after[f"{way}_prio0_packets"] += 31_000
        after[f"{way}_packets"] += 31_000
        after[f"{way}_bytes"] += 40_000_000
    for way, shares in (("tx", tx_pause), ("rx", rx_pause)):
        for priority, share in (shares or {}).items():
            after[f"{way}_prio{priority}_pause_duration"] += int(share * seconds * 1e6)
            after[f"{way}_prio{priority}_pause"] += int(share * seconds * 8000)
            after[f"{way}_pause_ctrl_phy"] += int(share * seconds * 8000)
    after["rx_corrected_bits_phy"] += rng.randrange(10**5, 10**6)
    for name, delta in more.items():
        after[name] += delta
    return after


def statistics(table: Counters) -> list[str]:
    """`ethtool -S`."""
    return ["NIC statistics:", *(f"     {name}: {value}" for name, value in table.items())]


def link(nic: Nic) -> list[str]:
    """`ethtool IFACE`."""
    return [
        f"Settings for {nic.netdev}:", "\tSupported ports: [ FIBRE Backplane ]",
        "\tSupported link modes:   100000baseSR4/Full", "\t                        200000baseSR4/Full",
        *(["\t                        400000baseSR8/Full"] if nic.speed_gbps == 400 else []),
        "\tSupported pause frame use: Symmetric", "\tSupports auto-negotiation: Yes", "\tSupported FEC modes: RS",
        "\tAdvertised auto-negotiation: Yes", f"\tSpeed: {nic.speed_gbps}000Mb/s", "\tLanes: 4", "\tDuplex: Full",
        "\tAuto-negotiation: on", "\tPort: FIBRE", "\tPHYAD: 0", "\tTransceiver: internal", "\tLink detected: yes",
    ]  # fmt: skip


def qos(pfc: Sequence[int] = (3,), trust: str = "dscp") -> list[str]:
    """`mlnx_qos -i IFACE`."""
    lines = ["DCBX mode: OS controlled", f"Priority trust state: {trust}"]
    if trust == "dscp":
        lines.append("dscp2prio mapping:")
        lines += [f"\tprio:{p} dscp:{','.join(f'{8 * p + d:02d}' for d in range(7, -1, -1))}," for p in range(8)]
    on = " ".join(f"  {int(p in pfc)}" for p in range(8))
    lines += [
        "Receive buffer size (bytes): 20016,156096,0,0,0,0,0,0,max_buffer_size=1027728", "Cable len: 7", "PFC configuration:",
        "\tpriority    0   1   2   3   4   5   6   7", f"\tenabled   {on}   ", f"\tbuffer    {on}   ",
    ]  # fmt: skip
    for p in range(8):
        tsa = "strict" if p == 6 else "ets, bw: 50%" if p == 0 or p in pfc[:1] else "vendor"
        lines += [f"tc: {p} ratelimit: unlimited, tsa: {tsa}", f"\t priority:  {p}"]
    return lines


def devices(host: Host) -> list[str]:
    """`ibdev2netdev`."""
    return [f"{nic.device} port 1 ==> {nic.netdev} (Up)" for nic in host.nics]


def lspci(host: Host, *, narrow: Mapping[str, tuple[str, str]] | None = None, acs: bool = False) -> list[str]:
    """`lspci -vvv` of the NICs and the ports above them; `narrow` gives device -> (speed, width) as trained."""
    lines: list[str] = []
    for nic in host.nics:
        speed, width = (narrow or {}).get(nic.device, ("32GT/s", "x16"))
        worse = " (downgraded)" if nic.device in (narrow or {}) else ""
        root = f"{int(nic.bus, 16) - 1:02x}"
        ctl = (
            "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+"
            if acs
            else "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-"
        )
        lines += [
            f"0000:{root}:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])",
            "\tNUMA node: 0", f"\tBus: primary={root}, secondary={nic.bus}, subordinate={nic.bus}, sec-latency=0",
            "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00",
            "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-", "\t\t\tMaxPayload 512 bytes, MaxReadReq 128 bytes",
            "\t\tLnkCap:\tPort #5, Speed 32GT/s, Width x16, ASPM not supported", f"\t\tLnkSta:\tSpeed {speed}, Width {width}",
            "\tCapabilities: [148 v1] Access Control Services",
            "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-",
            f"\t\tACSCtl:\t{ctl} EgressCtrl- DirectTrans-", "\tKernel driver in use: pcieport", "",
            f"0000:{nic.bus}:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]",
            "\tSubsystem: Mellanox Technologies Device 0026", "\tNUMA node: 0", "\tCapabilities: [60] Express (v2) Endpoint, MSI 00",
            "\t\tDevCtl:\tCorrErr- NonFatalErr- FatalErr- UnsupReq-", "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-",
            "\t\t\tMaxPayload 512 bytes, MaxReadReq 4096 bytes",
            "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported",
            f"\t\tLnkSta:\tSpeed {speed}{worse}, Width {width}{worse}", "\tCapabilities: [9c] MSI-X: Enable+ Count=64 Masked-",
            "\tKernel driver in use: mlx5_core", "",
        ]  # fmt: skip
    return lines


def hw_counters(nic: Nic, rng: Random, **value: int) -> list[str]:
    """`grep -H .` over the hw_counters of a device: some marks and notifications are normal."""
    table = {
        "duplicate_request": 0, "implied_nak_seq_err": 0, "lifespan": 10, "local_ack_timeout_err": 0, "np_cnp_sent": 550522,
        "np_ecn_marked_roce_packets": 550531, "out_of_buffer": 0, "out_of_sequence": 0, "packet_seq_err": 0, "req_cqe_error": 23,
        "req_cqe_flush_error": 23, "rnr_nak_retry_err": 0, "roce_adp_retrans": 0, "roce_adp_retrans_to": 0,
        "rp_cnp_handled": rng.randrange(400000, 600000), "rp_cnp_ignored": 0, "rx_icrc_encapsulated": 0,
        "rx_write_requests": 2464508311,
    } | value  # fmt: skip
    return [f"/sys/class/infiniband/{nic.device}/ports/1/hw_counters/{name}:{v}" for name, v in table.items()]

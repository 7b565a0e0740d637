"""What no single file shows: facts of different tools about one GPU, port, switch port or clock meet in one finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnose import run
from diagnose.model import Finding

IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.43.1014
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: {rate}
\t\tLink layer: InfiniBand
"""
WRITE_BW = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 4\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Mtu             : 4096[B]
 Link type       : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    115000           0.00               {average}             0.022896
---------------------------------------------------------------------------------------
"""
GPUS = """\
index, name, pci.bus_id, utilization.gpu [%], clocks_event_reasons.active
0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 0 %, 0x0000000000000001
5, NVIDIA H100 80GB HBM3, 00000000:9B:00.0, 0 %, 0x0000000000000001
"""
XID = "[{at}.000001] NVRM: Xid (PCI:0000:9b:00): 94, pid=4711, name=python3, Contained: SM (0x1). RST: No, D-RST: No\n"
TRACKING = """\
Reference ID    : C0000201 (192.0.2.1)
Stratum         : 3
Ref time (UTC)  : Mon Mar 02 08:00:00 2026
System time     : 0.000000000 seconds fast of NTP time
Last offset     : +0.000000000 seconds
RMS offset      : 0.000000000 seconds
Frequency       : 3.250 ppm slow
Residual freq   : +0.000 ppm
Skew            : {skew} ppm
Root delay      : 0.001000000 seconds
Root dispersion : {dispersion} seconds
Update interval : 64.0 seconds
Leap status     : Normal
"""
COUNTERS = """\
NIC statistics:
     rx_packets_phy: {packets}
     tx_prio3_pause: {pause}
     tx_prio3_pause_duration: {duration}
     rx_prio3_pause_duration: 0
"""
LLDP = """\
admin@leaf-1:~$ show lldp table
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice    RemotePortID       Capability    RemotePortDescr
-----------  --------------  -----------------  ------------  -----------------
Ethernet0    n1              02:00:5e:00:00:01  R             eth2
Ethernet8    n2              02:00:5e:00:00:02  R             eth2
"""
PFC = """\
admin@leaf-1:~$ show pfc counters
    Port Rx  PFC0  PFC1  PFC2    PFC3  PFC4  PFC5  PFC6  PFC7
-----------  ----  ----  ----  ------  ----  ----  ----  ----
  Ethernet0     0     0     0  98,211     0     0     0     0
  Ethernet8     0     0     0       0     0     0     0     0

    Port Tx  PFC0  PFC1  PFC2    PFC3  PFC4  PFC5  PFC6  PFC7
-----------  ----  ----  ----  ------  ----  ----  ----  ----
  Ethernet0     0     0     0       0     0     0     0     0
  Ethernet8     0     0     0  40,112     0     0     0     0
"""


def judged(folder: Path, files: dict[str, str]) -> dict[str, Finding]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return {f.id: f for f in run.analyse([str(folder)], run.Options()).findings}


@pytest.mark.parametrize(
    ("average", "rate", "slow"), [("191.40", 400, True), ("191.40", 200, False), ("391.40", 400, False)]
)
def test_a_measurement_meets_the_rate_of_its_port(tmp_path: Path, average: str, rate: int, slow: bool):
    said = judged(
        tmp_path, {"n1/ibstat.txt": IBSTAT.format(rate=rate), "n1/ib_write_bw.txt": WRITE_BW.format(average=average)}
    )
    assert ("perf/slow-ib-write" in said) is slow
    if slow:
        finding = said["perf/slow-ib-write"]
        assert "191 Gb/s of a 400 Gb/s link" in finding.summary
        assert {e.source for e in finding.evidence} == {"n1/ibstat.txt", "n1/ib_write_bw.txt"}


def test_an_xid_meets_the_index_of_its_gpu(tmp_path: Path):
    log = "".join(XID.format(at=at) for at in (800, 801, 802))
    finding = judged(tmp_path, {"n1/gpus.csv": GPUS, "n1/dmesg.txt": log})["gpu/ecc-uncorrectable"]
    assert "0000:9b:00 on n1 (index 5)" in finding.summary
    assert "PCI:0000:9b:00" in finding.evidence[0].text, "evidence is quoted as it was read"


def test_an_xid_of_another_host_keeps_its_address_only(tmp_path: Path):
    log = "".join(XID.format(at=at) for at in (800, 801, 802))
    finding = judged(tmp_path, {"n1/gpus.csv": GPUS, "n2/dmesg.txt": log})["gpu/ecc-uncorrectable"]
    assert "0000:9b:00 on n2 reported" in finding.summary


def test_offset_zero_means_nothing_beside_a_useless_bound(tmp_path: Path):
    tracking = TRACKING.format(skew="1000000.000", dispersion="2911.000000000")
    finding = judged(tmp_path, {"n1/tracking.txt": tracking})["clock/skew-breaks-correlation"]
    for words in ("2911000.0 ms", "1000000 ppm", "offset 0 and Leap Normal mean nothing", "does not stall NCCL"):
        assert words in finding.summary


def test_a_good_clock_is_left_alone(tmp_path: Path):
    assert judged(tmp_path, {"n1/tracking.txt": TRACKING.format(skew="0.021", dispersion="0.000900000")}) == {}


def test_a_clock_that_its_own_service_calls_unsynchronised(tmp_path: Path):
    said = judged(tmp_path, {"n1/timedatectl.txt": "System clock synchronized: no\nNTP service: inactive\n"})
    assert said["clock/unsynchronised"].severity == "minor"


def test_the_switch_speaks_for_the_host_behind_its_port(tmp_path: Path):
    files = {"job/leaf-1.lldp.txt": LLDP, "job/leaf-1.pfc.txt": PFC}
    taken: list[dict[str, str]] = []
    for host in ("n1", "n2", "n3"):
        for n, at in enumerate(("08:00:00", "08:00:10")):
            paused = n if host == "n1" else 0
            text = COUNTERS.format(packets=1_000_000 * (n + 1), pause=9_000 * paused, duration=4_000_000 * paused)
            path = f"{host}/ethtool-S.eth2.t{n}.txt"
            files[path] = text
            taken.append({"path": path, "host": host, "start": f"2026-03-02T{at}Z", "command": "ethtool -S eth2"})
    files["manifest.json"] = json.dumps({"schema": "diagnose.manifest/1", "files": taken})
    said = judged(tmp_path, files)
    finding = said["lossless/slow-receiver"]
    assert {s.name for s in finding.subjects} == {"n1", "eth2"}
    quoted = [e.text.split()[0] for e in finding.evidence if e.source.startswith("job/")]
    assert "Ethernet0" in quoted and "Ethernet8" not in quoted

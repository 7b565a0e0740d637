"""The kernel log parser: incidents, counts, times, prefixes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings

from diagnose.model import Block, Digest, Line, Record, Source
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, lines_of, load, of, run

parser = load("kmsg")


def events(name: str) -> list[Record]:
    return of(run(parser, fixture("kmsg", name)), "kernel_event")


def find(records: list[Record], event: str, **fields: object) -> Record:
    found = [r for r in records if r.fields["event"] == event and all(r.fields.get(k) == v for k, v in fields.items())]
    assert len(found) == 1, (event, fields, [dict(r.fields) for r in records])
    return found[0]


def test_a_healthy_boot_is_covered_and_silent() -> None:
    records = run(parser, fixture("kmsg", "healthy.txt"))
    assert [r.kind for r in records] == ["covered"]
    assert records[0].fields["topic"] == "kernel_log"


def test_the_end_of_the_log_is_told() -> None:
    records = run(parser, fixture("kmsg", "sick-T.txt") + "[Fri Jan  1 00:00:00 2027] usb 1-1: a quiet line\nend\n")
    (covered,) = of(records, "covered")
    assert covered.at == 1_798_761_600.0


@pytest.mark.parametrize(
    "stamp", ["[Tue Nov  3 10:00:00 2026] ", "[Tue Nov 3 10:00:00 2026] ", "[Tue Nov  3 10:00:00 2026]\n"]
)
def test_stamps_that_lost_a_blank_or_were_wrapped(stamp: str) -> None:
    text = f"[Mon Nov  2 10:00:00 2026] x: y\n{stamp}Memory cgroup out of memory: Killed process 7 (python3)\n"
    (kill,) = of(run(parser, text), "kernel_event")
    assert kill.at == 1_793_700_000.0


def test_repeated_xid_is_one_incident_with_its_last_time() -> None:
    xid = find(events("sick-T.txt"), "xid", code=119)
    assert xid.count == 2
    assert (xid.fields["device"], xid.fields["gpu"], xid.fields["pid"]) == ("0000:c4:00", 6, 71234)
    assert xid.fields["process"] == "python3"
    assert xid.last_at is not None and xid.at is not None and xid.last_at - xid.at == 45
    assert [(e.first, e.last) for e in xid.evidence] == [(2, 2), (8, 8)]


def test_xid_forms() -> None:
    records = events("sick-T.txt")
    assert "GPU Reset Required" in str(find(records, "xid", code=154).fields["text"])
    assert find(records, "xid", code=149).fields["severity"] == "nonfatal"
    old = find(records, "xid", code=31)
    assert old.fields["device"] == "0000:03:00"
    assert old.fields["code_name"] == "GPU memory page fault"
    sxid = find(records, "sxid", code=20034)
    assert (sxid.count, sxid.fields["severity"], sxid.fields["device"]) == (1, "fatal", "0000:86:00.0")


def test_nic_and_host_messages() -> None:
    records = events("sick-T.txt")
    assert find(records, "mlx5_health").count == 2
    assert find(records, "mlx5_timeout").fields["device"] == "0000:5e:00.0"
    assert find(records, "link_down", device="ens1np0").count == 2
    assert find(records, "link_up", device="ens1np0").count == 1
    assert find(records, "rdma_event").fields["device"] == "mlx5_1"
    assert find(records, "clocksource_unstable").fields["device"] == "tsc"
    assert find(records, "pcie_bandwidth").fields["device"] == "0000:5e:00.0"
    assert find(records, "hung_task").fields["process"] == "python3"
    assert find(records, "nfs_stall").fields["device"] == "nas-01.example.org"
    assert find(records, "module_unknown_parameter").fields["device"] == "mlx5_core"
    assert find(records, "iommu_fault").fields["device"] == "5e:00.0"
    assert find(records, "mce", severity="corrected").fields["device"] == "MC0"
    find(records, "thermal")


def test_aer_lines_of_one_error_count_once() -> None:
    records = events("sick-boot-seconds.txt")
    corrected = find(records, "aer", severity="corrected")
    assert corrected.count == 2
    assert "RxErr" in str(corrected.fields["text"])
    assert "BadTLP" in str(corrected.fields["text"])
    assert corrected.at is None, "seconds since boot are no date"
    assert find(records, "aer", severity="fatal").fields["device"] == "0000:c4:00.0"


def test_oom_kill_is_told_once_with_its_cgroup() -> None:
    records = events("sick-boot-seconds.txt")
    memcg = find(records, "oom_kill", constraint="memcg")
    assert memcg.count == 1
    assert memcg.fields["cgroup"] == "/slurm/uid_1001/job_7"
    assert find(records, "oom_kill", constraint="host").fields["pid"] == 900


def test_crashes_in_libnccl() -> None:
    crashes = [r for r in events("sick-boot-seconds.txt") if r.fields["event"] == "segfault"]
    assert {(r.fields["pid"], r.fields["library"]) for r in crashes} == {(4242, "libnccl.so.2"), (4243, "libnccl.so.2")}


def test_prefixes_of_syslog_journal_kmsg_and_decode() -> None:
    records = events("dirty-syslog.txt")
    fallen = [r for r in records if r.fields.get("code") == 79]
    assert {r.host: r.count for r in fallen} == {"gpu-a07": 4, "gpu-a08": 1}
    assert all("pid" not in r.fields or r.fields["pid"] == 1 for r in fallen)
    remap = find(records, "xid", code=63)
    assert (remap.host, remap.at) == ("gpu-a09", 1772500260.123456)
    assert find(records, "xid", code=94).at == 1772503920.0
    for code in (48, 13):
        assert find(records, "xid", code=code).at is None
    assert 9 not in {r.fields.get("code") for r in records}


def test_year_of_syslog_stamps_comes_from_the_time_of_the_capture() -> None:
    text = "Dec 31 23:59:00 n1 kernel: NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.\n"
    (record,) = of(run(parser, text, taken_at=1767229200.0), "kernel_event")
    assert record.at == 1767225540.0


def test_truncated_log_keeps_what_is_there() -> None:
    assert [r.fields["code"] for r in events("truncated.txt")] == [119]


XID = "NVRM: Xid (PCI:0000:1a:00): 79, pid=1, name=x, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("prefix", "host", "at"),
    [
        ("[  186.338999] ", None, None),
        ("[  186.338999] gpu-a07 kernel: ", "gpu-a07", None),
        ("[  186.338999][ T123] ", None, None),
        ("[Mar04 11:00] ", None, None),
        ("[  +0.000012] ", None, None),
        ("[Wed Mar  4 11:00:00 2026] ", None, 1772622000.0),
        ("2026-03-04T11:00:00+0000 gpu-a07 kernel: ", "gpu-a07", 1772622000.0),
        ("2026-03-04T12:00:00.000000+01:00 gpu-a07 kernel: [  186.338999] ", "gpu-a07", 1772622000.0),
        ("2026-03-04T11:00:00,000000+00:00 ", None, 1772622000.0),
        ("Wed 2026-03-04 11:00:00 UTC gpu-a07 kernel: ", "gpu-a07", 1772622000.0),
        ("1772622000.500000 gpu-a07 kernel: ", "gpu-a07", 1772622000.5),
        ("Mar  4 11:00:00 gpu-a07 kernel: ", "gpu-a07", None),
        ("Mar 04 11:00:00.123456 gpu-a07 kernel: ", "gpu-a07", None),
        ("gpu-a07: [  186.338999] ", "gpu-a07", None),
        ("gpu-a07: [Wed Mar  4 11:00:00 2026] ", "gpu-a07", 1772622000.0),
        ("kern  :err   : [  186.338999] ", None, None),
        ("<3>[  186.338999] ", None, None),
        ("3,812,186338999,-;", None, None),
        ("3,812,186338999,-,caller=T123;", None, None),
        ("", None, None),
    ],
)
def test_every_prefix(prefix: str, host: str | None, at: float | None) -> None:
    assert parser.sniff(prefix + XID, "x") >= 0.5
    (record,) = of(run(parser, prefix + XID), "kernel_event")
    assert (record.fields["code"], record.fields["device"], record.host, record.at) == (79, "0000:1a:00", host, at)


@pytest.mark.parametrize(
    ("message", "event", "fields"),
    [
        ("NVRM: Xid (PCI:0000:41:00 GPU-I:05): 31, pid=7, name=py, MMU Fault", "xid", {"device": "0000:41:00"}),
        (
            "detected NVSwitch fatal error 20034 on NVSwitch pci id 0000:86:00.0 physical id 8 port 61",
            "sxid",
            {"code": 20034, "severity": "fatal"},
        ),
        ("bond0: (slave eth2): link status definitely down, disabling slave", "link_down", {"device": "eth2"}),
        ("bnxt_en 0000:41:00.0 ens2f0np0: NIC Link is Down", "link_down", {"device": "ens2f0np0"}),
        (
            "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable",
            "cable_error",
            {"device": "0000:5e:00.0"},
        ),
        (
            "NETDEV WATCHDOG: eth2 (mlx5_core): transmit queue 3 timed out",
            "mlx5_timeout",
            {"device": "eth2"},
        ),
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python:4242]", "cpu_lockup", {}),
        ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "cpu_lockup", {}),
        ("NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", "nvrm_error", {"device": "0000:19:00.0"}),
        ("nf_conntrack: nf_conntrack: table full, dropping packet", "conntrack_full", {}),
        (
            "mlx5_core 0000:5e:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 address=0x7f3a0000]",
            "iommu_fault",
            {"device": "0000:5e:00.0"},
        ),
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e4(Receiver ID)",
            "aer",
            {"device": "0000:00:1c.0", "severity": "corrected"},
        ),
    ],
)
def test_messages(message: str, event: str, fields: dict[str, object]) -> None:
    record = find(of(run(parser, "[ 1.000000] " + message), "kernel_event"), event)
    assert fields.items() <= dict(record.fields).items()


@pytest.mark.parametrize(
    "message",
    [
        "mlx5_core 0000:5e:00.0: Health issue observed, firmware trace event, severity(4) WARNING:",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:5e:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): veth12: link becomes ready",
        "pcieport 0000:00:01.0: AER: enabled with IRQ 130",
        "clocksource: Switched to clocksource tsc",
        "nvme nvme2: I/O tag 412 (119c) opcode 0x2 (I/O Cmd) QID 31 timeout, completion polled",
        "nvidia-peermem loaded",
        "EXT4-fs (nvme0n1p2): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
    ],
)
def test_messages_that_mean_nothing(message: str) -> None:
    assert not of(run(parser, "[ 1.000000] " + message), "kernel_event")


def test_firmware_first_errors_and_old_oom_lines() -> None:
    text = """[ 1.000000] {1}[Hardware Error]: event severity: corrected
[ 1.000000] {1}[Hardware Error]:   section_type: PCIe error
[ 1.000000] {1}[Hardware Error]:   device_id: 0000:3b:00.0
[ 2.000000] Task in /kubepods/pod7 killed as a result of limit of /kubepods/pod7
[ 2.000000] Memory cgroup out of memory: Kill process 551 (python3) score 1900 or sacrifice child
[ 2.000000] Killed process 551 (python3) total-vm:219736kB, anon-rss:20264kB, file-rss:3276kB
"""
    records = of(run(parser, text), "kernel_event")
    assert find(records, "aer").fields["device"] == "0000:3b:00.0"
    oom = find(records, "oom_kill")
    assert (oom.fields["cgroup"], oom.fields["constraint"], oom.count) == ("/kubepods/pod7", "memcg", 1)


def unfold(items: Iterable[Record | Digest]) -> list[Record]:
    return [r for item in items for r in (item.records() if isinstance(item, Digest) else [item])]


@pytest.mark.parametrize(
    "text",
    [
        "[  81.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:2330) installed\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n",
        "6,912,81100000,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has"
        "\\x0aNVRM: fallen off the bus and is not responding to commands.\n",
        "[  81.100000] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.\n",
        "[  81.100000] NVRM: Xid (PCI:0000:b3:00): 79, pid=0, GPU has fallen off the bus.\n"
        "[  81.100004] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.\n",
    ],
)
def test_a_gpu_off_the_bus_is_one_incident_with_or_without_an_xid(text: str) -> None:
    (found,) = run(parser, text)
    assert (found.fields["event"], found.fields["code"], found.fields["device"]) == ("xid", 79, "0000:b3:00")
    assert found.count == 1


def test_old_kernels_name_the_child_that_was_killed() -> None:
    text = """[  9.100000] Memory cgroup stats for /kubepods/pod7: cache:32KB rss:524188KB
[  9.100001] Memory cgroup stats for /kubepods/pod7/c1: cache:32KB rss:524188KB
[  9.100002] Memory cgroup out of memory: Kill process 4711 (python) score 990 or sacrifice child
[  9.100003] Killed process 4802 (python) total-vm:20255636kB, anon-rss:466160kB, file-rss:13684kB
"""
    (oom,) = run(parser, text)
    assert [oom.fields.get(n) for n in ("pid", "cgroup", "constraint")] == [4802, "/kubepods/pod7", "memcg"]
    (alone,) = run(parser, "[  9.100003] Killed process 4802 (python) total-vm:20255636kB, anon-rss:466160kB\n")
    assert (alone.fields["pid"], alone.fields.get("constraint")) == (4802, None)


def test_only_the_last_clock_source_counts() -> None:
    boot = """[    0.800000] clocksource: Switched to clocksource hpet
[    1.900000] clocksource: Switched to clocksource tsc
"""
    assert [r.kind for r in run(parser, boot)] == ["covered"]
    (found,) = run(parser, boot + "[ 8996.146113] clocksource: Switched to clocksource acpi_pm\n")
    assert (found.fields["event"], found.fields["device"]) == ("clocksource_slow", "acpi_pm")


def test_lines_that_grep_printed() -> None:
    text = "messages:Jun 17 20:18:08 node07 kernel: INFO: task python:788 blocked for more than 120 seconds.\n"
    (found,) = run(parser, text)
    assert (found.host, str(found.fields["text"])[:10]) == ("node07", "INFO: task")


def test_blocks_and_lines_agree() -> None:
    source = Source(id="x", path="x")
    for name in ("sick-T.txt", "sick-boot-seconds.txt", "dirty-syslog.txt"):
        lines = lines_of(fixture("kmsg", name))
        by_line = [
            r for d in parser.parse(iter(lines), source) for r in (d.records() if isinstance(d, Digest) else [d])
        ]
        halves = [lines[: len(lines) // 2], lines[len(lines) // 2 :]]
        blocks = [Block(h[0].number, "\n".join(line.text for line in h) + "\n") for h in halves]
        by_block = unfold(parser.scan(blocks, source))
        assert by_line == by_block


def test_many_crashing_processes_stay_bounded() -> None:
    lines = [
        Line(n, f"[ 1.{n:06d}] worker[{n}]: segfault at 0 ip 00007f00 sp 00007ff0 error 4 in libcuda.so.1[7f00+1000]")
        for n in range(1, 500)
    ]
    (digest,) = parser.parse(lines, Source(id="x", path="x"))
    assert len(list(digest.records())) <= 33
    assert sum(r.count for r in digest.records()) == 499


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        ("libnccl.so.2.27.7", "communication"), ("librccl.so.1.0", "communication"), ("libcuda.so.1", "communication"),
        ("libcudart-9335f6a2.so.12.4.127", "communication"), ("libfabric.so.1", "communication"),
        ("libnccl-net-ofi.so", "communication"), ("libibverbs.so.1.14", "communication"),
        ("libmlx5.so.1.24", "communication"), ("libucp.so.0.0.0", "communication"),
        ("libuct_ib.so.0", "communication"), ("libc.so.6", "other"), ("libtorch_cuda.so", "other"),
        ("libpython3.11.so.1.0", "other"), ("libcups.so.2", "other"), ("libucontext.so", "other"),
    ],
)  # fmt: skip
def test_crashed_libraries_are_told_apart(library: str, kind: str) -> None:
    text = f"[ 12.000001] python3[77]: segfault at 8 ip 00007f01 sp 00007ff1 error 4 in {library}[7f00+1000]\n"
    (crash,) = of(run(parser, text), "kernel_event")
    assert (crash.fields["library"], crash.fields["library_class"]) == (library, kind)


def test_a_crash_outside_any_library_has_no_class() -> None:
    text = "[ 12.000001] tool[77]: segfault at 8 ip 00007f01 sp 00007ff1 error 4\n"
    (crash,) = of(run(parser, text), "kernel_event")
    assert "library_class" not in crash.fields


@pytest.mark.parametrize("name", ["healthy.txt", "sick-T.txt", "sick-boot-seconds.txt", "dirty-syslog.txt"])
def test_sniff_claims_kernel_logs(name: str) -> None:
    assert parser.sniff(fixture("kmsg", name), name) >= 0.5


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("kmsg"):
        if "NVRM: Xid" not in text and "segfault at" not in text:
            assert parser.sniff(text, name) < 0.5, name
            assert not of(run(parser, text), "kernel_event"), name


@settings(max_examples=60, deadline=None)
@given(hostile("kmsg"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)


def test_slot_power_of_a_nic() -> None:
    said = "mlx5_pcie_event:299:(pid 26): Detected insufficient power on the PCIe slot (27W)."
    line = f"[   34.1] mlx5_core 0000:5c:00.0: {said}"
    (event,) = of(run(parser, line), "kernel_event")
    assert (event.fields["event"], event.fields["device"]) == ("nic_power", "0000:5c:00.0")


@pytest.mark.parametrize("said", ["Out of memory: Killed", "cgroup out of memory: Killed", "Out of memory: Kill"])
def test_a_single_line_of_any_spelling_is_enough(said: str) -> None:
    text = f"[12345.678901] {said} process 991 (python3) total-vm:9437184kB, anon-rss:8388608kB, file-rss:96kB"
    assert parser.sniff(text, "paste.txt") == 0.9

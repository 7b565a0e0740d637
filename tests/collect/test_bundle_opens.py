"""What is collected is read: each tool's output reaches its parser, under this host, with its device and snapshot."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from diagnose import bundle as bundles
from diagnose import facts, intake, packs
from tests.collect.support import TOP, collect, fake_rank, tool

FIXTURES = TOP / "fixtures" / "parsers"
PAUSES = """n=$(cat {count} 2>/dev/null || echo 0)
case "$1" in
-S) echo $((n + 1)) > {count}
    printf 'NIC statistics:\\n     rx_packets: 1000\\n     tx_prio3_pause: %d\\n' $((1000 + n * 500));;
-i) printf 'driver: mlx5_core\\nversion: 6.12.0\\nfirmware-version: 28.39.1002 \\nbus-info: 0000:1a:00.0\\n';;
-*) echo 'netlink error: Operation not supported' >&2; exit 1;;
*) printf 'Settings for %s:\\n\\tSpeed: 400000Mb/s\\n\\tDuplex: Full\\n\\tLink detected: yes\\n' "$1";;
esac"""
SMI = """case "$*" in
"topo -m") cat {fixtures}/nvidia_smi_topo/healthy.txt;;
-q) cat {fixtures}/nvidia_smi_query/healthy-q.txt;;
*) echo 'Failed to initialize NVML: Unknown Error'; exit 255;;
esac"""
STACK = """Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    main (train.py:88)
"""


def interfaces() -> list[str]:
    return [p.name for p in Path("/sys/class/net").iterdir() if (p / "device").exists()]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collected")
    tools = folder / "bin"
    tools.mkdir()
    tool(tools, "ethtool", PAUSES.format(count=folder / "count"))
    tool(tools, "nvidia-smi", SMI.format(fixtures=FIXTURES))
    tool(tools, "py-spy", f"cat <<'EOF'\n{STACK}EOF")
    for name, path in {
        "mlnx_qos": "mlnx_qos/healthy.txt", "lldpctl": "lldp/healthy.txt", "lspci": "lspci/healthy.txt",
        "show_gids": "show_gids/healthy.txt", "systemd-cgtop": "cgtop/raw.txt",
    }.items():  # fmt: skip
        tool(tools, name, f"cat {FIXTURES / path}")
    tool(tools, "chronyc", f'[ "$2" = tracking ] && cat {FIXTURES}/chrony/healthy.txt')
    log = folder / "nccl.log"
    log.write_text("node-a:4711:4790 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>\n" * 3)
    rank = fake_rank(folder, RANK="3", WORLD_SIZE="4", NCCL_DEBUG_FILE=str(log), NCCL_SOCKET_IFNAME="=lo")
    try:
        done = collect(
            "--out", str(folder / "b.tar.gz"), "--host", "node-a", "--interval", "3s", "--limit", "60s",
            "--pid", str(rank.pid), "--py-spy", str(tools / "py-spy"), env={"PATH": f"{tools}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode in (0, 3), done.stderr
    finally:
        rank.kill()
        rank.wait()
    return folder / "b.tar.gz"


@pytest.fixture(scope="module")
def known(bundle: Path):
    """Observations of the bundle."""
    parsers = packs.load_parsers()
    with bundles.open_bundle([str(bundle)], parsers) as opened:
        assert opened.problems == ()
        read, problems = intake.parse_all([s for s in opened.sources if s.kinds], parsers, jobs=1)
        assert problems == []
        return opened.sources, facts.build(read)


KINDS = {
    "gpu/nvidia-smi-topo-m.txt": "nvidia_smi_topo", "gpu/nvidia-smi-q.txt": "nvidia_smi_query",
    "ip/lldpctl.txt": "lldp", "pci/lspci-vvv.txt": "lspci", "rdma/show_gids.txt": "show_gids",
    "cgroup/systemd-cgtop.txt": "cgtop",
    "time/chronyc-tracking.txt": "chrony", "logs/rank3.nccl.txt": "nccl_log", "host/df-shm.txt": "host_misc",
    "host/lscpu.txt": "host_misc", "ip/ip-link.txt": "ip_link", "host/settings.txt": "host_misc",
}  # fmt: skip


@pytest.mark.parametrize(("path", "kind"), KINDS.items())
def test_each_output_reaches_its_parser(known, path: str, kind: str):
    sources, _ = known
    source = next((s for s in sources if s.path.endswith("node-a/" + path)), None)
    if source is None and shutil.which(path.split("/")[1].split(".")[0].split("-")[0]) is None and "/ip" not in path:
        pytest.skip(f"{path}: this host does not have the tool")
    assert source is not None
    assert kind in source.kinds and source.host == "node-a"


def test_stacks_belong_to_their_rank_and_snapshot(known):
    sources, base = known
    stacks = [s for s in sources if "/stacks/" in s.path]
    assert sorted(s.snapshot for s in stacks) == [1, 2] and {s.rank for s in stacks} == {3}
    found = [o for o in base.observations if o.kind == "python_stack"]
    assert [o.fields["rank"] for o in found] == [3, 3]
    assert found[1].fields["at"] - found[0].fields["at"] >= 3  # type: ignore[operator]


@pytest.mark.skipif(not interfaces(), reason="no network interface of hardware here")
def test_counters_give_rates(known):
    from diagnose.tables import counters

    _, base = known
    nic = interfaces()[0]
    pauses = [o for o in base.observations if o.kind == "nic_counter" and o.fields["name"] == "tx_prio3_pause"]
    assert {o.fields["device"] for o in pauses} >= {nic}
    rates = [f for f in counters.derive(base) if f.kind == "nic_rate" and f.fields["device"] == nic]
    assert rates, "two snapshots must give a rate"


def test_times_are_those_of_the_collection(known):
    sources, _ = known
    taken = [s.taken_at for s in sources if s.taken_at is not None]
    assert taken and all(abs(at - time.time()) < 600 for at in taken)

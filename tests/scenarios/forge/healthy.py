"""Jobs with nothing wrong and much that looks wrong."""

# ruff: noqa: E501 - lines of the real formats are long
from __future__ import annotations

from random import Random

from . import bench, gpus, nics, torchlog
from .cluster import build
from .common import surround
from .core import Bundle, Scenario, Truth, epoch, scenario
from .nccl import Nccl


@scenario("healthy-ib-h100-nvls")
def ib_h100(rng: Random, swapped: bool) -> Scenario:
    """Two H100 hosts on InfiniBand with NVLS and storage NICs beside, after a run that ended well."""
    cluster = build(rng, ("plover-r02-n03", "plover-r02-n04"), storage=True)
    start = epoch("2026-06-18 09:12:00")
    bundle = Bundle(start)
    env = {
        "NCCL_SOCKET_IFNAME": "=bond0", "NCCL_IB_TIMEOUT": "22",
        "NCCL_TOPO_DUMP_FILE": "/scratch/timeout-error-survey/topo.xml",
    }  # fmt: skip
    nccl = Nccl(cluster, env=env, nvls=True)
    began = start - 40 * 3600
    for host in cluster.hosts:
        name = host.name
        bundle.add(f"job/nccl.{name}.log", [*nccl.start(host, rng), *nccl.destroyed(host, rng)], host=name)
        bundle.add(f"{name}/gpu/nvidia-smi-topo-m.txt", gpus.topology(host, underlined=host.index == 1), host=name,
                   command="nvidia-smi topo -m")  # fmt: skip
        bundle.add(f"{name}/rdma/ibstat.txt", nics.ibstat(host), host=name, command="ibstat")
        before = nics.ib_counters(host, rng)
        after = nics.later(before, rng, seconds=30)
        for number, table in ((1, before), (2, after)):
            at = 10.0 if number == 1 else 40.0
            bundle.add(f"{name}/rdma/ib-counters.{number}.txt", nics.grep_counters(table), host=name, at=at, snapshot=number,
                       command="grep -H . /sys/class/infiniband/*/ports/*/{counters,hw_counters}/*")  # fmt: skip
    one = cluster.hosts[0]
    bundle.add(f"{one.name}/gpu/nvidia-smi-q.txt", gpus.full(cluster, one, rng, start, corrected={3: 2}), host=one.name,
               command="nvidia-smi -q")  # fmt: skip
    bundle.add(
        "job/all_reduce_perf-1node.txt",
        bench.all_reduce(cluster, cluster.hosts[:1], rng, peak=478.0),
        command="all_reduce_perf -b 8 -e 16G -f 2 -g 1",
    )
    bundle.add("job/train-survey.out", [
        *torchlog.header(began, cluster, one), *torchlog.steps(began + 300, rng, 60, 10),
        "[after training is done] datetime: 2026-06-18 08:57:51 ",
        f"[rank0]:{torchlog.glog('W', start - 900, 'ProcessGroupNCCL.cpp:1524')} Warning: WARNING: destroy_process_group() was not"
        " called before program exit, which can leak resources. For more info, please see"
        " https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
    ])  # fmt: skip
    surround(bundle, cluster, rng)
    return Scenario(bundle, Truth(exit=0))

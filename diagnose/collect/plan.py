"""Which takes a host gets: the tools of GPUs, NICs, RDMA, time, kernel and control groups, and each rank's process."""

import os
import sys
from typing import List, Sequence, Tuple

from . import devices, rankplan, runner
from .discover import Found
from .options import Options
from .takes import KIB, MIB, Missing, Take, grep, twice

GPU_QUERY = (
    "index,name,uuid,pci.bus_id,pstate,persistence_mode,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit,"
    "enforced.power.limit,temperature.gpu,utilization.gpu,utilization.memory,memory.used,memory.total,pcie.link.gen.current,"
    "pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,clocks_throttle_reasons.active"
)
PS_COLUMNS = "pid,ppid,user:20,stat,pcpu,pmem,rss,nlwp,psr,wchan:30,comm"
SYSCTLS = """
    net.core.rmem_max net.core.wmem_max net.core.somaxconn net.core.netdev_max_backlog net.core.netdev_budget
    net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_congestion_control net.ipv4.ip_local_port_range
    net.ipv4.ip_local_reserved_ports net.ipv4.tcp_mtu_probing net.ipv4.tcp_retries2 net.ipv4.tcp_syn_retries
    net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce net.ipv4.conf.all.rp_filter
    net.ipv4.conf.default.rp_filter kernel.numa_balancing kernel.yama.ptrace_scope kernel.sched_rt_runtime_us
    kernel.pid_max kernel.threads-max vm.zone_reclaim_mode vm.overcommit_memory vm.max_map_count vm.swappiness
    vm.dirty_ratio vm.dirty_background_ratio
""".split()
MODULES = """
    nvidia nvidia_peermem nv_peer_mem nvidia_uvm gdrdrv mlx5_core mlx5_ib ib_core bnxt_en bnxt_re irdma efa
    ib_uverbs
""".split()


def plan(options: Options, found: Found) -> Tuple[List[Take], List[Missing]]:
    """All takes but those of Slurm, logs and RAS, in phases, and what is left out on purpose."""
    missing: List[Missing] = []
    takes = rankplan.ranks(options, found, missing)
    takes += gpu(options) + net(options, found, missing) + rdma(options) + pci(options)
    takes += host(options, found) + clock(options) + kernel(options) + groups(options, found)
    return chosen(options, takes), missing


def chosen(options: Options, takes: Sequence[Take]) -> List[Take]:
    """What --include and --exclude leave."""
    kept = []
    for take in takes:
        topic, _, name = take.path.partition("/")
        if options.include and topic not in options.include:
            continue
        names = (topic, name, name.split(".")[0], os.path.basename(take.argv[0]))
        if not any(x in names for x in options.exclude):
            kept.append(take)
    return kept


def gpu(options: Options) -> List[Take]:
    """The nvidia-smi family, one at a time; the AMD tool where there is one."""
    if not (devices.gpu_count() or runner.find_program("nvidia-smi")):
        return _amd()

    def smi(name: str, *argv: str) -> Take:
        return Take("gpu/nvidia-smi" + name, ("nvidia-smi",) + argv, "gpu", 15, 8 * MIB)

    query = smi("-query-gpu", "--query-gpu=" + GPU_QUERY, "--format=csv")
    # Drivers rename fields, and one unknown name spoils the whole answer: the new name, then none of the two.
    for reasons in (",clocks_event_reasons.active", ""):
        fields = GPU_QUERY.replace(",clocks_throttle_reasons.active", reasons)
        query.otherwise.append(["nvidia-smi", "--query-gpu=" + fields, "--format=csv"])
    made = twice([query, smi("-nvlink-e", "nvlink", "-e")])
    made += [smi("-q", "-q"), smi("-topo-m", "topo", "-m"), smi("-nvlink-s", "nvlink", "-s")]
    if not options.quick:
        made += [
            smi("", *()),
            smi("-topo-p2p-r", "topo", "-p2p", "r"),
            smi("-L", "-L"),
            smi("-pmon", "pmon", "-c", "1"),
        ]
        made += [
            smi("-nvlink-R", "nvlink", "-R"),
            smi("-compute-apps", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv"),
        ]
    made += grep(
        "gpu/driver",
        ["/proc/driver/nvidia/version", "/proc/driver/nvidia/params"],
        "gpu-files",
        "/proc/driver/nvidia/{version,params}",
    )
    made.append(
        Take(
            "gpu/fabricmanager",
            ["tail", "-c", str(256 * KIB), "/var/log/fabricmanager.log"],
            "gpu-files",
            5,
            quiet=True,
        )
    )
    return made


def _amd() -> List[Take]:
    if not runner.find_program("rocm-smi"):
        return []
    return [
        Take("gpu/rocm-smi" + n, ["rocm-smi"] + a, "gpu", 15)
        for n, a in (("", []), ("-topo", ["--showtopo"]), ("-all", ["-a"]))
    ]


def net(options: Options, found: Found, missing: List[Missing]) -> List[Take]:
    """The ethtool family for each NIC, QoS, interfaces, neighbours and kernel counters of the network."""
    wanted = next((p.env["NCCL_SOCKET_IFNAME"] for p in found.ranks if p.env.get("NCCL_SOCKET_IFNAME")), "")
    nics = devices.Nics(wanted)
    made: List[Take] = []
    for nic in nics.chosen:
        made += twice([_nic("ethtool-S", nic, ["ethtool", "-S", nic], MIB)])
        made.append(_nic("ethtool", nic, ["ethtool", nic]))
        for option in ("i", "a", "k", "c", "g", "l", "T"):
            made.append(_nic("ethtool-" + option, nic, ["ethtool", "-" + option, nic]))
        for option in ("show-fec", "show-priv-flags"):
            made.append(_nic("ethtool--" + option, nic, ["ethtool", "--" + option, nic]))
        if not options.quick:
            made.append(_nic("ethtool-m", nic, ["ethtool", "-m", nic]))
        made.append(_nic("mlnx_qos", nic, ["mlnx_qos", "-i", nic]))
        for what in ("pfc", "app", "ets", "buffer"):
            made.append(
                _nic("dcb-" + what, nic, ["dcb"] + (["-s"] if what == "pfc" else []) + [what, "show", "dev", nic])
            )
    for nic in nics.left_out:
        missing.append(("ethtool -S " + nic, "more than %d NICs" % devices.MAX_NICS))
    if nics.virtual_functions:
        missing.append(
            (
                "ethtool of %d virtual functions" % len(nics.virtual_functions),
                "left out: only physical functions are asked",
            )
        )
    made += [
        Take("ip/ip-link", ["ip", "-d", "link", "show"], "net", 8),
        Take("ip/ip-addr", ["ip", "addr", "show"], "net", 8),
        Take("ip/ip-route", ["ip", "route", "show", "table", "all"], "net", 8, MIB),
        Take("ip/ip-rule", ["ip", "rule", "show"], "net", 8),
        Take("ip/ip-neigh", ["ip", "neigh", "show"], "net", 8, MIB),
        Take("ip/lldpctl", ["lldpctl"], "lldp", 8),
        Take("net/ovs", ["ovs-vsctl", "show"], "ovs", 6),
    ]
    made += twice(
        [
            Take("ip/ip-stats", ["ip", "-s", "-s", "link", "show"], "net", 8),
            Take("net/nstat", ["nstat", "-az"], "nstat", 6),
        ]
    )
    if not options.quick:
        made.append(Take("net/ss", ["ss", "-tin"], "nstat", 10, MIB))
        made.append(Take("net/tc-qdisc", ["tc", "-s", "qdisc", "show"], "net", 8, MIB))
    counters = ["/proc/net/dev", "/proc/net/softnet_stat", "/proc/net/snmp", "/proc/net/netstat", "/proc/net/sockstat"]
    made += twice(grep("net/proc-net", counters, "files", "/proc/net/{dev,softnet_stat,snmp,netstat,sockstat}"))
    bonds = ["/proc/net/bonding/" + n for n in devices.names("/proc/net/bonding")]
    made += grep("net/bonding", bonds, "files", "/proc/net/bonding/*")
    return made


def _nic(name: str, nic: str, argv: Sequence[str], cap: int = 512 * KIB) -> Take:
    return Take("net/%s.%s" % (name, nic), argv, "ethtool" if argv[0] == "ethtool" else "qos", 8, cap)


def rdma(options: Options) -> List[Take]:
    """RDMA ports, GIDs and counters; sysfs reads go through a child too, since they ask the firmware."""
    if not devices.rdma_devices() and not runner.find_program("rdma"):
        return []
    top = "/sys/class/infiniband/"
    made = twice(
        grep(
            "rdma/hw_counters", devices.counter_files("hw_counters"), "rdma-files", top + "*/ports/*/hw_counters/*", 20
        )
        + grep("rdma/counters", devices.counter_files("counters"), "rdma-files", top + "*/ports/*/counters/*", 20)
    )
    made += grep("rdma/ports", devices.port_files(), "rdma-files", top + "*/ports/*/{state,phys_state,rate,gids/*}", 20)
    made += grep(
        "rdma/roce",
        devices.roce_files(),
        "rdma-files",
        "/sys/class/infiniband/*/tc/1/traffic_class /sys/class/net/*/ecn/*/*",
        15,
    )
    made += [
        Take("rdma/rdma-link", ["rdma", "link", "show"], "rdma", 8),
        Take("rdma/rdma-dev", ["rdma", "dev", "show"], "rdma", 8),
        Take("rdma/rdma-system", ["rdma", "system", "show"], "rdma", 8),
        Take("rdma/rdma-res", ["rdma", "resource", "show"], "rdma", 8),
        Take("rdma/ibstat", ["ibstat"], "ib", 8),
        Take("rdma/ibdev2netdev", ["ibdev2netdev", "-v"], "ib", 8),
        Take("rdma/show_gids", ["show_gids"], "ib", 10),
    ]
    if not options.quick:
        made.append(Take("rdma/ibv_devinfo", ["ibv_devinfo", "-v"], "ib", 10))
        made.append(Take("rdma/rdma-res-qp", ["rdma", "resource", "show", "qp"], "rdma", 10, 2 * MIB))
    return made


def pci(options: Options) -> List[Take]:
    """PCIe links; reading all of them can take seconds."""
    made = [Take("pci/lspci-tv", ["lspci", "-tv"], "pci", 8)]
    if not options.quick:
        made.insert(0, Take("pci/lspci-vvv", ["lspci", "-D", "-vvv"], "pci", 20, 8 * MIB))
    return made


def host(options: Options, found: Found) -> List[Take]:
    """CPUs, memory, limits, modules, load, and what else runs."""
    made = [
        Take("host/uname", ["uname", "-a"], "host", 5),
        Take("host/uptime", ["uptime"], "host", 5),
        Take("host/lscpu", ["lscpu"], "host", 8),
        Take("host/numactl-H", ["numactl", "-H"], "host", 5),
        Take("host/numactl-s", ["numactl", "-s"], "host", 5),
        Take("host/lsmod", ["lsmod"], "host", 5),
        Take("host/sysctl", ["sysctl"] + list(SYSCTLS), "host", 5),
        Take("host/df-shm", ["df", "-kP", "/dev/shm"], "host", 5),
        Take("host/df-local", ["df", "-kPl"], "df", 8),
        Take("host/ps", ["ps", "-eo", PS_COLUMNS, "--sort=-pcpu"], "ps", 8, 2 * MIB, otherwise=[["ps", "-ef"], ["ps"]]),
        Take("host/systemctl-failed", ["systemctl", "--failed", "--no-pager"], "systemd", 5),
    ]
    made += grep("host/cmdline", ["/proc/cmdline", "/proc/version"], "files", "/proc/{cmdline,version}")
    cpus = [n for n in devices.names("/sys/devices/system/cpu") if n[3:].isdigit() and n.startswith("cpu")]
    settings = [
        "/sys/devices/system/clocksource/clocksource0/" + n for n in ("current_clocksource", "available_clocksource")
    ]
    settings += ["/sys/devices/system/cpu/%s/cpufreq/scaling_governor" % c for c in cpus]
    settings += ["/sys/kernel/mm/transparent_hugepage/" + n for n in ("enabled", "defrag")]
    settings += [
        "/sys/devices/system/cpu/intel_pstate/no_turbo",
        "/sys/devices/system/cpu/cpufreq/boost",
        "/sys/module/pcie_aspm/parameters/policy",
    ]
    settings += ["/sys/module/%s/version" % m for m in MODULES]
    made += grep("host/settings", settings, "files", "/sys/devices/system/{clocksource,cpu}/* /sys/module/*/version")
    live = ["/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"]
    live += ["/proc/stat", "/proc/vmstat", "/proc/diskstats"]
    live += ["/sys/devices/system/cpu/%s/cpufreq/scaling_cur_freq" % c for c in cpus]
    made += twice(
        grep(
            "host/live",
            live,
            "files",
            "/proc/{loadavg,meminfo,pressure/*,stat,vmstat,diskstats} /sys/devices/system/cpu/*/cpufreq/*",
        )
    )
    made += twice(grep("host/mountstats", ["/proc/self/mountstats"], "files", "/proc/self/mountstats", 5, MIB))
    made += grep("host/mounts", ["/proc/self/mountinfo"], "files", "/proc/self/mountinfo", 5, MIB)
    if not options.quick:
        made += grep("host/interrupts", ["/proc/interrupts"], "files", "/proc/interrupts", 5, 2 * MIB)
        cgtop = ["systemd-cgtop", "-b", "-n", "3", "-d", "3", "--raw", "--depth=6"]
        made.append(Take("cgroup/systemd-cgtop", cgtop, "cgtop", 20, MIB))
    made += _shm(found)
    return made


_SHM = (
    "import os,sys\nfor p in sys.argv[1:]:\n s=os.statvfs(p);k=s.f_frsize/1024.0\n"
    " t,f,a=s.f_blocks*k,s.f_bfree*k,s.f_bavail*k\n"
    " print('Filesystem 1024-blocks Used Available Capacity Mounted on')\n"
    " print('shm %d %d %d %d%% /dev/shm'%(t,t-f,a,100*(t-f)/t if t else 0))\n"
)


def _shm(found: Found) -> List[Take]:
    """/dev/shm as ranks in containers see it, without running anything of the container."""
    made, seen = [], set()
    for p in found.ranks:
        if p.foreign("mnt", found.own_ns) and p.ns["mnt"] not in seen:
            seen.add(p.ns["mnt"])
            place = "/proc/%d/root/dev/shm" % p.pid
            argv = [sys.executable or "python3", "-I", "-S", "-c", _SHM, place]
            made.append(Take("proc/shm.%s" % p.label, argv, "host", 5, command="df -kP %s" % place))
    return made[:16]


def clock(options: Options) -> List[Take]:
    """How well the clock is kept."""
    made = [
        Take("time/chronyc-tracking", ["chronyc", "-n", "tracking"], "time", 6),
        Take("time/chronyc-sources", ["chronyc", "-n", "sources"], "time", 6),
        Take("time/timedatectl", ["timedatectl"], "time", 6),
        Take("time/ntpq", ["ntpq", "-pn"], "time", 6),
        Take(
            "time/pmc",
            ["pmc", "-u", "-b", "0", "GET TIME_STATUS_NP", "GET CURRENT_DATA_SET", "GET PORT_DATA_SET"],
            "time",
            6,
        ),
    ]
    units = [word for unit in ("ptp4l", "phc2sys", "chronyd", "chrony", "systemd-timesyncd") for word in ("-u", unit)]
    if not options.quick:
        made.append(Take("time/journal-clocks", _journal(options, "-1h") + units, "journal", 10, MIB))
    return made


def _journal(options: Options, default: str) -> List[str]:
    return ["journalctl", "--no-pager", "-o", "short-iso", "-n", "20000", "--since", _since(options, default)]


def _since(options: Options, default: str) -> str:
    if not options.since:
        return default
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(options.since))


def kernel(options: Options) -> List[Take]:
    """The kernel log; the journal's copy where dmesg is not allowed."""
    journal = _journal(options, "-24h") + ["-k"]
    first = ["dmesg", "--time-format", "iso"]
    return [Take("kernel/dmesg", first, "kernel", 10, 4 * MIB, otherwise=[["dmesg", "-T"], journal, ["dmesg"]])]


def groups(options: Options, found: Found) -> List[Take]:
    """Files of the control groups of the job, and of those above them, twice."""
    made, seen = [], set()
    for p in found.processes:
        if p.role == "worker":
            continue
        folders = tuple(devices.group_folders(p.cgroup))
        if folders in seen or not folders:
            continue
        seen.add(folders)
        files = devices.group_files(list(folders))
        made += grep("cgroup/cgroup.%s" % p.label, files, "files", " ".join(f + "/*" for f in folders[:3]), 8, MIB)
    return twice(made[:32])


def slurm(found: Found) -> List[Take]:
    """The job as Slurm knows it."""
    jobs = sorted({p.env["SLURM_JOB_ID"] for p in found.processes if p.env.get("SLURM_JOB_ID", "").isdigit()})[:4]
    made = [Take("slurm/scontrol-job." + j, ["scontrol", "show", "job", "-d", j], "slurm", 8) for j in jobs]
    return made + [
        Take("slurm/scontrol-node", ["scontrol", "show", "node", os.uname()[1].split(".")[0]], "slurm", 8)
        for _ in jobs[:1]
    ]

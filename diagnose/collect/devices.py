"""NICs, RDMA devices and control groups of this host, from names in /sys and /proc: nothing here asks a device."""

import os
import re
from typing import Dict, List, Tuple

from . import proc

MAX_NICS = 40
MAX_GROUPS = 64
_VIRTUAL = re.compile(
    r"(?:lo|docker\d*|virbr.*|veth.*|cali.*|lxc.*|cilium.*|flannel.*|vxlan.*|tunl\d*|dummy.*|br-.*|cni\d*|kube.*|nodelocaldns)$"
)


def names(folder: str) -> List[str]:
    """Sorted names in a folder; empty when it is missing."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class Nics(object):
    """Interfaces that NCCL uses or could use: those of hardware, bonds over them, and those that settings name."""

    def __init__(self, wanted: str = "") -> None:
        self.every = names("/sys/class/net")
        hardware = [n for n in self.every if os.path.islink("/sys/class/net/%s/device" % n)]
        self.virtual_functions = [n for n in hardware if os.path.exists("/sys/class/net/%s/device/physfn" % n)]
        chosen = [n for n in hardware if n not in self.virtual_functions] or hardware
        chosen += [n for n in self.every if os.path.isdir("/sys/class/net/%s/bonding" % n) and n not in chosen]
        prefixes = [w.split(":")[0] for w in wanted.lstrip("=").split(",") if w and not wanted.startswith("^")]
        chosen += [n for n in self.every if n not in chosen and any(n.startswith(p) for p in prefixes if p)]
        if not chosen:
            chosen = [n for n in self.every if not _VIRTUAL.match(n)]
        self.chosen = sorted(chosen)[:MAX_NICS]
        self.left_out = sorted(chosen)[MAX_NICS:]


def rdma_devices() -> List[Tuple[str, List[str]]]:
    """Each RDMA device with its ports."""
    top = "/sys/class/infiniband"
    return [(d, names("%s/%s/ports" % (top, d))) for d in names(top)]


def counter_files(folder: str) -> List[str]:
    """`counters` or `hw_counters` of all ports, and of devices."""
    found = []
    for device, ports in rdma_devices():
        places = ["/sys/class/infiniband/%s/ports/%s/%s" % (device, port, folder) for port in ports]
        places.append("/sys/class/infiniband/%s/%s" % (device, folder))
        for place in places:
            found += ["%s/%s" % (place, name) for name in names(place) if name != "lifespan"]
    return found


def port_files() -> List[str]:
    """State, rate and GIDs of all RDMA ports."""
    found = []
    for device, ports in rdma_devices():
        top = "/sys/class/infiniband/" + device
        found += [top + "/" + n for n in ("fw_ver", "hca_type", "board_id", "node_desc")]
        for port in ports:
            place = "%s/ports/%s" % (top, port)
            found += [place + "/" + n for n in ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")]
            for index in range(min(32, len(names(place + "/gids")))):
                found += ["%s/%s/%d" % (place, kind, index) for kind in ("gids", "gid_attrs/types", "gid_attrs/ndevs")]
    return found


def roce_files() -> List[str]:
    """Traffic class and ECN switches of RoCE."""
    found = ["/sys/class/infiniband/%s/tc/1/traffic_class" % d for d, _ in rdma_devices()]
    for nic in names("/sys/class/net"):
        for side in ("roce_np", "roce_rp"):
            top = "/sys/class/net/%s/ecn/%s" % (nic, side)
            found += ["%s/enable/%s" % (top, n) for n in names(top + "/enable")]
            found += ["%s/%s" % (top, n) for n in names(top) if n != "enable"]
    return found


_GROUP_FILES = """
    cpu.stat cpu.max cpu.weight cpu.pressure cpuset.cpus.effective cpuset.mems.effective memory.events memory.max
    memory.high memory.current memory.peak memory.pressure memory.swap.current io.pressure io.stat pids.current
    pids.max pids.events cgroup.events rdma.max rdma.current cpu.cfs_quota_us cpu.cfs_period_us
    memory.limit_in_bytes memory.usage_in_bytes memory.failcnt memory.oom_control cpuset.effective_cpus
""".split()


def group_mounts() -> Dict[str, str]:
    """Controller -> mount point of control groups; the unified hierarchy is the controller ''."""
    found: Dict[str, str] = {}
    for line in proc.text(proc.read("/proc/self/mountinfo")).splitlines():
        left, dash, right = line.partition(" - ")
        words = left.split()
        if not dash or len(words) < 5:
            continue
        kind = right.split()[0]
        if kind == "cgroup2":
            found.setdefault("", words[4])
        elif kind == "cgroup":
            for option in right.split()[-1].split(","):
                found.setdefault(option, words[4])
    return found


def group_folders(lines: str) -> List[str]:
    """Folders of the groups in a /proc/PID/cgroup text, and of those above them."""
    mounts = group_mounts()
    found: Dict[str, None] = {}
    for line in lines.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(",") if controllers else [""]:
            mount = mounts.get(controller)
            if mount is None or controller not in ("", "cpu", "memory", "cpuset", "pids", "blkio"):
                continue
            path = path if ".." not in path and os.path.isdir(mount + path) else "/"
            while True:
                found[(mount + path).rstrip("/")] = None
                if path in ("/", ""):
                    break
                path = os.path.dirname(path)
    return list(found)[:MAX_GROUPS]


def group_files(folders: List[str]) -> List[str]:
    """Files of these groups that exist."""
    return [p for f in folders for n in _GROUP_FILES for p in (f + "/" + n,) if os.path.exists(p)]


def gpu_count() -> int:
    """Number of NVIDIA GPUs that the driver shows."""
    return len(names("/proc/driver/nvidia/gpus")) or len([n for n in names("/dev") if re.match(r"nvidia\d+$", n)])

"""Facts about one process from /proc. Every function here may block on a sick host: call them in a child (discover)."""

import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

MAX_READ = 1 << 20
MAX_FDS = 2048
LIBRARY = re.compile(
    r"(libnccl[\w.-]*|librccl[\w.-]*|libtorch_cuda[\w.-]*|libtorch_hip[\w.-]*|libtorch_cpu[\w.-]*|libtorch\.so|libgloo[\w.-]*)"
)
"""Libraries that make a process one of a training job."""

RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
LOCAL_NAMES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
WORLD_NAMES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

ALLOWED_PREFIXES = tuple(
    """
    NCCL_ RCCL_ TORCH_ PYTORCH_ CUDA_ NVIDIA_ HIP_ ROCR_ HSA_ UCX_ FI_ OFI_ EFA_ GLOO_ TP_SOCKET_ OMPI_COMM_WORLD_
    OMPI_MCA_ PMI_ PMIX_RANK SLURM_ PET_ TORCHELASTIC_ LOCAL_ ROLE_ GROUP_ OMP_ MKL_ GOMP_ KMP_ SHARP_ MELLANOX_
    MLX5_ RDMAV_ IBV_ GDRCOPY_ DEEPSPEED_ ACCELERATE_ MEGATRON_ VC_ JOB_COMPLETION_
    """.split()
)
ALLOWED_NAMES = frozenset(
    """
    HOME HOSTNAME LD_LIBRARY_PATH LD_PRELOAD LSB_JOBID MASTER_ADDR MASTER_PORT NNODES NODE_NAME NODE_RANK
    NPROC_PER_NODE PBS_JOBID POD_NAME POD_NAMESPACE PYTHONFAULTHANDLER PYTHONUNBUFFERED RANK TMPDIR WORLD_SIZE
    XDG_CACHE_HOME
    """.split()
)
"""What of a rank's environment is kept; everything else stays where it is."""


def read(path: str, limit: int = MAX_READ) -> bytes:
    """The start of a file of /proc; empty when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return handle.read(limit)
    except OSError:
        return b""


def text(raw: bytes) -> str:
    """Bytes of the kernel as text that JSON can hold."""
    return raw.decode("utf-8", "replace")


def link(path: str) -> str:
    """Where a link of /proc points to; empty when that is not allowed."""
    try:
        return text(os.fsencode(os.readlink(path)))
    except OSError:
        return ""


def stat(pid: int) -> Optional[Dict[str, Any]]:
    """comm, state, ppid and start (clock ticks since boot) of a process; None when it is gone."""
    raw = read("/proc/%d/stat" % pid, 8192)
    head, found, rest = raw.rpartition(b")")
    fields = rest.split()
    if not found or len(fields) < 20:
        return None
    return {
        "pid": pid,
        "comm": text(head.partition(b"(")[2]),
        "state": text(fields[0]),
        "ppid": int(fields[1]),
        "threads": int(fields[17]),
        "start_ticks": int(fields[19]),
    }


def age(start_ticks: int) -> float:
    """Seconds since a process started; very many where /proc/uptime cannot be read."""
    uptime = text(read("/proc/uptime", 100)).split()
    return (float(uptime[0]) if uptime else time.time()) - start_ticks / float(os.sysconf("SC_CLK_TCK"))


def status(pid: int) -> Dict[str, Any]:
    """uid and the ids that a process has in nested containers."""
    found: Dict[str, Any] = {}
    for line in text(read("/proc/%d/status" % pid, 16384)).splitlines():
        key, _, value = line.partition(":")
        if key == "Uid":
            found["uid"] = int(value.split()[0])
        elif key == "NSpid":
            found["nspid"] = [int(part) for part in value.split()]
    return found


def environment(pid: int) -> Dict[str, str]:
    """The environment a process was started with (what it set itself later is not visible)."""
    found = {}
    for item in text(read("/proc/%d/environ" % pid)).split("\0"):
        name, equals, value = item.partition("=")
        if equals:
            found[name] = value
    return found


def allowed(name: str) -> bool:
    """Whether a variable may be kept by its name."""
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)


def first_number(env: Dict[str, str], names: Tuple[str, ...]) -> Optional[int]:
    """Value of the first of these variables that is set to a number."""
    for name in names:
        value = env.get(name, "")
        if value.isdigit() and len(value) < 8:
            return int(value)
    return None


def libraries(pid: int) -> List[str]:
    """Paths of the communication libraries that a process has mapped."""
    found: Dict[str, None] = {}
    for line in text(read("/proc/%d/maps" % pid, 64 << 20)).splitlines():
        slash = line.find("/")
        if slash > 0 and LIBRARY.search(line[line.rfind("/") + 1 :]):
            found[line[slash:].replace(" (deleted)", "")] = None
    return list(found)


def descriptors(pid: int) -> Dict[str, str]:
    """Open files: number -> target. Reading the link opens nothing."""
    folder = "/proc/%d/fd" % pid
    try:
        names = sorted(os.listdir(folder), key=lambda n: int(n) if n.isdigit() else 0)[:MAX_FDS]
    except OSError:
        return {}
    return {name: link(folder + "/" + name) for name in names}


def writes_to(pid: int, descriptor: str) -> bool:
    """Whether a process has a descriptor open for writing."""
    for line in text(read("/proc/%d/fdinfo/%s" % (pid, descriptor), 4096)).splitlines():
        if line.startswith("flags:"):
            return bool(int(line.split()[1], 8) & 3)
    return False


def inspect(pid: int) -> Optional[Dict[str, Any]]:
    """What is known of a process that could belong to a training job; None for all others."""
    found = stat(pid)
    if found is None or found["ppid"] == 2 or pid == 2:
        return None
    found.update(status(pid))
    found["exe"] = link("/proc/%d/exe" % pid)
    name = found["comm"] + " " + os.path.basename(found["exe"])
    env = environment(pid)
    ranked = first_number(env, RANK_NAMES) is not None
    if not ranked and "python" not in name and not name.startswith(("pt_", "ray::")):
        return None
    found["libraries"] = libraries(pid)
    handles = descriptors(pid)
    found["devices"] = sorted(
        {t for t in handles.values() if t.startswith(("/dev/nvidia", "/dev/infiniband/", "/dev/kfd"))}
    )
    if not found["libraries"] and not (ranked and found["devices"]):
        return None
    found["cmdline"] = [part for part in text(read("/proc/%d/cmdline" % pid, 65536)).split("\0") if part][:200]
    found["all_env"] = env
    found["env"] = {k: v for k, v in sorted(env.items()) if allowed(k)}
    found["rank"] = first_number(env, RANK_NAMES)
    found["local_rank"] = first_number(env, LOCAL_NAMES)
    found["world"] = first_number(env, WORLD_NAMES)
    found["cgroup"] = text(read("/proc/%d/cgroup" % pid, 65536))
    found["ns"] = {kind: link("/proc/%d/ns/%s" % (pid, kind)) for kind in ("pid", "mnt", "net", "uts")}
    found["cwd"] = link("/proc/%d/cwd" % pid)
    found["stdout"], found["stderr"] = handles.get("1", ""), handles.get("2", "")
    found["open_logs"] = [
        [number, target]
        for number, target in handles.items()
        if number not in ("0", "1", "2") and _log_like(target) and writes_to(pid, number)
    ][:20]
    return found


def _log_like(target: str) -> bool:
    name = os.path.basename(target).lower()
    return (
        target.startswith("/")
        and not target.startswith(("/dev/", "/proc/", "/sys/"))
        and (name.endswith((".log", ".out", ".err", ".txt")) or "nccl" in name or ".log." in name)
    )

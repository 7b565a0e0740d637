"""What the processes, the launcher and the kernel print: NCCL's start, training steps, time-outs, exits, Xids, links."""

from __future__ import annotations

import time
from random import Random

from .dumps import Clock
from .execution import Call
from .faults import Run

OPS = {"all_reduce": "ALLREDUCE", "_all_gather_base": "_ALLGATHER_BASE", "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
       "all_to_all": "ALLTOALL_BASE", "broadcast": "BROADCAST", "barrier": "ALLREDUCE", "send": "SEND", "recv": "RECV"}  # fmt: skip


def host_logs(run: Run, rng: Random, clock: Clock, timeout_ms: int, *, nccl: bool = True) -> dict[str, list[str]]:
    """The job's output of every host."""
    layout = run.layout
    end = max(clock.at(0, len(calls)) for calls in run.outcome.calls)
    fired = end + timeout_ms / 1000
    commid = rng.getrandbits(63)
    logs: dict[str, list[str]] = {h: [] for h in layout.hosts}
    if nccl:
        for rank in range(layout.world):
            logs[layout.host(rank)] += _nccl_start(run, rank, commid)
    for rank in range(layout.world):
        steps = len(run.outcome.calls[rank]) // 20
        logs[layout.host(rank)] += [
            f"[rank{rank}]: step {s} loss {2.9 - s * 0.01:.3f} time {0.8 + rank % 7 * 0.001:.3f}s" for s in range(min(steps, 3))
        ]  # fmt: skip
    if run.truth.fault == "healthy":
        return logs
    for rank in range(layout.world):
        if rank in run.truth.crashed:
            continue
        call = _timed_out(run.outcome.calls[rank])
        if call is not None:
            logs[layout.host(rank)] += _watchdog(run, rank, call, fired + rank % 13 * 0.01, timeout_ms)
    for rank in sorted(run.truth.crashed):
        logs[layout.host(rank)] += _exit(layout.host(rank), rank, layout.per_host, end, rng)
    if run.truth.fault == "dead-nic" and run.truth.host:
        logs[run.truth.host] += _completion_errors(run, run.truth.host, end, rng)
    return logs


def kernel_log(run: Run, rng: Random, clock: Clock) -> list[str]:
    """`dmesg -T` of the host of a hung GPU or dead NIC."""
    at = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(clock.base))
    lines = [f"[{at}] systemd[1]: Started Session 12 of User trainer."]
    if run.truth.fault == "hung-gpu":
        rank = min(run.truth.ranks)
        bus = f"{0x1B + rank % run.layout.per_host * 0x20 & 0xFF:02x}"
        lines.append(
            f"[{at}] NVRM: Xid (PCI:0000:{bus}:00): 119, pid={4000 + rank}, name=python3, Timeout after 6s of waiting for"
            " RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL)."
        )
    else:
        lines.append(f"[{at}] mlx5_core 0000:5e:00.0 ens5f0np0: Link down")
    return lines


def _nccl_start(run: Run, rank: int, commid: int) -> list[str]:
    layout = run.layout
    host, local = layout.host(rank), rank % layout.per_host
    head = f"{host}:{4000 + rank}:{4000 + rank} [{local}] NCCL INFO"
    return [
        f"{head} ncclCommInitRankConfig comm 0x55{rank:08x} rank {rank} nranks {layout.world} cudaDev {local}"
        f" nvmlDev {local} busId {0x1B000 + local * 0x20000:x} commId 0x{commid:x} - Init COMPLETE",
    ]


def _timed_out(calls: list[Call]) -> Call | None:
    return next((c for c in calls if c.key and not c.done), None)


def _stamp(at: float) -> str:
    return time.strftime("%m%d %H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e9):09d}"


def _watchdog(run: Run, rank: int, call: Call, at: float, timeout_ms: int) -> list[str]:
    group = run.layout.of[rank][call.op.dim]
    inner = group.ranks.index(rank)
    mine = sorted(run.layout.of[rank].values(), key=lambda g: int(g.name))
    local = [g.name for g in mine].index(group.name)
    same = [c for c in run.outcome.calls[rank] if c.group == group.name and c.op.transfer == call.op.transfer]
    completed = max((c.number for c in same if c.done), default=-1)
    numel = [_numel(s) for s in (call.op.in_size, call.op.out_size)]
    elapsed = timeout_ms + 40 + rank % 50
    head = f"[rank{rank}]:[E{_stamp(at)} ProcessGroupNCCL.cpp"
    return [
        f"{head}:632] [Rank {inner}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={call.number}, OpType="
        f"{OPS[call.op.name]}, NumelIn={numel[0]}, NumelOut={numel[1]}, Timeout(ms)={timeout_ms}) ran for {elapsed}"
        " milliseconds before timing out.",
        f"{head}:2271] [PG ID {local} PG GUID {group.name}({group.desc}) Rank {inner}]  failure detected by watchdog at work"
        f" sequence id: {call.number} PG status: last enqueued work: {same[-1].number}, last completed work: {completed}",
    ]


def _numel(size: tuple[int, ...]) -> int:
    total = 1
    for n in size:
        total *= n
    return total


def _exit(host: str, rank: int, per_host: int, at: float, rng: Random) -> list[str]:
    if rng.random() < 0.5:
        signal, name = rng.choice(((9, "SIGKILL"), (11, "SIGSEGV"), (7, "SIGBUS")))
        stamp = time.strftime("%Y-%m-%d_%H:%M:%S", time.gmtime(at))
        border = "=" * 60
        return [
            border, "train.py FAILED", "-" * 60, "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60,
            "Root Cause (first observed failure):", "[0]:", f"  time      : {stamp}", f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {rank % per_host})", f"  exitcode  : -{signal} (pid: {4000 + rank})",
            "  error_file: <N/A>", f"  traceback : Signal {signal} ({name}) received by PID {4000 + rank}", border,
        ]  # fmt: skip
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/train/train.py", line 41, in <module>',
        f"[rank{rank}]:     main()",
        f'[rank{rank}]:   File "/opt/train/data.py", line 173, in __getitem__',
        f"[rank{rank}]:     return self.samples[index]",
        f"[rank{rank}]: IndexError: list index out of range",
    ]


def _completion_errors(run: Run, host: str, at: float, rng: Random) -> list[str]:
    layout = run.layout
    ranks = [r for r in range(layout.world) if layout.host(r) == host]
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at + 20))
    return [
        f"[{stamp}] {host}:{4000 + r}:{5000 + r} [{r % layout.per_host}] transport/net_ib/p2p.cc:331 NCCL WARN NET/IB : Got"
        f" completion from peer 10.20.{r % 250}.{r // 250 + 1}<{40000 + r}> with status=IBV_WC_RETRY_EXC_ERR(12)"
        " opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send"
        f" localGid ::ffff:10.20.1.{r % 250 + 1} remoteGids::ffff:10.20.2.{r % 250 + 1} hca mlx5_{r % layout.per_host}"
        for r in ranks[: rng.randrange(1, 3)]
    ]

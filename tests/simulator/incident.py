"""One incident: a job, a fault, and the evidence that a user would send; the truth stays outside of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from . import dumps, logs, ras
from .faults import MAKERS, Run, broken, healthy, twice
from .layout import draw

EVIDENCE = {"dumps+logs": 42, "dumps": 26, "logs": 10, "ras": 10, "partial": 10, "few": 2}
"""Shares. `partial`: dumps are missing or cut, logs end with their last 200 lines; `few`: what three ranks left."""
KERNEL = {"dumps+logs": 0.95, "partial": 0.95}
KERNEL_ELSE = 0.85
"""How often the kernel log of a host whose NIC or GPU failed is there: what was collected on the hosts nearly always has
it, what users send of single kinds less often."""
DEVICES = ("dmesg", "hw_counters", "nvidia-smi")
RANKS = ("nccl_trace", "py-spy", "FR_BUFFER", "stdout", "tail", "dump")


@dataclass
class Incident:
    """Files of the bundle, and what happened. `full`: the evidence is complete for its kind; `answers`: sets of ranks that
    are a right answer; `may_pass`: nothing in the evidence names them, so that "cannot tell" is right; `asks`: the command
    that would decide it holds one of these words."""

    seed: int
    files: dict[str, bytes]
    fault: str
    evidence: str
    world: int
    answers: list[set[int]]
    host: str | None = None
    full: bool = True
    may_pass: bool = False
    asks: tuple[str, ...] = RANKS

    def write(self, folder: Path) -> Path:
        """The bundle as files."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


def incident(seed: int, largest: int = 4096) -> Incident:
    """The incident of a seed."""
    rng = Random(seed)
    while True:
        layout = draw(rng, 8, largest)
        evidence = rng.choices(list(EVIDENCE), list(EVIDENCE.values()))[0]
        if evidence == "ras" and (layout.world > 512 or layout.pp > 1):  # RAS does not count transfers
            continue
        run = _run(rng, layout, evidence)
        if run is not None:
            return _evidence(seed, rng, run, evidence)


def _run(rng: Random, layout: object, evidence: str) -> Run | None:
    from .layout import Layout

    assert isinstance(layout, Layout)
    draws = rng.random()
    if draws < 0.08:
        return healthy(rng, layout, calm=evidence in ("dumps", "partial") or rng.random() < 0.3)
    if draws < 0.16:
        return twice(rng, layout)
    names = list(MAKERS)
    name = rng.choices(names, [MAKERS[n][1] for n in names])[0]
    if evidence in ("logs", "ras", "few") and name in ("order", "skip", "extra", "rank0-barrier", "size", "dtype"):
        return None
    return broken(rng, layout, name)


def _evidence(seed: int, rng: Random, run: Run, evidence: str) -> Incident:
    layout, truth = run.layout, run.truth
    how = dumps.style(rng)
    clock = dumps.Clock(rng, layout, rng.choice((0.0, 0.01, 2.0, 55.0)))
    timeout_ms = rng.choice((600_000, 600_000, 1_800_000, 180_000))
    made = Incident(seed, {}, truth.fault, evidence, layout.world, [set(truth.ranks)], truth.host)
    if evidence in ("dumps+logs", "dumps", "partial", "few"):
        _add_dumps(made, rng, run, how, clock, timeout_ms, partial=evidence == "partial")
    told = evidence in ("dumps+logs", "logs", "partial", "few") or (evidence == "ras" and rng.random() < 0.7)
    hardware = truth.fault in ("dead-nic", "hung-gpu")
    silent = made.evidence == "dumps" and rng.random() < 0.15
    if told or (truth.crashed and not silent):
        _add_logs(made, rng, run, clock, timeout_ms)
    kernel = hardware and rng.random() < KERNEL.get(evidence, KERNEL_ELSE)
    if hardware:
        made.asks = DEVICES
    if kernel:
        made.files[f"{truth.host}/dmesg.txt"] = _text(logs.kernel_log(run, rng, clock))
    if evidence == "ras":
        _add_ras(made, rng, run, clock)
    _settle(made, run, how, told=told, kernel=kernel)
    made.may_pass |= bool(truth.crashed) and not told and silent
    return made


def _add_dumps(
    made: Incident, rng: Random, run: Run, how: dumps.Style, clock: dumps.Clock, timeout_ms: int, *, partial: bool
) -> None:
    lost = rng.choice((0.1, 0.3)) if partial else 0.0
    cut = rng.choice((0.0, 0.1)) if partial else 0.0
    per_host = rng.random() < 0.3
    for rank in range(run.layout.world):
        if rank in run.truth.crashed:
            continue
        if rank not in run.truth.ranks and rng.random() < lost:
            continue
        data = dumps.dump(run, rank, how, clock, timeout_ms)
        if rank not in run.truth.ranks and rng.random() < cut:
            data = data[: len(data) * 2 // 3]
        name = how.name.format(rank=rank)
        made.files[f"{run.layout.host(rank)}/{name}" if per_host else name] = data
    if partial and run.layout.world > 8 and rng.random() < 0.2:
        twin = rng.randrange(run.layout.world)
        name = how.name.format(rank=twin)
        if name in made.files and twin not in run.truth.ranks:
            made.files[f"copy/{name}"] = made.files[name]


def _add_logs(made: Incident, rng: Random, run: Run, clock: dumps.Clock, timeout_ms: int) -> None:
    texts = logs.host_logs(run, rng, clock, timeout_ms)
    last = 200 if made.evidence in ("partial", "few") else None
    for host, lines in texts.items():
        made.files[f"{host}/train.log"] = _text(lines[-last:] if last else lines)


def _add_ras(made: Incident, rng: Random, run: Run, clock: dumps.Clock) -> None:
    if rng.random() < 0.6:
        for n in (0, 1):
            at = replace(run, outcome=run.later) if n and run.later else run
            made.files[f"ras.t{n}.json"] = _text(ras.as_json(at, clock, n * 40.0, comma=rng.random() < 0.5))
    else:
        for n in (0, 1):
            at = replace(run, outcome=run.later) if n and run.later else run
            made.files[f"ras.t{n}.txt"] = _text(ras.as_text(at))


def _settle(made: Incident, run: Run, how: dumps.Style, *, told: bool, kernel: bool) -> None:
    """Which answers are right, given what was sent."""
    truth = run.truth
    made.full = made.evidence not in ("partial", "few")
    if made.evidence == "few":
        _only_few(made, run)
    if made.evidence in ("logs", "few") and run.layout.kind not in ("ddp", "fsdp") and not truth.crashed:
        made.may_pass = True  # the logs do not tell who belongs to a group
    if made.evidence == "ras" and truth.crashed:
        made.answers.append(set(truth.crashed))  # whom RAS calls dead; of others it cannot tell whether they wait
    if truth.fault == "healthy":
        made.answers = [set()]
    elif truth.fault == "dead-nic":
        made.answers = [set()]
        made.may_pass = not told
    elif truth.fault == "hung-gpu":
        seen = how.timing and made.evidence in ("dumps", "dumps+logs", "partial")
        made.answers = [set(truth.ranks), set()] if kernel else [set(truth.ranks)]
        made.may_pass = not (kernel or seen)


def _only_few(made: Incident, run: Run) -> None:
    """Three ranks' dumps and the log of one host remain."""
    rng = Random(made.seed)
    dumped = [n for n in made.files if "rank" in n or "_dump_" in n]
    others = [n for n in made.files if n.endswith("train.log")]
    keep = {*rng.sample(dumped, min(3, len(dumped))), *rng.sample(others, min(1, len(others)))}
    made.files = {n: c for n, c in made.files.items() if n in keep or n.endswith("dmesg.txt")}
    made.may_pass, made.full = True, False


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()

"""The same report byte for byte, whichever way a bundle is read: processes, a Dask cluster, another order, copies."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from distributed import LocalCluster

from diagnose import bundle, cluster, intake, packs
from diagnose.intake import Batch, Parsed
from diagnose.model import Diagnosis
from diagnose.report.jsonform import to_json
from diagnose.run import NothingAnalysed, Options, analyse
from tests.simulator import dumps, faults, layout, logs

NO_SITE = Path(__file__).parents[1] / "fixtures" / "site" / "none.toml"
PARSERS = packs.load_parsers()
WORLD = 64


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """Dumps of 64 ranks in a folder per host, logs (one of them packed), one damaged dump; and the guilty ranks."""
    folder = tmp_path_factory.mktemp("job")
    rng = Random(11)
    run = None
    while run is None or run.layout.kind != "megatron":
        run = faults.broken(rng, layout.draw(rng, WORLD, WORLD), "sleep")
    made = run.layout
    style = replace(dumps.style(rng), name="nccl_trace_rank_{rank}", form="pickle", ring=200, only_active=False)
    clock = dumps.Clock(rng, made, 0.0)
    for rank in range(WORLD):
        host = folder / made.host(rank)
        host.mkdir(exist_ok=True)
        (host / style.name.format(rank=rank)).write_bytes(dumps.dump(run, rank, style, clock, 600_000))
    for n, (host, lines) in enumerate(logs.host_logs(run, rng, clock, 600_000).items()):
        text = ("\n".join(lines) + "\n").encode()
        if n:
            (folder / host / "train.log").write_bytes(text)
        else:
            (folder / host / "train.log.gz").write_bytes(gzip.compress(text, mtime=0))
    innocent = next(r for r in range(WORLD) if r not in run.truth.ranks)
    (folder / f"nccl_trace_rank_{innocent}_broken").write_bytes(
        b"\x80\x02}(X\x09\x00\x00\x00pg_configX\x07\x00\x00\x00entries\xff"
    )
    return folder, run.truth.ranks


@pytest.fixture(autouse=True)
def many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bundles are read like large ones, in many batches."""
    monkeypatch.setattr(intake, "PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr(intake, "BATCH_FILES", 5)


def diagnosis(*paths: Path, jobs: int = 1, scheduler: str | None = None) -> Diagnosis:
    return analyse([str(p) for p in paths], Options(site=NO_SITE, jobs=jobs, scheduler=scheduler))


@pytest.fixture(scope="module")
def expected(job: tuple[Path, set[int]]) -> str:
    """The report of one process."""
    found = diagnosis(job[0])
    assert {int(s.name) for s in found.findings[0].subjects if s.kind == "rank"} == job[1]
    assert [Path(str(p.source)).name.endswith("_broken") for p in found.problems] == [True]
    return to_json(found)


@pytest.mark.parametrize("jobs", [2, 4])
def test_processes(jobs: int, job: tuple[Path, set[int]], expected: str) -> None:
    assert to_json(diagnosis(job[0], jobs=jobs)) == expected


def test_a_cluster_that_was_started_for_it(job: tuple[Path, set[int]], expected: str) -> None:
    assert to_json(diagnosis(job[0], scheduler=cluster.LOCAL)) == expected


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a scheduler on this machine, with two workers."""
    made: Any = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    yield made.scheduler_address
    made.close()


def test_a_scheduler_given_to_the_command_line(scheduler: str, job: tuple[Path, set[int]], expected: str) -> None:
    command = [sys.executable, "-m", "diagnose", "analyze", str(job[0]), "--format", "json", "--site", str(NO_SITE)]
    done = subprocess.run([*command, "--scheduler", scheduler], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1, 3), done.stderr
    assert done.stdout == expected
    assert done.stderr == ""


def test_a_scheduler_that_is_not_there_has_a_reason(job: tuple[Path, set[int]]) -> None:
    with pytest.raises(cluster.NoCluster, match="no Dask scheduler"), cluster.mapper("tcp://127.0.0.1:9", 2.0):
        pass


def test_workers_that_fail_have_a_reason(scheduler: str, job: tuple[Path, set[int]]) -> None:
    with cluster.mapper(scheduler) as mapper, pytest.raises(cluster.NoCluster, match="ZeroDivisionError"):
        list(mapper(broken, [((), (), None)]))


def broken(batch: Batch) -> list[Parsed]:
    raise ZeroDivisionError(batch)


def test_paths_in_another_order(job: tuple[Path, set[int]]) -> None:
    hosts = sorted(p for p in job[0].iterdir() if p.is_dir())
    assert to_json(diagnosis(*reversed(hosts), jobs=2)) == to_json(diagnosis(*hosts))


@pytest.mark.parametrize("seed", range(3))
def test_batches_that_end_in_another_order(seed: int, job: tuple[Path, set[int]]) -> None:
    """Workers finish in any order; what they found is merged in that of the sources."""

    def mapper(function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> list[list[Parsed]]:
        order = list(range(len(batches)))
        Random(seed).shuffle(order)
        done = dict(zip(order, intake._Processes(2)(function, [batches[i] for i in order]), strict=True))
        return [done[i] for i in range(len(batches))]

    with bundle.open_bundle([str(job[0])], PARSERS) as opened:
        readable = [s for s in opened.sources if s.kinds]
        assert intake.parse_all(readable, PARSERS, mapper=mapper) == intake.parse_all(readable, PARSERS, jobs=1)


def test_sources_in_another_order_say_the_same(job: tuple[Path, set[int]]) -> None:
    with bundle.open_bundle([str(job[0])], PARSERS) as opened:
        readable = [s for s in opened.sources if s.kinds]
        shuffled = Random(3).sample(readable, len(readable))
        found, problems = intake.parse_all(shuffled, PARSERS, jobs=2)
        expected, same = intake.parse_all(readable, PARSERS, jobs=1)
    assert [s.id for s, _ in found] == [s.id for s in shuffled]
    by_id = {s.id: (s, records) for s, records in found}
    assert [by_id[s.id] for s, _ in expected] == expected
    assert problems == same


def test_copies_change_no_verdict(job: tuple[Path, set[int]], tmp_path: Path) -> None:
    """A path given twice, and copies in another folder, make nobody else guilty and no verdict surer."""
    shutil.copytree(job[0], tmp_path / "copy")
    alone = verdicts(diagnosis(job[0]))
    assert verdicts(diagnosis(job[0], job[0], jobs=2)) == alone
    assert verdicts(diagnosis(job[0], tmp_path / "copy", jobs=2)) == alone


def verdicts(found: Diagnosis) -> list[object]:
    return [(f.id, f.subjects, f.severity, f.confidence, f.summary) for f in found.findings if f.severity != "info"]


def test_an_unreachable_scheduler_ends_the_analysis_with_its_reason(
    job: tuple[Path, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(NothingAnalysed, match=r"nccl-diagnose\[cluster\]"):
        diagnosis(job[0], scheduler="tcp://127.0.0.1:9")

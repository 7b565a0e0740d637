"""Sources become the same records in one process, in several, and wherever a mapper runs the batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from diagnose import bundle, cluster, intake, packs
from diagnose.intake import Batch, Parsed
from tests.simulator import dumps, faults, layout

PARSERS = packs.load_parsers()


def job(folder: Path) -> None:
    """Sixteen dumps and a log."""
    rng = Random(5)
    made = layout.draw(rng, 16, 16)
    run = faults.broken(rng, made, "sleep")
    assert run
    style, clock = dumps.style(rng), dumps.Clock(rng, made, 0.0)
    for rank in range(made.world):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(dumps.dump(run, rank, style, clock, 600_000))
    (folder / "train.log").write_text("[rank3]: IndexError: list index out of range\n" * 3)


def records(folder: Path, jobs: int | None = None, mapper: intake.Mapper | None = None) -> object:
    with bundle.open_bundle([str(folder)], PARSERS) as opened:
        found, problems = intake.parse_all(
            [s for s in opened.sources if s.kinds], PARSERS, jobs=jobs, mapper=mapper
        )  # fmt: skip
        return [(s.path, s.status, s.line_count, r) for s, r in found], problems


def test_processes_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path)
    alone = records(tmp_path, jobs=1)
    monkeypatch.setattr(intake, "PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr(intake, "BATCH_FILES", 3)
    assert records(tmp_path, jobs=2) == alone


def test_a_mapper_gets_batches_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path)
    alone = records(tmp_path, jobs=1)
    monkeypatch.setattr(intake, "BATCH_FILES", 4)
    sizes: list[int] = []

    def mapper(function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> Iterator[list[Parsed]]:
        for batch in batches:
            sizes.append(len(batch[0]))
            yield cluster.elsewhere(function, batch, cluster.contents_of(batch[0]))

    assert records(tmp_path, mapper=mapper) == alone
    assert sizes == [4, 4, 4, 4, 1]


def test_without_dask_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(cluster.NoCluster, match=r"nccl-diagnose\[cluster\]"), cluster.mapper("local"):
        pass


def test_a_file_that_is_gone_is_a_problem_wherever_it_was_to_be_read(tmp_path: Path) -> None:
    job(tmp_path)

    def mapper(function: Callable[[Batch], list[Parsed]], batches: Sequence[Batch]) -> Iterator[list[Parsed]]:
        return (cluster.elsewhere(function, batch, cluster.contents_of(batch[0])) for batch in batches)

    with bundle.open_bundle([str(tmp_path)], PARSERS) as opened:
        readable = [s for s in opened.sources if s.kinds]
        for name in ("train.log", "nccl_trace_rank_3"):
            (tmp_path / name).unlink()
        alone = intake.parse_all(readable, PARSERS, jobs=1)
        assert intake.parse_all(readable, PARSERS, mapper=mapper) == alone
    told = {problem.source: problem.text for problem in alone[1]}
    assert {Path(str(source)).name for source in told} == {"train.log", "nccl_trace_rank_3"}
    assert all("No such file" in text for text in told.values())


def test_binary_sources_have_a_text(tmp_path: Path) -> None:
    job(tmp_path)
    with bundle.open_bundle([str(tmp_path)], PARSERS) as opened:
        by_name = {s.name: s for s in opened.sources}
        text = intake.text_of(by_name["nccl_trace_rank_3"], PARSERS)
        assert text is not None
        assert text[0].text.startswith("flight-recorder dump")
        assert intake.text_of(by_name["train.log"], PARSERS) is None

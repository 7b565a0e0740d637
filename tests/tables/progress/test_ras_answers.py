"""RAS answers met twice, and processes that gave RAS no data."""

from __future__ import annotations

from diagnose import facts, packs
from diagnose.model import Digest, Fact, Line, Record, Source
from diagnose.tables import progress

PARSER = packs.load_file(packs.builtin("parsers") / "nccl_ras" / "__init__.py")
HEAD = """NCCL version 2.27.3 compiled with CUDA 12.9
Communicators... (0.00s)
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
AHEAD = (
    HEAD
    + """    0         1         4         8        32        32   RUNNING  MISMATCH
#0-0 (a0b1c2d3e4f50617) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 3032 on node 192.0.2.14
  Rank 13 -- GPU 5 managed by process 3033 on node 192.0.2.14
"""
)
ROW = "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n"
INCOMPLETE = (
    HEAD
    + ROW
    + """INCOMPLETE
  Missing communicator data from 1 job process
  Process 6004 on node 192.0.2.13 managing GPU 0
#0-0 (b0b1c2d3e4f50617) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 1 -- GPU 0 managed by process 6004 on node 192.0.2.13
"""
)
WHOLE = HEAD + "    0         1         1         2         2         2   RUNNING      OK\n"


def derived(*texts: tuple[str, str, int | None]) -> list[Fact]:
    """Facts of texts given as name, content and number of the snapshot."""
    read: list[tuple[Source, list[Record | Digest]]] = []
    for n, (name, text, snapshot) in enumerate(texts):
        source = Source(f"s{n}", name, snapshot=snapshot)
        lines = [Line(i, t) for i, t in enumerate(text.splitlines(), 1)]
        read.append((source, list(PARSER.parse(lines, source))))
    return list(progress.derive(facts.build(read)))  # type: ignore[arg-type]


def silent(found: list[Fact]) -> list[Fact]:
    return [f for f in found if f.kind == "suspect_rank" and f.fields["reason"] == "no_answer"]


def test_one_answer_under_two_names_is_one_moment() -> None:
    found = derived(("a.txt", AHEAD, None), ("b.txt", AHEAD, None))
    assert [f.fields["verdict"] for f in found if f.kind == "stall"] == ["snapshot"]


def test_files_that_are_numbered_are_two_moments() -> None:
    found = derived(("ras.t0.txt", AHEAD, 0), ("ras.t1.txt", AHEAD, 1))
    assert [f.fields["verdict"] for f in found if f.kind == "stall"] == ["ahead"]


def test_a_process_without_data_is_named_by_host_and_process() -> None:
    (suspect,) = silent(derived(("ras.txt", INCOMPLETE, None)))
    assert suspect.fields["who"] == "Process 6004 (GPU 0) on 192.0.2.13"
    assert (suspect.fields["host"], suspect.fields["pid"]) == ("192.0.2.13", 6004)
    assert "rank" not in suspect.fields


def test_an_answer_cut_after_its_table_tells_that_somebody_is_silent() -> None:
    (suspect,) = silent(derived(("ras.txt", HEAD + ROW, None)))
    assert suspect.fields["who"] == "A process of the job"


def test_a_process_that_answers_later_is_not_silent() -> None:
    assert not silent(derived(("ras.t0.txt", INCOMPLETE, 0), ("ras.t1.txt", WHOLE, 1)))


def test_counts_that_moved_between_two_answers_are_progress() -> None:
    later = AHEAD.replace("operation 640", "operation 700").replace("operation 641", "operation 701")
    moved = [f for f in derived(("ras.1.txt", AHEAD, 1), ("ras.2.txt", later, 2)) if f.kind == "ras_progress"]
    assert [(f.fields["op"], f.fields["seq"]) for f in moved] == [("AllGather", 701)]
    assert not [f for f in derived(("ras.1.txt", AHEAD, 1), ("ras.2.txt", AHEAD, 2)) if f.kind == "ras_progress"]

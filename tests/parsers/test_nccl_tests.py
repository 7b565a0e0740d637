"""nccl-tests tables: column sets, several runs, the figures that matter."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("nccl_tests")


def benches(name: str, file: str = "x.txt") -> list[Record]:
    return of(run(parser, fixture("nccl_tests", name), file), "bench_nccl")


def test_largest_size_counts_not_the_average() -> None:
    (record,) = benches("healthy.txt")
    f = record.fields
    assert (f["op"], f["ranks"], f["nodes"], f["gpu"]) == ("all_reduce", 4, 2, "NVIDIA H100 80GB HBM3")
    assert (f["max_bytes"], f["busbw_gbps"], f["algbw_gbps"]) == (8 * 2**30, 365.01, 243.34)
    assert (f["avg_busbw_gbps"], f["wrong"], f["complete"], f["ranks_zero_headers"]) == (361.4, 0, True, 1)
    assert record.host is None
    assert 16 in [e.first for e in record.evidence]


def test_old_columns_and_operations_without_a_name() -> None:
    first, second = benches("old-columns.txt")
    assert (first.fields["op"], first.fields["busbw_gbps"]) == ("all_reduce", 114.39)
    assert "wrong" not in first.fields, "validation was off"
    assert (second.fields["op"], second.fields["busbw_gbps"]) == ("alltoall or all_gather", 56.55)
    (named, _) = benches("old-columns.txt", "reduce_scatter_perf.txt")
    assert named.fields["op"] == "reduce_scatter"


def test_every_process_alone() -> None:
    (record,) = benches("sick-no-mpi.txt")
    f = record.fields
    assert (f["op"], f["ranks"], f["ranks_zero_headers"], f["busbw_gbps"]) == ("all_gather", 1, 2, 0.0)
    assert record.host == "gpu-b01"


def test_wrong_results_behind_launcher_prefixes() -> None:
    (record,) = benches("sick-wrong-srun.txt")
    assert (record.fields["wrong"], record.fields["busbw_gbps"], record.fields["ranks"]) == (20, 11.09, 2)
    assert [e.first for e in record.evidence] == [6, 8, 2]


def test_cut_and_failed_runs_are_not_complete() -> None:
    (cut,) = benches("truncated.txt")
    assert (cut.fields["complete"], cut.fields["max_bytes"]) == (False, 2**30)
    (failed,) = benches("dirty.txt")
    assert failed.fields["op"] == "sendrecv"
    assert failed.fields["complete"] is False
    assert "busbw_gbps" not in failed.fields


def test_summary_without_its_table() -> None:
    (record,) = run(
        parser, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 33.3227 \n#\n", "all_gather_perf.txt"
    )
    assert dict(record.fields) == {"op": "all_gather", "avg_busbw_gbps": 33.3227, "complete": False}


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("nccl_tests"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


def test_rows_with_tags_of_mpirun_inside_and_a_bandwidth_that_falls() -> None:
    text = """[0]#  size  count  type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
[0]   33554432    8388608  float  sum  -1[0]  2180.1   15.39   29.50   0[0]  2285.2   14.68   28.14   0
[0] 1073741824  268435456  float  sum  -1[0]  387000    2.77    5.31   0[0]  386000    2.78    5.33   0
[0]# Avg bus bandwidth    : 17.1
"""
    (found,) = run(parser, text)
    got = [found.fields[n] for n in ("max_bytes", "busbw_gbps", "peak_bytes", "peak_busbw_gbps", "wrong")]
    assert got == [1073741824, 5.33, 33554432, 29.5, 0]
    assert 2 in [e.first for e in found.evidence]


@settings(max_examples=80, deadline=None)
@given(hostile("nccl_tests"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)


def test_failed_runs_say_what_nccl_returned_and_its_last_error() -> None:
    text = (
        "# nThreads: 1 nGpus: 2 nRanks: 1 minBytes: 8 maxBytes: 1024 step: 2(factor) warmupIters: 5 iters: 20\n"
        "gpu-b01: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
        " .. gpu-b01 pid 61000: Test failure common.cu:842\n"
        "gpu-b01: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '\n"
        "gpu-b02: Test NCCL failure common.cu:1001 'unhandled cuda error / Cuda failure 101 'invalid device ordinal''\n"
    )
    records = run(parser, text)
    first, second = of(records, "bench_error")
    assert (first.host, first.fields) == ("gpu-b01", {"result": "unhandled system error", "file": "common.cu:958"})
    assert second.host == "gpu-b02"
    assert second.fields["last_error"] == "Cuda failure 101 'invalid device ordinal'"
    assert [e.first for e in second.evidence] == [5]
    assert len(of(records, "bench_nccl")) == 1, "rccl-tests heads its runs with colons"
    assert parser.sniff("x: Test NCCL failure common.cu:1285 'internal error'", "out") == 0.9

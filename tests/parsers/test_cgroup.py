"""Files of control groups, however they were pasted."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("cgroup")


def records(name: str) -> list[Record]:
    return run(parser, fixture("cgroup", name))


def test_two_levels_of_a_pod_are_two_groups() -> None:
    pod, container = of(records("sick-prompt.txt"), "cgroup_cpu")
    assert pod.fields["path"] == "/kubepods.slice/kubepods-pod0a0b.slice"
    assert (pod.fields["quota_cores"], pod.fields["nr_throttled"], pod.fields["throttled_share"]) == (16.0, 2500, 0.25)
    assert pod.fields["throttled_s"] == 750.0
    assert [(e.first, e.last) for e in pod.evidence] == [(6, 8), (2, 2)]
    assert str(container.fields["path"]).endswith("/cri-containerd-77.scope")
    assert (container.fields["nr_periods"], "quota_cores" in container.fields) == (9000, False)


def test_grep_prefixes() -> None:
    found = records("sick-grep.txt")
    (cpu,) = of(found, "cgroup_cpu")
    assert dict(cpu.fields) == {"path": "/system.slice/slurmstepd.scope/job_7", "unlimited": True}
    (memory,) = of(found, "cgroup_memory")
    assert (memory.fields["oom_kill"], memory.fields["max_bytes"]) == (2, 2**30)
    pressure = {(r.fields["path"], r.fields["resource"]): r.fields for r in of(found, "pressure")}
    assert pressure[("/system.slice/slurmstepd.scope/job_7", "cpu")]["full_avg10"] == 32.0
    assert pressure[("host", "io")]["some_avg10"] == 7.5


def test_version_1_units() -> None:
    found = records("v1-headers.txt")
    (cpu,) = of(found, "cgroup_cpu")
    assert cpu.fields["path"] == "/slurm/uid_1001/job_9"
    assert (cpu.fields["quota_cores"], cpu.fields["throttled_s"]) == (4.0, 5.0), "throttled_time is nanoseconds"
    assert not of(found, "cgroup_memory"), "the largest page count means no limit"


def test_snapshots_in_one_text_are_numbered() -> None:
    cpu = of(records("healthy-twice.txt"), "cgroup_cpu")
    assert [(r.fields["snapshot"], r.fields["nr_periods"]) for r in cpu] == [(0, 100), (1, 200)]
    pressure = {r.fields["resource"]: r.fields for r in of(records("healthy-twice.txt"), "pressure")}
    assert (pressure["cpu"]["some_avg10"], pressure["memory"]["full_avg10"]) == (1.0, 1.5)


def test_lone_content_belongs_to_the_job() -> None:
    found = records("dirty-alone.txt")
    (cpu,) = of(found, "cgroup_cpu")
    assert (cpu.fields["path"], cpu.fields["throttled_share"]) == ("job", 0.5)
    assert not of(found, "pressure"), "nothing tells which resource"


def test_lone_file_is_known_by_its_name() -> None:
    assert parser.sniff("1600000 100000\n", "cpu.max.txt") >= 0.5
    (cpu,) = of(run(parser, "1600000 100000\n", "cpu.max.txt"), "cgroup_cpu")
    assert dict(cpu.fields) == {"path": "job", "quota_cores": 16.0, "unlimited": False}
    (memory,) = of(run(parser, "4096\n", "n1/memory.current"), "cgroup_memory")
    assert memory.fields["current_bytes"] == 4096
    assert not run(parser, "1600000 100000\n", "numbers.txt")


def test_truncated_file() -> None:
    (cpu,) = of(records("truncated.txt"), "cgroup_cpu")
    assert dict(cpu.fields) == {"path": "job", "nr_periods": 50}


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("cgroup"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


@settings(max_examples=80, deadline=None)
@given(hostile("cgroup"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)

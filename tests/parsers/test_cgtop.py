"""systemd-cgtop: iterations, unknown values, shares."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Fields, Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("cgtop")


def groups(name: str) -> dict[object, Record]:
    return {r.fields["path"]: r for r in of(run(parser, fixture("cgtop", name)), "cgroup_usage")}


def accounting(name: str) -> Fields:
    (record,) = of(run(parser, fixture("cgtop", name)), "cgroup_accounting")
    return record.fields


def test_last_iteration_counts() -> None:
    found = groups("healthy.txt")
    pod = found["/kubepods.slice/kubepods-pod1234.slice"].fields
    assert (pod["cpu_pct"], pod["input_bps"], pod["memory_bytes"]) == (6400.0, 262144.0, 479 * 2**30)
    assert pod["cpu_share"] == round(6400 / 6500, 6)
    assert pod["cpu_share_basis"] == "root"
    assert "job" not in pod, "a pod may be the job or not"
    assert "cpu_pct" not in found["/system.slice/containerd.service"].fields
    assert found["/system.slice"].evidence[0].first == 14
    assert accounting("healthy.txt") == {"cpu": True, "memory": True, "iterations": 3}


def test_interactive_capture_with_cpu_count() -> None:
    found = groups("sick-tty.txt")
    backup = found["/system.slice/backup agent.service"].fields
    assert (backup["cpu_share"], backup["cpu_share_basis"], backup["job"]) == (0.15, "cpus", False)
    assert (backup["output_bps"], backup["tasks"]) == (900 * 2**20, 9)
    assert found["/system.slice/slurmstepd.scope/job_7/step_0"].fields["job"] is True
    assert accounting("sick-tty.txt")["iterations"] == 2


def test_raw_numbers_are_bytes() -> None:
    f = groups("raw.txt")["/system.slice"].fields
    assert (f["memory_bytes"], f["input_bps"], f["cpu_pct"]) == (1249280, 2048.0, 140.1)


def test_without_accounting_nothing_is_zero() -> None:
    for record in groups("no-accounting.txt").values():
        assert not {"cpu_pct", "cpu_share", "input_bps"} & set(record.fields)
    assert accounting("no-accounting.txt")["reason"] == "accounting_off"


def test_single_iteration_is_told_from_missing_accounting() -> None:
    text = fixture("cgtop", "healthy.txt").split("\n\n")[0]
    (record,) = of(run(parser, text), "cgroup_accounting")
    assert record.fields["reason"] == "single_iteration"


def test_cpu_time_is_no_rate() -> None:
    found = groups("dirty-time.txt")
    assert set(found) == {"/", "/system.slice", "/kubepods.slice/kub…0123456.scope"}
    assert all("cpu_pct" not in r.fields for r in found.values())
    assert accounting("dirty-time.txt")["reason"] == "cpu_time"


def test_cut_iteration_gives_way_to_the_one_before() -> None:
    assert groups("truncated.txt")["/kubepods.slice"].fields["cpu_pct"] == 49.6


def test_listings_of_paths_are_not_claimed() -> None:
    for text in ("/dev/sda1  100G  50G 50G  50% /\n", "/usr/bin/python3 -m train 1 2 3\n", "/a 1 2\n/b 3 4\n"):
        assert parser.sniff(text, "x") == 0.0
        assert not run(parser, text)


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("cgtop"):
        assert parser.sniff(text, name) < 0.5, name
        assert not run(parser, text), name


def test_paths_without_leading_slash_and_a_column_that_was_pushed_down() -> None:
    text = """CGroup                                   Tasks   %CPU   Memory  Input/s Output/s
user.slice                                2214 12769.4    59.7G        -
-
/                                         3397 12800.0    29.6G        -
-
user.slice/user-1008.slice                2051 7129.3    24.1G        -        -
system.slice/backup.service                 12  2560.0     1.0G     120M     400M
"""
    assert parser.sniff(text, "x.txt") == 0.9
    found = {r.fields["path"]: r.fields for r in of(run(parser, text), "cgroup_usage")}
    assert list(found) == ["/user.slice", "/", "/user.slice/user-1008.slice", "/system.slice/backup.service"]
    backup = found["/system.slice/backup.service"]
    assert (backup["job"], backup["cpu_share"], backup["iterations"]) == (False, 0.2, 1)
    rows = text.split("\n", 1)[1]
    assert parser.sniff(rows, "x.txt") == 0.9


@settings(max_examples=80, deadline=None)
@given(hostile("cgtop"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)

"""Clock synchronisation: signs, octal reach, daemons that cannot be reached, messages of the daemons."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("chrony")


def records(name: str) -> list[Record]:
    return run(parser, fixture("chrony", name))


def test_healthy_tracking_and_sources() -> None:
    found = records("healthy.txt")
    (tracking,) = of(found, "clock_tracking")
    f = tracking.fields
    assert (f["offset_ms"], f["signed_offset_ms"]) == (0.0215, -0.0215), "slow of NTP time is negative"
    assert (f["synchronised"], f["stratum"], f["root_delay_ms"], f["skew_ppm"]) == (True, 2, 0.3, 0.03)
    assert [e.first for e in tracking.evidence] == [5, 10, 12, 14]
    sources = {r.fields["name"]: r.fields for r in of(found, "clock_source")}
    assert sources["192.0.2.1"]["state"] == "selected"
    assert sources["PHC0"]["reach"] == 0o177
    assert sources["192.0.2.2"]["offset_ms"] == 0.03


def test_unsynchronised_clock_and_bad_sources() -> None:
    found = records("sick.txt")
    (tracking,) = of(found, "clock_tracking")
    assert tracking.fields["synchronised"] is False
    assert tracking.fields["signed_offset_ms"] == 12500.0
    assert tracking.fields["root_dispersion_ms"] == 3_000_000.0
    states = {r.fields["name"]: r.fields for r in of(found, "clock_source")}
    assert states["192.0.2.1"]["state"] == "unreachable"
    assert "offset_ms" not in states["192.0.2.1"], "no sample is no perfect agreement"
    assert (states["192.0.2.9"]["state"], states["192.0.2.9"]["offset_ms"]) == ("falseticker", -340.0)
    events = {r.fields["event"]: r for r in of(found, "clock_event")}
    assert events["stepped"].fields["seconds"] == 12.5
    assert (events["stepped"].host, events["stepped"].at) == ("gpu-a07", 1772623860.0)
    assert events["source_changed"].count == 2
    assert events["no_sources"].at is None, "a stamp without year is no date"
    assert "unsynchronised" in events


def test_csv_has_the_opposite_sign() -> None:
    (tracking,) = of(records("csv.txt"), "clock_tracking")
    assert tracking.fields["signed_offset_ms"] == -0.215
    assert [r.fields["state"] for r in of(records("csv.txt"), "clock_source")] == ["selected", "unreachable"]


def test_interleaved_hosts_ntpq_and_two_daemons() -> None:
    found = records("dirty-pdsh.txt")
    assert {r.host: r.fields["signed_offset_ms"] for r in of(found, "clock_tracking")} == {
        "gpu-a01": -0.0215,
        "gpu-a02": 250.0,
    }
    ntpq = {r.fields["name"]: r.fields for r in of(found, "clock_source")}
    assert ntpq["192.0.2.3"]["offset_ms"] == -250.0, "ntpq counts a clock that is behind as positive"
    (event,) = of(found, "clock_event")
    assert event.fields["event"] == "competing_daemons"


def test_truncated_tracking_is_a_problem_not_a_zero() -> None:
    assert [r.kind for r in records("truncated.txt")] == ["parse_problem"]


@pytest.mark.parametrize("text", ["506 Cannot talk to daemon\n", "Could not open connection to daemon\n"])
def test_daemon_that_does_not_answer(text: str) -> None:
    assert parser.sniff(text, "x") >= 0.5
    (record,) = run(parser, text)
    assert (record.kind, record.fields["event"], record.fields["text"]) == (
        "clock_event",
        "daemon_silent",
        text.strip(),
    )


def test_leap_status_picked_out_of_a_tracking() -> None:
    text = "Leap status     : Not synchronised\n"
    assert parser.sniff(text, "x") >= 0.5
    (record,) = run(parser, text)
    assert (record.kind, record.fields["event"]) == ("clock_event", "unsynchronised")
    assert [r.kind for r in run(parser, "Leap status     : Normal\n")] == ["covered"]


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("chrony"):
        if "chronyd" not in text and "clock synchronized" not in text:
            assert parser.sniff(text, name) < 0.5, name
            assert not run(parser, text), name


def test_pools_of_ntpq_are_no_servers_and_names_may_hold_a_bracket() -> None:
    text = """     remote           refid      st t when poll reach   delay   offset  jitter
==============================================================================
 0.ntp.example.n .POOL.          16 p    -   64    0    0.000    0.000   0.000
+192.0.2.123 (t. 192.0.2.254      2 u   11   64    7   68.172    4.404   4.878
*ntp2.example.co .GPS.            1 u   25   64    7   76.857    0.473   7.890
"""
    found = of(run(parser, text), "clock_source")
    assert [(r.fields["name"], r.fields["reach"]) for r in found] == [("192.0.2.123", 7), ("ntp2.example.co", 7)]


def test_what_a_daemon_corrects_when_it_starts_is_no_event() -> None:
    start = """Mar  4 19:30:02 node03 chronyd[811]: chronyd version 4.5 starting (+CMDMON +NTP +REFCLOCK)
Mar  4 19:30:07 node03 chronyd[811]: System clock wrong by 2.300148 seconds
Mar  4 19:30:09 node03 chronyd[811]: System clock was stepped by 2.300148 seconds
"""
    assert of(run(parser, start), "clock_event") == []
    later = "Mar  4 23:30:07 node03 chronyd[811]: System clock wrong by -62.300148 seconds\n"
    (found,) = of(run(parser, start + later), "clock_event")
    assert (found.fields["event"], found.fields["seconds"], found.host) == ("wrong", 62.300148, "node03")
    (lost,) = of(run(parser, "Mar  4 23:30:07 node03 chronyd[811]: Can't synchronise: no majority\n"), "clock_event")
    assert lost.fields["event"] == "no_sources"


@settings(max_examples=80, deadline=None)
@given(hostile("chrony"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)


def test_a_step_long_after_the_start_of_the_daemon_counts() -> None:
    text = """2026-02-26T03:16:40+00:00 node03 chronyd[811]: chronyd version 4.5 starting (+CMDMON +NTP +REFCLOCK)
2026-02-27T02:18:09+00:00 node03 chronyd[811]: System clock was stepped by 4.118832 seconds
"""
    (found,) = of(run(parser, text), "clock_event")
    assert (found.fields["event"], found.fields["seconds"]) == ("stepped", 4.118832)

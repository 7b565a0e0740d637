"""ptp4l, phc2sys and pmc."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("ptp")


def records(name: str) -> list[Record]:
    return run(parser, fixture("ptp", name))


def test_locked_servos() -> None:
    found = records("healthy.txt")
    servos = {r.fields["daemon"]: r.fields for r in of(found, "ptp_servo")}
    ptp4l = servos["ptp4l"]
    assert (ptp4l["state"], ptp4l["locked"], ptp4l["max_offset_ns"], ptp4l["last_offset_ns"]) == ("s2", True, 31, 4)
    assert (ptp4l["samples"], ptp4l["unlocked_share"]) == (5, 0.4)
    assert servos["phc2sys"]["device"] == "CLOCK_REALTIME"
    (port,) = of(found, "ptp_port")
    assert port.fields["state"] == "SLAVE", "only where the port is now"
    assert port.at is None, "uptime is no date"


def test_fault_jump_and_summary() -> None:
    found = records("sick-journal.txt")
    servos = {(r.host, r.fields["daemon"]): r for r in of(found, "ptp_servo")}
    lost = servos[("gpu-a07", "ptp4l")]
    assert (lost.fields["locked"], lost.fields["max_offset_ns"], lost.fields["last_offset_ns"]) == (False, 45000, 90000)
    assert [e.first for e in lost.evidence] == [5, 2, 1]
    summary = servos[("gpu-a08", "phc2sys")].fields
    assert (summary.get("state"), summary["locked"], summary["max_offset_ns"]) == (None, True, 40)
    assert [r.fields["state"] for r in of(found, "ptp_port")] == ["UNCALIBRATED", "FAULTY"]
    (event,) = of(found, "clock_event")
    assert (event.fields["event"], event.fields["daemon"], event.count) == ("stepped", "ptp4l", 2)
    assert event.at == 1772622002.0


def test_pmc_and_tags() -> None:
    found = records("dirty-pmc.txt")
    assert [r.fields["state"] for r in of(found, "ptp_port")] == ["LISTENING"]
    (servo,) = of(found, "ptp_servo")
    assert servo.fields["device"] == "ptp4l.0.config:6"


def test_truncated_line_is_no_sample() -> None:
    (servo,) = records("truncated.txt")
    assert servo.fields["samples"] == 1


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign("ptp"):
        if "ptp4l" not in text:
            assert parser.sniff(text, name) < 0.5, name
            assert not run(parser, text), name


def test_summaries_of_a_servo_that_settles_and_of_one_that_was_lost() -> None:
    settling = """ptp4l[1752.680]: port 1: UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED
ptp4l[1753.306]: rms 7742463 max 15502682 freq +25830 +/- 95588 delay   231 +/-   0
ptp4l[1754.307]: rms  828 max 1696 freq  -7992 +/- 1107 delay   229 +/-   0
ptp4l[1755.309]: rms  394 max  714 freq  -5490 +/- 441 delay   229 +/-   0
"""
    (servo,) = of(run(parser, settling), "ptp_servo")
    assert (servo.fields["locked"], servo.fields["max_offset_ns"]) == (True, 1696)
    lost = settling + "ptp4l[1756.309]: rms 3037000498 max 8589934586 freq -25244 +/- 8 delay 626 +/- 0\n"
    (servo,) = of(run(parser, lost), "ptp_servo")
    assert servo.fields["locked"] is False


@settings(max_examples=80, deadline=None)
@given(hostile("ptp"))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)

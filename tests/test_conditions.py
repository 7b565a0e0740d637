"""The condition language: what it means, and what it says about mistakes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import conditions
from diagnose.conditions import ConditionError, names_used, parse_condition, parse_reference
from diagnose.model import And, Arith, Compare, Const, Known, Member, Not, Or, Ref
from diagnose.units import Quantity, parse_scalar
from diagnose.vocabulary import vocabulary

ALIASES = {"pause": "nic_rate", "late": "torch_timeout"}


def parse(text, kind="nic_rate", **thresholds):
    return parse_condition(text, kind, ALIASES, {n: parse_scalar(v) for n, v in thresholds.items()}, vocabulary())


def mistakes(text, kind="nic_rate", **thresholds):
    with pytest.raises(ConditionError) as caught:
        parse(text, kind, **thresholds)
    return caught.value.mistakes


def own(field):
    return Ref(None, field)


def test_and_binds_tighter_than_or_and_not_tighter_than_and():
    a, b, c = (Compare("==", own("device"), Const(x)) for x in "abc")
    text = "device == 'a' or not device == \"b\" and device == 'c'"
    assert parse(text) == Or((a, And((Not(b), c))))
    assert parse("(device == 'a' or device == 'b') and device == 'c'") == And((Or((a, b)), c))


def test_arithmetic_precedence_and_references():
    wanted = Compare(
        ">", own("value"), Arith("+", Ref("pause", "value"), Arith("*", Const(2), Arith("-", own("median"), Const(1))))
    )
    assert parse("value > pause.value + 2 * (median - 1)") == wanted


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("value > 5%", "nic_rate", 0.05),
        ("value > 4MiB", "nic_rate", 4194304),
        ("value > 4 MB", "nic_rate", 4_000_000),
        ("value > 25GB/s", "nic_rate", 25e9),
        ("value > 25Gbit/s", "nic_rate", 25e9),
        ("value > 1.5GHz", "nic_rate", 1.5e9),
        ("value > 2d", "nic_rate", 172_800),
        ("value > 1e3", "nic_rate", 1000),
        ("value > -3", "nic_rate", -3),
        ("offset_ms > 2s", "clock_tracking", 2000),
        ("offset_ms > -10us", "clock_tracking", -0.01),
        ("rate_gbps > 25GB/s", "rdma_port", 200),
        ("rate_gbps > 400Gbit/s", "rdma_port", 400),
        ("busbw_gbps > 400Gbit/s", "bench_nccl", 50),
        ("speed_mbps > 100Gbit/s", "nic_link", 100_000),
        ("utilization_pct > 80%", "gpu", 80),
        ("clock_sm_mhz > 1.4GHz", "gpu", 1400),
    ],
)
def test_quantities_fold_to_the_unit_of_the_field(text, kind, number):
    found = parse(text, kind)
    assert isinstance(found, Compare)
    assert found.right == Const(number)


def test_a_threshold_is_a_constant_and_carries_its_unit():
    assert parse("offset_ms > far", "clock_tracking", far="1s").right == Const(1000)
    assert parse("device == name", name="eth0").right == Const("eth0")
    assert parse("device in (name, 'lo')", name="eth0") == Member(own("device"), ("eth0", "lo"))


def test_membership_known_and_truth():
    assert parse("device in ['a', 'b']") == Member(own("device"), ("a", "b"))
    assert parse("priority not in (3, 4)") == Not(Member(own("priority"), (3, 4)))
    assert parse("known priority and unknown late.rank") == And(
        (Known(own("priority")), Not(Known(Ref("late", "rank"))))
    )
    assert parse("not on", "nic_feature") == Not(Compare("==", own("on"), Const(True)))
    assert parse("on == false", "nic_feature") == Compare("==", own("on"), Const(False))


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("valu > 3", 1, "did you mean 'value'"),
        ("pauze.value > 3", 1, "did you mean 'pause'"),
        ("value > late.seqq", 9, "did you mean 'seq'"),
        ("value = 3", 7, "write =="),
        ("value > 3 && value < 4", 11, "write and"),
        ("value > 3 value", 11, "cannot read 'value'"),
        ("value >", 8, "missing at the end"),
        ("(value > 3", 11, "missing at the end"),
        ("1 < value < 3", 11, "do not chain"),
        ("value > 3parsec", 9, "unknown unit 'parsec'"),
        ("value > 3mss", 9, "did you mean 'ms'"),
        ("device == 'eth0", 11, "not closed"),
        ("device == 3", 8, "compares a string with a number"),
        ("device < 'a'", 8, "orders numbers only"),
        ("device + 1 > 3", 1, "arithmetic needs numbers"),
        ("value in (1, device)", 14, "no constant"),
        ("value in (1, 'a')", 14, "compares a number with a string"),
        ("value", 1, "alone is no condition"),
        ("(value > 3) == 4", 8, "not a value"),
        ("value > 3 or", 13, "missing at the end"),
        ("", 1, "missing at the end"),
    ],
)
def test_mistakes_have_a_column_and_a_hint(text, column, part):
    found = mistakes(text)
    assert [m.column for m in found] == [column]
    assert part in found[0].text


def test_all_mistakes_at_once():
    assert [m.column for m in mistakes("valu > 3 and devic == 'x' and pause.nope == 1")] == [1, 14, 31]


def test_units_that_do_not_fit_are_refused():
    assert "does not fit a time field" in mistakes("offset_ms > 5%", "clock_tracking")[0].text
    assert "different units" in mistakes("elapsed_s > late.timeout_ms", "stall")[0].text
    assert parse("elapsed_s * 1000 > late.timeout_ms", "stall")


def test_without_an_own_kind_every_field_needs_its_alias():
    assert "needs an alias" in mistakes("value > 3", None)[0].text
    assert parse("pause.value > 3", None) == Compare(">", Ref("pause", "value"), Const(3))


def test_depth_and_length_are_bounded():
    assert "nested" in mistakes("(" * 300 + "value")[0].text
    assert "longer" in mistakes("value > 1 and " * 300 + "value > 1")[0].text


def test_references():
    assert parse_reference("pause.device", ALIASES, vocabulary()) == Ref("pause", "device")
    for text in ("device", "pause.", "pause.device.x", "pause.__class__", "pause.devise", "paus.device"):
        with pytest.raises(ConditionError):
            parse_reference(text, ALIASES, vocabulary())


def test_scalars_of_thresholds():
    share = parse_scalar("5%")
    assert isinstance(share, Quantity)
    assert share.base == 0.05
    assert parse_scalar("12") == 12
    assert parse_scalar("Not synchronised") == "Not synchronised"
    assert parse_scalar(True) is True
    with pytest.raises(ValueError, match="unknown unit"):
        parse_scalar("5 parsecs")


def test_names_used():
    assert names_used("value > max and pause.device == 'value'") == {"value", "max", "pause.device"}
    assert names_used("value >") == frozenset()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="value dnotri<>=!()[]'\"+-*/.,0123456789%sMiB\n", max_size=60))
def test_any_text_parses_or_is_refused_with_columns(text):
    try:
        conditions.parse_condition(text, "nic_rate", ALIASES, {}, vocabulary())
    except ConditionError as error:
        assert all(1 <= m.column <= len(text) + 1 for m in error.mistakes)


@pytest.mark.parametrize(
    "text", ["value >= 1.5", "device != 'a b'", "value == pause.value", 'metric == "x"', "value < limit"]
)
def test_the_short_way_of_reading_comparisons_gives_the_same_as_the_long_one(text):
    left, rest = text.split(" ", 1)
    assert parse(text, limit=3) == parse(f"({left}) {rest}", limit=3)

"""Rule files: what loads, what is refused and where, lint, examples, scaffolding."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose import findings, reference
from diagnose.model import Arith, Compare, Const, Fact, Ref, SeverityChoice
from diagnose.rulebook import lint, load, new_rule, run_examples
from diagnose.rulebook._advice import step_problems
from diagnose.rulebook._yaml import Document
from diagnose.vocabulary import vocabulary
from diagnose.wording import check_template, fill, render

GOOD = """\
id: nic/eats-pause
status: stable
title: This NIC pauses the fabric
severity: [{when: "pause.value > 0.5", is: critical}, {else: major}]
confidence: high
thresholds:
  max_share: {value: 5%, why: "chosen by us for this test", source: "this test"}
when:
  pause: {kind: nic_rate, where: "metric == 'tx_pause_share' and value > max_share"}
supports:
  link: {kind: pcie_link, where: "host == pause.host and width < width_max"}
unless:
  - {kind: fabric_pause, where: "pattern == 'received_everywhere_sent_nowhere'"}
  - {kind: kernel_event, where: "host == pause.host and event == 'xid'"}
about: [{host: pause.host}, {nic: pause.device}]
says: "{pause.host} {pause.device} pauses the fabric {pause.value:.1%} of the time"
cause: "The host cannot drain its receive buffers, so the NIC asks the switch to stop."
look_alikes: []
steps:
  - {text: "Look at the counters twice", command: "ethtool -S {pause.device}", effect: read-only}
  - {text: "Move the job off this host", effect: changes-state, verify: "no pause", rollback: "give it back"}
references: ["a manual"]
zh:
  title: 网卡暂停
  says: "{pause.host} 暂停"
  cause: 接收缓慢
  steps: [看计数器, {text: 移走作业, verify: 无暂停}]
examples:
  - name: pauses
    given: [{kind: nic_rate, host: n1, device: eth2, metric: tx_pause_share, seconds: 10, value: 0.25}]
    covered: [kernel_log, nic_rates]
    fires: {severity: major, confidence: high, says: 25.0%, about: {host: n1, nic: eth2}, count: 1}
  - name: not looked at the kernel log
    given: [{kind: nic_rate, host: n1, device: eth2, metric: tx_pause_share, seconds: 10, value: 0.75}]
    fires: {severity: critical, confidence: medium}
  - name: below
    given: [{kind: nic_rate, host: n1, device: eth2, metric: tx_pause_share, seconds: 10, value: 0.05}]
    quiet: true
"""


def write(folder: Path, text: str, name: str = "nic/eats-pause.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load_one(tmp_path, text, **options):
    write(tmp_path, text)
    return load([tmp_path], **options)


def test_a_good_rule_loads_and_passes_lint_and_its_examples(tmp_path):
    book = load_one(tmp_path, GOOD)
    assert book.errors == ()
    assert lint([tmp_path]) == []
    (rule,) = book.rules
    assert run_examples(rule) == []
    assert [p.alias for p in rule.when + rule.supports + rule.unless] == ["pause", "link", "unless1", "unless2"]
    assert rule.severity == (
        SeverityChoice("critical", Compare(">", Ref("pause", "value"), Const(0.5))),
        SeverityChoice("major"),
    )
    assert rule.thresholds[0].value == 0.05
    assert rule.thresholds[0].text == "5%"
    assert rule.per == (Ref("pause", "host"), Ref("pause", "device"))
    assert rule.texts["zh"].steps[1].verify == "无暂停"
    assert rule.texts["zh"].steps[0].command == "ethtool -S {pause.device}"
    assert rule.path == "nic/eats-pause.yaml"


@pytest.mark.parametrize(
    ("old", "new", "needle", "part"),
    [
        ("status: stable", "statsu: stable", "statsu", "did you mean 'status'"),
        ("confidence: high", "confidence: hihg", "hihg", "did you mean 'high'"),
        ("kind: nic_rate, where", "kind: nic_rat, where", "nic_rat,", "did you mean 'nic_rate'"),
        ("value > max_share", "valeu > max_share", "valeu", "did you mean 'value'"),
        ("value > max_share", "value > max_shar", 'max_shar"', "did you mean 'max_share'"),
        ("host == pause.host and width", "host == pauze.host and width", "pauze", "did you mean 'pause'"),
        ("{host: pause.host}", "{host: pause.hots}", "hots}", "did you mean 'hosts'"),
        ("{pause.value:.1%}", "{pause.valu:.1%}", '"{pause.host}', "did you mean 'value'"),
        ("{pause.value:.1%}", "{pause.value!r}", '"{pause.host}', "not of the form"),
        ("{pause.value:.1%}", "{pause.__class__}", '"{pause.host}', "not of the form"),
        ("{pause.value:.1%}", "{pause.value:99999d}", '"{pause.host}', "not allowed"),
        ("{pause.host} {pause.device}", "{pause.host:.1%} {pause.device}", '"{pause.host:', "does not fit"),
        ("value: 5%", "value: 5parsec", "5parsec", "unknown unit 'parsec'"),
        ("  max_share:", "  device:", "device: {", "named like a field"),
        ("confidence: high", "confidence: high\nconfidence: low", "confidence: low", "duplicate key"),
        ("    quiet: true", "    fires: {}", "- name: pauses", "no example that stays quiet"),
        ("effect: read-only", "effect: readonly", "readonly", "did you mean 'read-only'"),
        ("[看计数器, ", "[", "[{text: 移走作业", "1 steps here, 2 in English"),
        ("-S {pause.device}", "-S {pause.devise}", '"ethtool', "did you mean 'device'"),
        ("{else: major}]", '{when: "pause.value > 1", is: major}]', '{when: "pause.value > 1"', "the last choice"),
    ],
)
def test_errors_tell_the_place_and_a_suggestion(tmp_path, old, new, needle, part):
    assert GOOD.count(old) >= 1
    text = GOOD.replace(old, new, 1)
    before = text[: text.index(needle)]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    found = [(e.line, e.column, e.text) for e in load_one(tmp_path, text).errors]
    assert any(error[:2] == place and part in error[2] for error in found), (place, found)


def test_all_errors_at_once_and_other_rules_survive(tmp_path):
    write(tmp_path, GOOD.replace("id: nic/eats-pause", "id: nic/second"), "nic/second.yaml")
    book = load_one(tmp_path, GOOD.replace("hihg", "high").replace("pause.hots", "").replace("max_share:", "max:"))
    assert [rule.id for rule in book.rules] == ["nic/second"]
    write(tmp_path, GOOD.replace("confidence: high", "confidence: sure", 1).replace("width < width_max", "widht < 3"))
    texts = " ".join(e.text for e in load([tmp_path]).errors)
    assert "sure" in texts
    assert "widht" in texts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "a: [",
        "id: {}",
        "when: 3",
        "\t",
        "id: nic/x\nwhen: {a: 3}\nseverity: [1, 2]",
        "&a [*a]",
        "x: &a [1]\ny: *a",
    ],
)
def test_malformed_files_are_errors_not_crashes(tmp_path, text):
    book = load_one(tmp_path, text)
    assert book.rules == ()
    assert book.errors


def test_yaml_words_stay_texts():
    data = Document(
        "{a: on, b: yes, c: 1e3, d: 012, e: 2026-01-02, f: 10:30, g: true, h: '5', i: 1.50, j: 0x10, k: ~}"
    ).data
    assert data == {
        "a": "on", "b": "yes", "c": 1000.0, "d": "012", "e": "2026-01-02", "f": "10:30",
        "g": True, "h": "5", "i": 1.5, "j": "0x10", "k": None,
    }  # fmt: skip


def test_statuses_and_the_cap_of_trial_rules(tmp_path):
    assert load_one(tmp_path, GOOD.replace("status: stable", "status: draft")).rules == ()
    (rule,) = load([tmp_path], statuses=("draft", "stable")).rules
    assert rule.status == "draft"
    (rule,) = load_one(tmp_path, GOOD.replace("status: stable", "status: trial")).rules
    assert [choice.severity for choice in rule.severity] == ["minor", "minor"]


def test_a_step_may_be_named_only_where_something_holds(tmp_path):
    only = GOOD.replace("effect: read-only}", 'effect: read-only, when: "pause.value > 0.5"}')
    rules = load_one(tmp_path, only).rules
    shown = {}
    for value in (0.25, 0.75):
        fields = {"host": "n1", "device": "eth2", "metric": "tx_pause_share", "seconds": 10.0, "value": value}
        (found,) = findings.judge(rules, reference.run(rules, [Fact("f1", "nic_rate", fields)]))
        shown[value] = [s.text for s in found.remediation]
    assert shown == {
        0.25: ["Move the job off this host"],
        0.75: ["Look at the counters twice", "Move the job off this host"],
    }


def test_thresholds_can_be_overridden(tmp_path):
    write(tmp_path, GOOD)
    (rule,) = load([tmp_path], overrides={"nic/eats-pause.max_share": "20%"}).rules
    assert rule.thresholds[0].value == 0.2
    assert "0.2" in repr(rule.when[0].where)
    for name, value, part in (
        ("nic/eats-pause.max_shar", "20%", "did you mean"),
        ("nic/eats-pause.max_share", 20, "lacks a unit"),
        ("nic/eats-pause.max_share", "20s", "does not fit"),
        ("nic/eats-pause.max_share", "much", "'much' is no number"),
    ):
        book = load([tmp_path], overrides={name: value}, site_file="site file s.toml")
        (error,) = book.errors
        assert str(error).startswith(f'site file s.toml: thresholds."{name}": ') and part in error.text, part
        assert book.rules[0].thresholds[0].text == "5%" and book.overridden == (), "the rule keeps its own value"
    assert load([tmp_path], overrides={"nic/eats-pause.max_share": "20%"}).overridden == ("nic/eats-pause.max_share",)


def test_a_broken_rule_file_is_no_fault_of_the_site_file(tmp_path):
    write(tmp_path, GOOD.replace("severity: ", "severitee: "))
    errors = load([tmp_path], overrides={"nic/eats-pause.max_share": "20%"}).errors
    assert errors and all(e.line for e in errors)


def test_a_later_folder_replaces_a_rule(tmp_path):
    write(tmp_path / "a", GOOD)
    write(tmp_path / "b", GOOD.replace("title: This NIC", "title: That NIC"))
    book = load([tmp_path / "a", tmp_path / "b"])
    assert [rule.texts["en"].title for rule in book.rules] == ["That NIC pauses the fabric"]
    assert book.digest != load([tmp_path / "a"]).digest
    with pytest.raises(FileNotFoundError):
        load([tmp_path / "c"])


def test_derivations(tmp_path):
    derive = 'derive: [{kind: suspect_rank, fields: {reason: "pauses", rank: pause.rank, gap_s: 3}}]\nphase: 0\n'
    (rule,) = load_one(tmp_path, GOOD + derive).rules
    assert rule.derives[0].fields == {"reason": Const("pauses"), "rank": Ref("pause", "rank"), "gap_s": Const(3)}
    for old, new in (("pause.rank", "pause.host"), ("rank: pause.rank", "ranc: 3"), ('reason: "pauses", ', "")):
        assert load_one(tmp_path, GOOD + derive.replace(old, new)).errors


ONLY = 'when: "pause.value > 0.5", effect:'

LINT = [
    (GOOD[GOOD.index("steps:"):], GOOD[GOOD.index("steps:"):].replace("effect:", ONLY), "must hold whatever the facts"),
    ("{text: \"Look at the counters twice\"", "{allow: no, text: \"Look at the counters twice\"", "too short"),
    ("effect: read-only}", "effect: changes-state}", "must be read-only"),
    ("effect: read-only}", "effect: changes-state}", "needs 'verify'"),
    (', rollback: "give it back"', "", "needs 'rollback'"),
    ("value > max_share", "value > 0.05", "is not used"),
    ("look_alikes: []", "explains: [nic/eats-pause]", "cannot explain itself"),
    ("look_alikes: []", "explains: [nic/other]", "would hide nic/other"),
    ("look_alikes: []", "explains: ['nic/*']", "would hide nic/other"),
    ("look_alikes: []", "explains: [nic/othe]", "warning: explains nic/othe, which is not"),
    ("look_alikes: []", "look_alikes: [{id: nic/oter, question: 'Which one is it?'}]", "warning: look-alike nic/oter"),
    ("ethtool -S {pause.device}", "ethtool -K {pause.device} gro off", "is not read-only"),
    ("Move the job off this host", "Set NCCL_IB_DISABLE=1 on this host", "hides the fault"),
    ("Move the job off this host", "Raise the watchdog timeout to 60 minutes", "only fix"),
    ("kind: kernel_event, where: \"host == pause.host and event == 'xid'\"", "kind: covered", "coverage"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "part"), LINT)
def test_lint_refuses(tmp_path, old, new, part):
    other = GOOD.replace("id: nic/eats-pause", "id: nic/other").replace("severity: [", "severity: critical #")
    write(tmp_path, other, "nic/other.yaml")
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    write(tmp_path, text.replace("severity: [", "severity: major #") if "explains" in new else text)
    found = [str(e) for e in lint([tmp_path]) if "eats-pause" in e.path]
    assert any(part in error for error in found), found


def test_lint_wants_the_id_to_be_the_path_and_once(tmp_path):
    write(tmp_path, GOOD, "nic/misnamed.yaml")
    write(tmp_path, GOOD)
    texts = [e.text for e in lint([tmp_path])]
    assert any("must be nic/eats-pause.yaml" in text for text in texts)
    assert any("is also in" in text for text in texts)


def test_lint_wants_readers_of_derived_facts_in_a_later_phase(tmp_path):
    derive = "derive: [{kind: kernel_event, fields: {event: x, text: x}}]\n"
    write(tmp_path, GOOD.replace("id: nic/eats-pause", "id: nic/other") + derive, "nic/other.yaml")
    write(tmp_path, GOOD)
    assert any("set phase: 1" in e.text for e in lint([tmp_path]))


@pytest.mark.parametrize(
    ("effect", "text", "refused"),
    [
        ("changes-state", "ethtool -K eth0 tso off tx off", True),
        ("changes-state", "tc qdisc add dev eth0 root tbf rate 10gbit", True),
        ("changes-state", "Disable PFC on the port", True),
        ("changes-state", "mlnx_qos -i eth0 --pfc 0,0,0,0,0,0,0,0", True),
        ("changes-state", "mlnx_qos -i eth0 --pfc 0,0,0,1,0,0,0,1", True),
        ("changes-state", "mlnx_qos -i eth0 --pfc 0,0,0,1,0,0,0,0", False),
        ("changes-state", "export NCCL_P2P_DISABLE=1", True),
        ("changes-state", "unset NCCL_P2P_DISABLE", False),
        ("changes-state", "Never set NCCL_IB_DISABLE=1 for this; try NCCL_P2P_DISABLE=1", True),
        ("changes-state", "nvidia-smi --gpu-reset -i 3", True),
        ("maintenance", "nvidia-smi --gpu-reset -i 3", False),
        ("changes-state", "systemctl restart nvidia-fabricmanager", True),
        ("changes-state", "Update the NIC firmware", True),
        ("maintenance", "Update the NIC firmware", False),
        ("read-only", "perfquery -x 12 1", False),
        ("changes-state", "perfquery -R 12 1", True),
        ("read-only", "dmesg -T | grep -i xid", False),
        ("read-only", "dmesg -C", True),
        ("changes-state", "curl http://192.0.2.1/x | sh", True),
        ("changes-state", "setpci -s 3b:00.0 ECAP_ACS+6.w=0000", True),
        ("read-only", "nvidia-smi topo -m", False),
        ("read-only", "nvidia-smi nvlink -e", False),
        ("read-only", "nvidia-smi -e 1", True),
        ("read-only", "ethtool -t eth0 offline", True),
        ("read-only", "ethtool -T eth0", False),
        ("read-only", "ibdiagnet -r -pc", True),
        ("read-only", "ibportstate 4 1 reset", True),
        ("read-only", "Compare ib_write_bw to host and to GPU memory", True),
        ("maintenance", "Compare ib_write_bw to host and to GPU memory", False),
        ("read-only", "all_reduce_perf -b 8 -e 8G -f 2 -g 8   # on drained hosts", True),
        ("read-only", "dcgmi diag -r 3", True),
        ("read-only", "iperf3 -c 192.0.2.7", True),
        ("read-only", "perf report", False),
        ("read-only", "grep . /sys/fs/cgroup/x/cpu.max > /tmp/out", False),
    ],
)
def test_harmful_advice(effect, text, refused):
    assert bool(list(step_problems({"text": text, "command": text, "effect": effect}))) is refused


def test_commands_of_look_alikes_that_load_something_say_where_they_may_run():
    step = {"text": "the same pair", "effect": "read-only", "asked": True, "command": "ib_write_bw -d DEV"}
    assert list(step_problems(step))
    assert list(step_problems({**step, "command": "ib_write_bw -d DEV   # on drained hosts"})) == []


def test_allow_excuses_advice_but_not_destruction():
    step = {"text": "NCCL_P2P_DISABLE=1 once, on one host", "effect": "changes-state", "allow": "a diagnostic toggle"}
    assert list(step_problems(step)) == []
    assert list(step_problems({**step, "command": "yes | sudo rm -rf /"}))


def test_examples_that_fail_are_told(tmp_path):
    for old, new, part in (
        ("severity: major, confidence", "severity: minor, confidence", "severity is major, not minor"),
        ("confidence: medium}", "confidence: high}", "confidence is medium, not high"),
        ("says: 25.0%", "says: 26%", "'26%' is not in"),
        ("nic: eth2}, count: 1", "nic: eth3}, count: 1", "about nic eth2, not eth3"),
        ("count: 1", "count: 2", "2 findings, but gives 1"),
        ("value: 0.05}", "value: 0.06}", "must stay quiet"),
        ("value: 0.25}", "value: 0.01}", "must fire"),
        ("metric: tx_pause_share, seconds: 10, value: 0.25", "metric: x, secs: 10, value: 0.25", "has no field 'secs'"),
    ):
        (rule,) = load_one(tmp_path, GOOD.replace(old, new, 1)).rules
        assert any(part in failure for failure in run_examples(rule)), part


def test_a_new_rule_passes_lint_and_fails_its_example(tmp_path):
    path = new_rule(tmp_path, "nic/fresh-idea")
    assert path.name == "fresh-idea.yaml"
    assert [(e.level, e.line) for e in lint([tmp_path])] == [("warning", 3)]
    (rule,) = load([tmp_path], statuses=("draft",)).rules
    assert run_examples(rule)
    with pytest.raises(FileExistsError):
        new_rule(tmp_path, "nic/fresh-idea")
    with pytest.raises(ValueError, match="family/slug"):
        new_rule(tmp_path, "../escape")


def test_wording():
    facts = {"a": Fact("f1", "nic_rate", {"host": "n1", "device": "eth0; reboot", "value": 0.123456789})}
    aliases = {"a": "nic_rate"}
    assert check_template("{a.host} {a.value:.1%} {{x}}", aliases, vocabulary()) == []
    assert render("{a.host} {a.value:.1%} {a.rank:d} {{x}} {a.value}", facts) == "n1 12.3% unknown {x} 0.123457"
    assert fill("ethtool {a.device} | awk '{print $1}' {a.rank}", facts, shell=True) == (
        "ethtool 'eth0; reboot' | awk '{print $1}' <rank>"
    )
    for hostile in ("-rf", "../../etc/shadow", "eth0/../x", "a\nreboot", "\x1b[2J"):
        odd = {"a": Fact("f1", "nic_rate", {"device": hostile})}
        assert fill("ethtool -S {a.device}; echo x", odd, shell=True) == "ethtool -S <device>; echo x"
    for value in ("x'; reboot #", "$(reboot)", "a b"):
        odd = {"a": Fact("f1", "nic_rate", {"device": value})}
        assert fill("grep 'it {a.device}'", odd, shell=True) == "grep 'it <device>'"
    optional = "{a.host}[[ rank {a.rank}]][[ at {a.value:.1f}]]: [[{a.rank}||{a.metric}, a rate]]"
    assert check_template(optional, aliases, vocabulary()) == []
    assert render(optional, facts) == "n1 at 0.1: unknown, a rate"
    assert render("[[{a.value:.0%}||none]] [x]", facts) == "12% [x]"
    words = {"a": Fact("f2", "nic_rate", {"metric": "rx_pause"})}
    assert render("{a.metric:w}", words) == "rx pause" and not check_template("{a.metric:w}", aliases, vocabulary())
    assert check_template("{a.value:w}", aliases, vocabulary())
    for text in ("[[ {a.rank}", "{a.rank}]]", "[[a [[b]] c]]", "[[{b.host}]]"):
        assert check_template(text, aliases, vocabulary()), text
    for text in ("{a}", "{}", "{0.host}", "{a.host[0]}", "{a.host.x}", "{a.value:{a.value}}", "{a.host", "{b.host}"):
        assert check_template(text, aliases, vocabulary()), text


def test_thresholds_enter_arithmetic(tmp_path):
    text = GOOD.replace("value > max_share", "value > max_share * median")
    (rule,) = load_one(tmp_path, text).rules
    assert Arith("*", Const(0.05), Ref(None, "median")).__repr__() in repr(rule.when[0].where)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 12), st.text("{}[]:,'\" \nab.*&!|>-#%", max_size=6))
def test_any_damage_gives_errors_or_a_rule(tmp_path_factory, at, length, junk):
    folder = tmp_path_factory.mktemp("damaged")
    write(folder, textwrap.dedent(GOOD[:at] + junk + GOOD[at + length :]))
    book = load([folder])
    assert bool(book.rules) or bool(book.errors)
    lint([folder])


def test_a_warning_against_harm_is_no_harm():
    text = "Remove NCCL_NET_GDR_LEVEL=LOC from the job; do not raise the timeout"
    assert list(step_problems({"text": text, "command": "unset NCCL_NET_GDR_LEVEL", "effect": "changes-state"})) == []

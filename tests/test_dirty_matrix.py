"""Logs as people paste them: what spoils a text may hide the fault, but never moves it to another host or rank.

Every sick fixture below goes through every mutation of `dirt`, every healthy one too. The reference evaluator judges
and the rules are loaded once, so that hundreds of analyses take seconds.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from diagnose import engine, packs, rulebook
from diagnose.model import UNNAMED_HOST, Diagnosis, Finding
from diagnose.run import NothingAnalysed, Options, analyse
from tests import dirt

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARSED = FIXTURES / "parsers"
COUNTED = ("critical", "major", "minor")
CANNOT_TELL = "stall/undetermined"
CUT_OFF = "stall/exception-cut-off"
"""Names whose exception it is, and asks for its end: no blame."""
ADDED = {("host", dirt.PREFIX_HOST), ("host", "train-0"), ("rank", 0), ("host", UNNAMED_HOST), ("nic", "nic")}
"""Names that come with the added prefixes, and those of things without a name."""

SICK = sorted(
    f"{kind}/{name}"
    for kind, names in {
        "nccl_log": "sick-2.12 sick-2.16 sick-2.19 sick-2.23 sick-2.30 sick-2.32 sick-efa dirty",
        "torch_log": "sick dirty truncated",
        "kmsg": "sick-T sick-boot-seconds",
        "job_log": "sick-slurm",
        "ethtool": "sick",
        "mlnx_qos": "sick",
        "rdma_port": "sick",
        "nvidia_smi_topo": "sick",
        "nccl_tests": "sick-wrong-srun",
    }.items()
    for name in names.split()
)
WHOLE = (
    "quoted", "fence", "indented", "editor-tab", "editor-bar", "editor-colon", "mixed-ends", "utf-16",
    "no-break-spaces", "tail",
)  # fmt: skip
"""Mutations that take nothing away (the fixtures are shorter than 200 lines)."""
BUNDLES = ("healthy-ib-h100-nvls", "healthy-k8s-overlay-beside-rdma", "healthy-roce-a100", "healthy-tcp-cloud")
ON_BUNDLES = (
    "tail-40", "head-and-tail", "cut-mid-line", "wrap-80", "word-wrap-76", "quoted", "editor-colon", "utf-16",
    "blanks-squeezed", "srun", "kubectl-stamps", "docker-json",
)  # fmt: skip


PARSERS = functools.cache(packs.load_parsers)
RULES = functools.cache(functools.partial(rulebook.load, (packs.builtin("rules"),)))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsers and rules are loaded once, and no engine process is started."""
    parsers, rules = PARSERS(), RULES()
    monkeypatch.setattr(engine, "_installed", lambda: None)
    monkeypatch.setattr(packs, "load_parsers", lambda *_: parsers)
    monkeypatch.setattr(rulebook, "load", lambda *_, **__: rules)


def judged(*paths: Path) -> Diagnosis | None:
    try:
        return analyse([str(path) for path in paths], Options(site=FIXTURES / "site" / "none.toml", jobs=1))
    except NothingAnalysed:
        return None


def counted(diagnosis: Diagnosis | None) -> list[Finding]:
    return [f for f in diagnosis.findings if f.severity in COUNTED] if diagnosis else []


def roots(diagnosis: Diagnosis | None) -> set[str]:
    return {f.id for f in counted(diagnosis) if f.role != "consequence"}


def named(findings: list[Finding]) -> set[tuple[str, Any]]:
    """Hosts, ranks and devices that the findings are about."""
    found: set[tuple[str, Any]] = set()
    for finding in findings:
        for subject in finding.subjects:
            if subject.host:
                found.add(("host", subject.host))
            if subject.kind == "rank":
                for part in subject.name.split(","):
                    first, _, last = part.partition("-")
                    found |= {("rank", rank) for rank in range(int(first), int(last or first) + 1)}
            elif subject.kind in ("host", "gpu", "nic", "port"):
                found.add((subject.kind, subject.name))
    return found


def failed(diagnosis: Diagnosis | None) -> list[str]:
    return [p.text for p in (diagnosis.problems if diagnosis else ()) if "failed" in p.text or "broke" in p.text]


@functools.cache
def clean(name: str) -> tuple[str, frozenset[str], frozenset[tuple[str, Any]]]:
    """Text of a fixture, and the roots and names of its diagnosis."""
    file = PARSED / f"{name}.txt"
    diagnosis = judged(file)
    assert diagnosis is not None
    assert roots(diagnosis), name
    return file.read_text("utf-8"), frozenset(roots(diagnosis)), frozenset(named(list(diagnosis.findings)))


@pytest.mark.parametrize("name", SICK)
def test_the_fault_stays_or_cannot_be_told(name: str, tmp_path: Path) -> None:
    text, before, names = clean(name)
    wrong: list[str] = []
    for mutation, spoil in dirt.MUTATIONS.items():
        file = tmp_path / f"{mutation}.txt"
        file.write_bytes(spoil(text))
        diagnosis = judged(file)
        wrong += [f"{mutation}: {problem}" for problem in failed(diagnosis)]
        blamed = [f for f in counted(diagnosis) if f.role != "consequence" and f.id not in (CANNOT_TELL, CUT_OFF)]
        others = named(blamed) - names - ADDED - {("host", dirt.host_in(text))}
        if others:
            wrong.append(f"{mutation}: blames {sorted(others)} by {sorted({f.id for f in blamed})}")
        if mutation in WHOLE and roots(diagnosis) != before:
            wrong.append(f"{mutation}: {sorted(roots(diagnosis))} instead of {sorted(before)}")
    assert not wrong


@pytest.mark.parametrize("name", sorted(f"{p.parent.name}/{p.stem}" for p in PARSED.glob("*/healthy*.txt")))
def test_a_healthy_text_stays_healthy(name: str, tmp_path: Path) -> None:
    file = PARSED / f"{name}.txt"
    text = file.read_text("utf-8")
    before = {f.id for f in counted(judged(file))} | {CANNOT_TELL}
    wrong: list[str] = []
    for mutation, spoil in dirt.MUTATIONS.items():
        spoiled = tmp_path / f"{mutation}.txt"
        spoiled.write_bytes(spoil(text))
        diagnosis = judged(spoiled)
        wrong += [f"{mutation}: {problem}" for problem in failed(diagnosis)]
        wrong += [f"{mutation}: {f.id}: {f.summary}" for f in counted(diagnosis) if f.id not in before]
    assert not wrong


def spoiled_bundle(name: str, mutation: str, target: Path) -> Path:
    """A bundle with every file spoiled."""
    for file in sorted(p for p in (FIXTURES / name).rglob("*") if p.is_file()):
        copy = target / file.relative_to(FIXTURES / name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.name == "manifest.json":
            manifest = json.loads(file.read_text("utf-8"))
            for entry in manifest["files"]:
                entry.pop("sha256", None)
            copy.write_text(json.dumps(manifest), "utf-8")
        else:
            copy.write_bytes(dirt.MUTATIONS[mutation](file.read_text("utf-8")))
    return target


def said(diagnosis: Diagnosis | None) -> list[tuple[str, str]]:
    """Findings that would wake somebody; that a cut log cannot tell is minor and no fault."""
    return [(f.id, f.summary) for f in counted(diagnosis) if (f.id, f.severity) != (CANNOT_TELL, "minor")]


@pytest.mark.parametrize("mutation", ON_BUNDLES)
@pytest.mark.parametrize("name", BUNDLES)
def test_a_healthy_bundle_stays_healthy(name: str, mutation: str, tmp_path: Path) -> None:
    diagnosis = judged(spoiled_bundle(name, mutation, tmp_path / name))
    assert (said(diagnosis), failed(diagnosis)) == ([], [])


@pytest.mark.parametrize("name", BUNDLES)
def test_a_healthy_bundle_without_names_stays_healthy(name: str, tmp_path: Path) -> None:
    """All files in one folder, and all of them in one paste: whose they are is lost."""
    texts = [
        (p.name, p.read_text("utf-8")) for p in sorted((FIXTURES / name).rglob("*"))
        if p.is_file() and p.name != "manifest.json"
    ]  # fmt: skip
    flat = tmp_path / "flat"
    flat.mkdir()
    for n, (file, text) in enumerate(texts):
        (flat / f"{n:02d}-{file}").write_text(text, "utf-8")
    assert said(judged(flat)) == []
    paste = tmp_path / "paste.txt"
    for mutation in ("fence", "quoted", "wrap-100", "kubectl-stamps"):
        paste.write_bytes(dirt.MUTATIONS[mutation]("\n".join(text.rstrip("\n") for _, text in texts) + "\n"))
        assert said(judged(paste)) == [], mutation


@pytest.mark.parametrize("mix", [dirt.interleaved, dirt.torn])
@pytest.mark.parametrize("name", [n for n in SICK if n.startswith(("nccl_log", "torch_log"))])
def test_a_neighbour_in_the_same_stream_is_not_blamed(name: str, mix: Any, tmp_path: Path) -> None:
    text, _, names = clean(name)
    other = "".join(
        f"bystander-1:7:70 [0] NCCL INFO Channel {n:02d}/0 : 0[0] -> 1[1] [send] via P2P/CUMEM\n" for n in range(60)
    )
    file = tmp_path / "mixed.log"
    file.write_bytes(mix(text, other))
    diagnosis = judged(file)
    blamed = [f for f in counted(diagnosis) if f.role != "consequence" and f.id != CANNOT_TELL]
    assert not failed(diagnosis)
    assert named(blamed) - names - ADDED == set()


@pytest.mark.parametrize("mutation", ["tail-40", "head-and-tail", "wrap-80", "quoted-wrap-78"])
@pytest.mark.parametrize(
    "name",
    ["stall-crashed-rank", "stall-gpu-hung", "stall-inflight-network", "stall-late-rank", "oom-killed-rank"],
)
def test_victims_of_a_cut_log_are_not_blamed(name: str, mutation: str, tmp_path: Path) -> None:
    whole = judged(FIXTURES / name)
    assert whole is not None
    diagnosis = judged(spoiled_bundle(name, mutation, tmp_path / name))
    blamed = [f for f in counted(diagnosis) if f.role != "consequence" and f.id.startswith("stall/")]
    ranks = {subject for subject in named([f for f in blamed if f.id != CANNOT_TELL]) if subject[0] == "rank"}
    assert ranks <= named(list(whole.findings))

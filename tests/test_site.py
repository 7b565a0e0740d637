"""The site file: what is read, and that every fault is named with its key path, all at once."""

from __future__ import annotations

import datetime
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import diagnose
from diagnose import site
from diagnose.vocabulary import vocabulary

GOOD = """
[qos]
priority = 3
dscp = 26
cnp_dscp = 48
trust = "dscp"
lossless = true

[[node_class]]
name = "h100"
gpus = 8
nics = 8
link_gbps = 400
gpu_nic_relation = "PIX"
busbw_intra_gbps = 430.5

[thresholds]
"link/flapping.max_changes" = 4
"lossless/slow-receiver.max_tx_pause_share" = "5%"
[thresholds."topo/pcie-degraded"]
min_share = 0.5

[[acknowledged]]
id = "topo/pcie-degraded"
host = "gpu07"
reason = "riser card on order"
expires = 2027-06-30

[[acknowledged]]
id = "clock/*"
reason = "lab without NTP"
expires = "2027-01-01"
"""


def load(tmp_path: Path, text: str) -> site.Site:
    file = tmp_path / "site.toml"
    file.write_text(text, "utf-8")
    return site.load(file)


def errors(tmp_path: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(site.SiteError) as caught:
        load(tmp_path, text)
    assert all(error in str(caught.value) for error in caught.value.errors)
    return caught.value.errors


def test_everything_is_read(tmp_path: Path) -> None:
    read = load(tmp_path, GOOD)
    (contract_kind, contract), (class_kind, node_class) = read.facts
    assert (contract_kind, class_kind) == ("site_contract", "site_node_class")
    assert contract == {"priority": 3, "dscp": 26, "cnp_dscp": 48, "trust": "dscp", "lossless": True}
    assert node_class["link_gbps"] == 400.0
    assert read.thresholds == {
        "link/flapping.max_changes": 4,
        "lossless/slow-receiver.max_tx_pause_share": "5%",
        "topo/pcie-degraded.min_share": 0.5,
    }
    first, second = read.acknowledged
    assert first == site.Acknowledged("topo/pcie-degraded", "gpu07", "riser card on order", datetime.date(2027, 6, 30))
    assert (second.id, second.host, second.expires) == ("clock/*", None, datetime.date(2027, 1, 1))


def test_facts_conform_to_the_vocabulary(tmp_path: Path) -> None:
    for kind, fields in load(tmp_path, GOOD).facts:
        assert vocabulary().check(kind, fields) == []


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


def test_the_schema_accepts_what_is_read_and_refuses_what_is_not() -> None:
    schema = json.loads((Path(diagnose.__file__).parent / "site.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plain(tomllib.loads(GOOD)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"qoss": {}}, schema)
    names = schema["properties"]["node_class"]["items"]["properties"]
    assert set(names) <= set(vocabulary().kinds["site_node_class"].fields)


def test_all_faults_at_once_with_their_key_path(tmp_path: Path) -> None:
    told = errors(
        tmp_path,
        """
        treshold = 3
        [qos]
        prioritty = 3
        priority = 9
        dscp = true
        trust = "vlan"
        [[node_class]]
        gpus = "eight"
        gpu_nic_relation = "NEAR"
        link_gbps = -1
        [[node_class]]
        name = "a"
        [[node_class]]
        name = "a"
        [thresholds]
        flapping = 3
        "link/flapping.max_changes" = [1]
        [[acknowledged]]
        id = "flapping"
        host = ""
        [[acknowledged]]
        id = "link/flapping"
        reason = "x"
        expires = "soon"
        wherefore = "x"
        """,
    )
    starts = [error.split(":", 1)[0] for error in told]
    assert starts == [
        "treshold", "qos.prioritty", "qos.dscp", "qos.priority", "qos.trust", "node_class[0].gpus",
        "node_class[0].link_gbps", "node_class[0].name", "node_class[0].gpu_nic_relation", "node_class",
        "thresholds.flapping", "thresholds.link/flapping.max_changes", "acknowledged[0].id", "acknowledged[0].host",
        "acknowledged[0].reason", "acknowledged[0].expires", "acknowledged[1].wherefore", "acknowledged[1].expires",
    ]  # fmt: skip
    assert "did you mean 'thresholds'?" in told[0]
    assert "did you mean 'priority'?" in told[1]


@pytest.mark.parametrize("text", ["[qos", "qos = 3", "node_class = 3", "thresholds = []", "acknowledged = [1]"])
def test_wrong_shapes(tmp_path: Path, text: str) -> None:
    assert errors(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(site.SiteError, match="not TOML"):
        site.load(tmp_path / "site.toml")


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        site.load(tmp_path / "gone.toml")


def test_the_default_place(own_folders: Path) -> None:
    assert site.find() is None
    file = own_folders / "config" / "diagnose" / "site.toml"
    file.parent.mkdir(parents=True)
    file.write_text(GOOD)
    assert site.default_path() == file
    found = site.find()
    assert found is not None
    assert found.path == str(file)


def test_numbers_without_end_and_endless_faults_are_told_briefly(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f"[qos]\npriority = {'9' * 5000}\n")
    with pytest.raises(site.SiteError, match="not TOML"):
        site.load(file)
    file.write_text("".join(f"k{n} = 1\n" for n in range(5_000)))
    with pytest.raises(site.SiteError, match="and 4970 more") as caught:
        site.load(file)
    assert len(caught.value.errors) == 5_000

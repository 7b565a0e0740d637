"""The site file (`site.toml`): what this site expects, which thresholds it overrides, which findings it has accepted.

    [qos]                        # -> one site_contract fact
    priority = 3
    lossless = true

    [[node_class]]               # -> site_node_class facts
    name = "h100"
    gpus = 8

    [thresholds]
    "lossless/slow-receiver.max_tx_pause" = "10%"

    [[acknowledged]]
    id = "topo/pcie-degraded"
    host = "gpu07"
    reason = "RMA 4711, card comes in June"
    expires = 2027-06-30

site.schema.json describes it. Unknown keys are refused, and all errors are reported at once with their key path.
"""

from __future__ import annotations

import datetime
import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.model import Scalar

MAX_SIZE = 4 << 20

_QOS: Mapping[str, tuple[type, str]] = {
    "priority": (int, "a priority from 0 to 7"),
    "dscp": (int, "a DSCP from 0 to 63"),
    "cnp_dscp": (int, "a DSCP from 0 to 63"),
    "trust": (str, '"dscp" or "pcp"'),
    "lossless": (bool, "true or false"),
}
_RANGES = {"priority": range(8), "dscp": range(64), "cnp_dscp": range(64)}
_TRUST = ("dscp", "pcp")
_NODE_CLASS: Mapping[str, tuple[type, str]] = {
    "name": (str, "text"),
    "gpus": (int, "a number of GPUs"),
    "nics": (int, "a number of NICs"),
    "link_gbps": (float, "a link rate in Gbit/s"),
    "gpu_nic_relation": (str, "one of PIX, PXB, PHB, NODE, SYS"),
    "busbw_intra_gbps": (float, "a bus bandwidth in GB/s"),
    "busbw_inter_gbps": (float, "a bus bandwidth in GB/s"),
    "ib_write_gbps": (float, "a rate in Gbit/s"),
}
_RELATIONS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_ACKNOWLEDGED = ("id", "host", "reason", "expires")
_TOP = ("qos", "node_class", "thresholds", "acknowledged")
_THRESHOLD = re.compile(r"[a-z][a-z0-9-]*/[a-z0-9][a-z0-9-]*\.[a-z_][a-z0-9_]*")
_ID = re.compile(r"[a-z][a-z0-9-]*/(?:[a-z0-9][a-z0-9-]*|\*)")


_MAX_SHOWN = 30


class SiteError(ValueError):
    """Everything that is wrong with a site file; `errors` has one text per fault, each beginning with its key path."""

    def __init__(self, path: str, errors: Iterable[str]):
        self.errors = tuple(errors)
        shown = [f"{path}: {error}" for error in self.errors[:_MAX_SHOWN]]
        more = len(self.errors) - _MAX_SHOWN
        super().__init__("\n".join([*shown, f"{path}: and {more} more"] if more > 0 else shown))


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A finding that the site has accepted: rule id, host (None: any), why, and the last day that this holds."""

    id: str
    host: str | None
    reason: str
    expires: datetime.date


@dataclass(frozen=True, slots=True)
class Site:
    """A site file as read. `facts` are (kind, fields) for site_contract and site_node_class."""

    facts: tuple[tuple[str, Mapping[str, Scalar]], ...] = ()
    thresholds: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    acknowledged: tuple[Acknowledged, ...] = ()
    path: str = ""


def default_path() -> Path | None:
    """The site file of this user or machine (XDG: `diagnose/site.toml`), or None when there is none."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    folders = [Path(home) if home.startswith("/") else Path("~/.config")]
    system = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    folders += [Path(part) for part in system.split(":") if part.startswith("/")]
    for folder in folders:
        try:
            file = folder.expanduser() / "diagnose" / "site.toml"
            if file.is_file():
                return file
        except (OSError, RuntimeError):
            continue
    return None


def find() -> Site | None:
    """The site file at its default place, or None when there is none. Errors as `load`."""
    file = default_path()
    return load(file) if file else None


def load(path: str | Path) -> Site:
    """The site file at `path`. SiteError with every fault at once; OSError when it cannot be read."""
    file = Path(path)
    if file.stat().st_size > MAX_SIZE:
        raise SiteError(str(file), ["is larger than 4 MiB: is this a site file?"])
    try:
        raw = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # all of tomllib's, and numbers without end
        raise SiteError(str(file), [f"is not TOML: {error}"]) from error
    errors: list[str] = []
    _known(raw, _TOP, "", errors)
    facts: list[tuple[str, Mapping[str, Scalar]]] = []
    if "qos" in raw:
        facts.append(("site_contract", _qos(_table(raw["qos"], "qos", errors), errors)))
    for index, item in _tables(raw, "node_class", errors):
        facts.append(("site_node_class", _node_class(item, f"node_class[{index}]", errors)))
    names = [fields.get("name") for kind, fields in facts if kind == "site_node_class"]
    for name in sorted({str(n) for n in names if n is not None and names.count(n) > 1}):
        errors.append(f"node_class: the name {name!r} is used twice")
    thresholds = _thresholds(_table(raw.get("thresholds", {}), "thresholds", errors), errors)
    acknowledged = [
        _acknowledged(item, f"acknowledged[{i}]", errors) for i, item in _tables(raw, "acknowledged", errors)
    ]
    if errors:
        raise SiteError(str(file), errors)
    return Site(tuple(facts), thresholds, tuple(a for a in acknowledged if a is not None), str(file))


def _known(table: Mapping[str, Any], known: Iterable[str], where: str, errors: list[str]) -> None:
    names = list(known)
    for key in table:
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean '{close[0]}'?" if close else "known are " + ", ".join(names)
            errors.append(f"{_at(where, key)}: unknown key; {hint}")


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _table(value: Any, where: str, errors: list[str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    errors.append(f"{where}: must be a table, [{where}]")
    return {}


def _tables(raw: Mapping[str, Any], key: str, errors: list[str]) -> list[tuple[int, dict[str, Any]]]:
    value = raw.get(key, [])
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return list(enumerate(value))
    errors.append(f"{key}: must be a list of tables, [[{key}]]")
    return []


def _fields(
    table: Mapping[str, Any], spec: Mapping[str, tuple[type, str]], where: str, errors: list[str]
) -> dict[str, Scalar]:
    _known(table, spec, where, errors)
    fields: dict[str, Scalar] = {}
    for key, (kind, meaning) in spec.items():
        if key not in table:
            continue
        value = table[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        fits = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if not fits or (isinstance(value, int | float) and not 0 <= value < 1e9):
            errors.append(f"{_at(where, key)}: must be {meaning}, not {value!r:.60}")
        elif value == "":
            errors.append(f"{_at(where, key)}: must not be empty")
        else:
            fields[key] = value
    return fields


def _qos(table: Mapping[str, Any], errors: list[str]) -> dict[str, Scalar]:
    fields = _fields(table, _QOS, "qos", errors)
    for key, allowed in _RANGES.items():
        if key in fields and fields[key] not in allowed:
            errors.append(f"qos.{key}: must be {_QOS[key][1]}, not {fields[key]}")
    if "trust" in fields and fields["trust"] not in _TRUST:
        errors.append(f"qos.trust: must be {_QOS['trust'][1]}, not {fields['trust']!r:.60}")
    return fields


def _node_class(table: Mapping[str, Any], where: str, errors: list[str]) -> dict[str, Scalar]:
    fields = _fields(table, _NODE_CLASS, where, errors)
    if "name" not in table:
        errors.append(f"{where}.name: is missing")
    if "gpu_nic_relation" in fields and fields["gpu_nic_relation"] not in _RELATIONS:
        errors.append(f"{where}.gpu_nic_relation: must be one of PIX, PXB, PHB, NODE, SYS")
    return fields


def _thresholds(table: Mapping[str, Any], errors: list[str]) -> dict[str, Scalar]:
    """`"family/slug.name" = value`, or a table `["family/slug"]` of them below [thresholds]."""
    found: dict[str, Scalar] = {}
    for key, value in table.items():
        inner = value if isinstance(value, dict) else {"": value}
        for name, number in inner.items():
            full = f"{key}.{name}" if name else key
            if not _THRESHOLD.fullmatch(full):
                errors.append(
                    f'thresholds.{full}: must be named after its rule, such as "lossless/slow-receiver.max_tx_pause"'
                )
            elif not isinstance(number, int | float | str | bool):
                errors.append(f"thresholds.{full}: must be a number, text or true/false, not {number!r:.60}")
            else:
                found[full] = number
    return found


def _acknowledged(table: Mapping[str, Any], where: str, errors: list[str]) -> Acknowledged | None:
    _known(table, _ACKNOWLEDGED, where, errors)
    before = len(errors)
    rule, host, reason, expires = (table.get(key) for key in _ACKNOWLEDGED)
    if not isinstance(rule, str) or not _ID.fullmatch(rule):
        errors.append(f'{where}.id: must be a rule id such as "topo/pcie-degraded" or "topo/*"')
    if host is not None and (not isinstance(host, str) or not host):
        errors.append(f"{where}.host: must be a host name")
    if not isinstance(reason, str) or not reason.strip():
        errors.append(f"{where}.reason: is missing: say why this finding is accepted")
    if isinstance(expires, str):
        try:
            expires = datetime.date.fromisoformat(expires)
        except ValueError:
            expires = None
    if isinstance(expires, datetime.datetime):
        expires = expires.date()
    if not isinstance(expires, datetime.date):
        errors.append(
            f"{where}.expires: must be a date such as 2027-06-30, so that an exception does not outlive its reason"
        )
    if len(errors) > before:
        return None
    return Acknowledged(str(rule), host, str(reason).strip(), expires)  # type: ignore[arg-type]

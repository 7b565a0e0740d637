"""What the counters of a few NICs show in a single snapshot, in words: no rate, no judgement.

Somebody who pastes one `ethtool -S` asks whether it is clean. With many NICs or two snapshots the other tables answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Evidence, Fact, FactBase

MAX_DEVICES = 4
MAX_NAMED = 6
_TROUBLE = re.compile(
    r"crc|fcs|symbol|error|_err(?:s|_|$)|drop|discard|miss|pause|xoff|pfc|overrun|overflow|underrun|timeout|link_down|jabber"
    r"|no_buffer|out_of_buffer|no_frags|alloc_fail|allowance_exceeded|storm|wd_expired|queue_stop"
)
_NO_TROUBLE = re.compile(r"_xon|corrected|_bytes$|admin_q|resume")
_PRIORITY = re.compile(r"(?:[rt]x_prio(\d)_bytes|[rt]x_bytes_pri(\d)|frames_[rt]x_pri_(\d))\Z")
_JUMBO = re.compile(r"rx_(?:4096_to_8191|8192_to_10239)_bytes_phy|(?:port\.)?[rt]x_size_big")
_ENA = frozenset({"wd_expired", "tx_timeout"})


def derive(base: FactBase) -> Iterator[Fact]:
    """`nic_reading` of each NIC, where there are few and each was read once."""
    read: dict[tuple[str, str], dict[str, tuple[int, tuple[Evidence, ...]]]] = {}
    for o in base.observations:
        if o.kind != "nic_counter" or "ring" in o.fields:
            continue
        key = str(o.fields.get("host", "")), str(o.fields["device"])
        names = read.setdefault(key, {})
        name, value = str(o.fields["name"]), o.fields["value"]
        if name in names or not isinstance(value, int):
            return
        names[name] = value, o.evidence
        if len(read) > MAX_DEVICES:
            return
    for (host, device), names in sorted(read.items()):
        yield _reading(host, device, names)


def _reading(host: str, device: str, names: dict[str, tuple[int, tuple[Evidence, ...]]]) -> Fact:
    above = {n: v for n, (v, _) in names.items() if v and _TROUBLE.search(n) and not _NO_TROUBLE.search(n)}
    said = [_named(above)]
    fields: dict[str, str | int | float | bool] = {"device": device, "quiet": not above}
    if host:
        fields["host"] = host
    priorities = _priorities(names)
    if priorities is not None:
        fields["priorities"] = ",".join(priorities)
        word = "priority" if len(priorities) == 1 else "priorities"
        said.append(f"all bytes in {word} {', '.join(priorities)}" if priorities else "no priority carried bytes")
    sizes = {n: v for n, (v, _) in names.items() if _JUMBO.match(n)}
    if sizes:
        fields["jumbo"] = any(sizes.values())
        said.append("jumbo frames were received or sent" if fields["jumbo"] else "no jumbo frames")
    if names.keys() >= _ENA and not any("allowance" in n for n in names):
        said.append("no allowance counters in this output, so limits of the instance cannot be judged (old driver)")
    fields["text"] = "; ".join(said)
    shown = [e for n in list(above)[:3] for e in names[n][1]] or [e for _, e in list(names.values())[:1] for e in e]
    return Fact("", "nic_reading", fields, tuple(shown[:3]))


def _named(above: dict[str, int]) -> str:
    if not above:
        return "no error, drop, discard or pause counter is above 0"
    largest = sorted(above.items(), key=lambda item: -item[1])[:MAX_NAMED]
    more = f" and {len(above) - len(largest)} more" if len(above) > len(largest) else ""
    return f"above 0: {', '.join(f'{name} {value}' for name, value in largest)}{more}"


def _priorities(names: dict[str, tuple[int, tuple[Evidence, ...]]]) -> list[str] | None:
    found = {next(g for g in m.groups() if g): v for n, (v, _) in names.items() if (m := _PRIORITY.match(n)) and v}
    if not any(_PRIORITY.match(n) for n in names):
        return None
    return sorted(found)

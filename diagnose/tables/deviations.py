"""Hosts that differ from the majority of the job, or from the site's contract.

With three or more hosts the value that more than half of them share is the reference; with two, or without a majority,
it is a *tie*: they differ, and nothing says who is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnose.model import Evidence, Fact, FactBase, Value, fold_ranks

MAX_DEVIATIONS = 50
"""Deviating hosts reported per subject and item; more than this is no deviation but a second population."""
MAX_NAMED = 8
"""Hosts of a tie that are named."""


@dataclass(frozen=True)
class Subject:
    """What is compared: `field` of `kind`, separately for each `item` field; only facts where `only` holds."""

    name: str
    kind: str
    field: str
    item: str | None = None
    only: tuple[str, Value] | None = None


SUBJECTS = (
    Subject("nccl_version", "nccl_version", "version"),
    Subject("nccl_env", "nccl_env", "value", "name"),
    Subject("net_devices", "nccl_net_list", "devices", "network"),
    Subject("network", "nccl_network", "name"),
    Subject("pfc", "qos_pfc", "priorities", "device"),
    Subject("trust", "qos_trust", "trust", "device"),
    Subject("mtu", "ip_interface", "mtu", "device", ("type", "physical")),
    Subject("active_mtu", "rdma_port", "active_mtu", "device"),
    Subject("clocksource", "clocksource", "current"),
    Subject("link_speed", "nic_link", "speed_mbps", "device"),
    Subject("link_rate", "rdma_port", "rate_gbps", "device"),
    Subject("nic_driver", "nic_driver", "version", "device"),
    Subject("nic_firmware", "nic_driver", "firmware", "device"),
    Subject("gpu_driver", "gpu", "driver"),
    Subject("relaxed_ordering", "nccl_net_device", "relaxed_ordering", "device"),
    Subject("max_read_request", "pcie_link", "max_read_request", "bus_id", ("role", "nic")),
    Subject("governor", "host_limit", "value", None, ("name", "governor")),
)

PER_PROCESS_VARIABLES = frozenset({
    "NCCL_COMM_ID", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_GRAPH_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE",
    "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_RAS_ADDR", "NCCL_OOB_NET_IFNAME",
})  # fmt: skip
"""Variables that may differ between processes by design: they name files, hosts or only change logging."""


def derive(base: FactBase) -> Iterator[Fact]:
    """`deviation` facts for every subject."""
    contract = {f.kind: f for f in base.facts if f.kind == "site_contract"}.get("site_contract")
    for subject in SUBJECTS:
        yield from _compare(base, subject, contract)
    yield from _gpu_counts(base)
    yield from _rails(base)


def _compare(base: FactBase, subject: Subject, contract: Fact | None) -> Iterator[Fact]:
    values: dict[str, dict[str, dict[str, list[Fact]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    reporting: set[str] = set()
    for o in base.observations:
        host, value = o.fields.get("host"), o.fields.get(subject.field)
        if o.kind != subject.kind or host is None or value is None:
            continue
        if subject.only and o.fields.get(subject.only[0]) != subject.only[1]:
            continue
        reporting.add(str(host))
        item = str(o.fields.get(subject.item, "")) if subject.item else ""
        if subject.name == "nccl_env" and item in PER_PROCESS_VARIABLES:
            continue
        values[item][str(host)][_text(value)].append(o)
    for item, by_host in sorted(values.items()):
        if subject.name == "nccl_env":
            for host in reporting - by_host.keys():
                by_host[host]["(not set)"] = []
        yield from _deviations(subject.name, item or subject.name, by_host, _wanted(subject.name, contract))


def _wanted(subject: str, contract: Fact | None) -> str | None:
    """Value that the site's contract demands, where it has a word on the subject."""
    if contract is None:
        return None
    if subject == "trust":
        value = contract.fields.get("trust")
    elif subject == "pfc" and contract.fields.get("lossless") is not False:
        value = contract.fields.get("priority")
    else:
        value = None
    return None if value is None else _text(value)


def _deviations(
    subject: str, item: str, by_host: dict[str, dict[str, list[Fact]]], wanted: str | None
) -> Iterator[Fact]:
    texts = {host: " | ".join(sorted(found)) for host, found in by_host.items()}
    counts = Counter(texts.values())
    if wanted is None and len(counts) < 2:
        return
    top, votes = counts.most_common(1)[0]
    if wanted is not None:
        reference, majority = "contract", wanted
    elif len(texts) >= 3 and votes * 2 > len(texts):
        reference, majority = "majority", top
    else:
        reference, majority = "tie", "; ".join(f"{value} ({count})" for value, count in counts.most_common(4))
    different = [h for h in sorted(texts) if texts[h] != majority]
    for host in different[:MAX_DEVIATIONS]:
        observations = [o for found in by_host[host].values() for o in found]
        fields: dict[str, Value] = {
            "host": host, "subject": subject, "item": item, "value": texts[host], "majority": majority,
            "hosts_same": counts[texts[host]], "hosts_majority": counts.get(majority, 0), "reference": reference,
            "who": ", ".join(different[:MAX_NAMED]) if reference == "tie" else host,
            "what": _what(host, texts, majority, reference, different),
        }  # fmt: skip
        ranks = {int(r) for o in observations if isinstance(r := o.fields.get("rank"), int)}
        if ranks:
            fields["ranks"] = fold_ranks(ranks)
        yield Fact("", "deviation", fields, _evidence(observations))


def _what(host: str, texts: Mapping[str, str], majority: str, reference: str, different: Sequence[str]) -> str:
    """The difference in words; a tie names everybody and nobody as wrong."""
    if reference == "tie":
        sides = ", ".join(f"{h}: {texts[h] or 'none'}" for h in different[:MAX_NAMED])
        return f"{sides} (nothing in these files says which is right)"
    others = "the site's contract" if reference == "contract" else f"{list(texts.values()).count(majority)} others"
    return f"{host}: {texts[host] or 'none'} ({others}: {majority or 'none'})"


def _gpu_counts(base: FactBase) -> Iterator[Fact]:
    """GPUs per host as the longest whole list shows them; a list that is cut or torn counts nothing."""
    torn = {p.source for p in base.problems}
    lists: dict[str, dict[str, dict[str, Fact]]] = defaultdict(lambda: defaultdict(dict))
    for o in base.observations:
        if o.kind == "gpu" and "host" in o.fields:
            source = o.evidence[0].source if o.evidence else ""
            if source not in torn:
                gpu = str(o.fields.get("bus_id", o.fields.get("index"))).lower()[-7:]
                lists[str(o.fields["host"])][source].setdefault(gpu, o)
    by_host: dict[str, dict[str, list[Fact]]] = {}
    for host, found in lists.items():
        longest = max(found.values(), key=len)
        by_host[host] = {str(len(longest)): list(longest.values())[:1]}
    if by_host:
        yield from _deviations("gpu_count", "gpus", by_host, None)


def _rails(base: FactBase) -> Iterator[Fact]:
    """NICs cabled to the leaf of another rail: a switch that most hosts reach through a NIC of another name.

    Other switches are other racks or pods, and say nothing.
    """
    cabled: dict[str, dict[str, dict[str, Fact]]] = defaultdict(lambda: defaultdict(dict))
    for o in base.observations:
        if o.kind == "lldp_neighbour" and "host" in o.fields:
            cabled[str(o.fields["device"])][str(o.fields["host"])].setdefault(str(o.fields["switch"]), o)
    own: dict[str, tuple[str, int]] = {}
    for device, by_host in cabled.items():
        counts = Counter(switch for switches in by_host.values() for switch in switches)
        leaf, votes = counts.most_common(1)[0]
        if len(by_host) >= 3 and votes * 2 > len(by_host):
            own[device] = leaf, votes
    rails: dict[str, set[str]] = defaultdict(set)
    for device, (leaf, _) in own.items():
        rails[leaf].add(device)
    for device, (leaf, votes) in sorted(own.items()):
        for host, switches in sorted(cabled[device].items()):
            for switch, seen in switches.items():
                if leaf not in switches and rails[switch]:
                    fields: dict[str, Value] = {
                        "host": host, "subject": "rail_switch", "item": device, "value": switch, "majority": leaf,
                        "hosts_same": sum(switch in s for s in cabled[device].values()), "hosts_majority": votes,
                        "reference": "majority", "who": host, "what": f"{host}: {switch} ({votes} others: {leaf})",
                    }  # fmt: skip
                    yield Fact("", "deviation", fields, _evidence([seen]))


def _evidence(observations: list[Fact]) -> tuple[Evidence, ...]:
    return tuple(e for o in observations[:3] for e in o.evidence[:1])


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)

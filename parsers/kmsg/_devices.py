"""Devices: PCIe, IOMMU, ConnectX NICs and their links."""

from __future__ import annotations

import re

from ._event import BDF, Event, Handler, Match, Recogniser, event, named


def _aer_severity(text: str) -> str:
    low = text.lower()
    if low.startswith("correct"):
        return "corrected"
    return "uncorrected" if "non-fatal" in low or "fatal" not in low else "fatal"


def _aer(m: Match, message: str) -> Event:
    severity = _aer_severity(m["severity"])
    return event("aer", message, m["device"].lower(), severity, device=m["device"].lower(), severity=severity)


def _aer_announced(m: Match, message: str) -> Event:
    found = _aer(m, message)
    found.weak = True
    return found


_NOTICE = re.compile(r"severity\([4-7]\)")


def _mlx5_health(m: Match, message: str) -> Event | None:
    """Firmware also reports warnings and notes (syslog severities 4 to 7); those are no failure."""
    return None if _NOTICE.search(message) else named("mlx5_health")(m, message)


def _probe_failed(m: Match, message: str) -> Event | None:
    """A probe that is deferred (EPROBE_DEFER, -517) is tried again."""
    return None if m["errno"] == "-517" else event("nic_probe_failed", message, m["device"], device=m["device"])


_DRIVER = re.compile(r"\s{0,4}(?P<driver>[a-z]\w{1,24}):? [0-9a-fA-F][0-9a-fA-F:.-]{2,20}[:, ]")


def _link(name: str) -> Handler:
    """Links of one device; the driver is printed before the address on the bus."""
    handle = named(name)

    def tell(m: Match, message: str) -> Event | None:
        found, driver = handle(m, message), _DRIVER.match(message)
        if found is not None and driver is not None:
            found.fields["driver"] = driver["driver"]
        return found

    return tell


_INTERFACE = r"(?P<device>[A-Za-z][\w.@-]{1,31})"


RECOGNISERS: tuple[Recogniser, ...] = (
    (
        "PCIe Bus Error",
        re.compile(rf"(?P<device>{BDF}): (?:AER: )?PCIe Bus Error: severity=(?P<severity>[A-Za-z() -]{{4,40}}),"),
        _aer,
    ),
    (
        "AER: ",
        re.compile(
            r"AER: (?:Multiple )?(?P<severity>(?:Unc|C)orrect(?:ed|able)(?: \((?:Non-)?Fatal\))?) error (?:message )?"
            rf"received(?: from|:) (?P<device>{BDF})"
        ),
        _aer_announced,
    ),
    (
        "available PCIe bandwidth, limited by",
        re.compile(rf"(?P<device>{BDF})(?: [^:]{{1,40}})?: [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by"),
        named("pcie_bandwidth"),
    ),
    (
        "DMAR: [DMA",
        re.compile(r"DMAR: \[DMA (?:Read|Write)[^\]]{0,30}\] Request device \[(?P<device>[0-9a-fA-F:.]{4,16})\]"),
        named("iommu_fault"),
    ),
    (
        "AMD-Vi: Event logged",
        re.compile(
            r"(?:(?P<device>[0-9a-fA-F]{4}:[0-9a-fA-F:.]{4,12}): )?AMD-Vi: Event logged \["
            r"(?:IO_PAGE_FAULT|INVALID_DEVICE)"
        ),
        named("iommu_fault"),
    ),
    ("Unhandled context fault", re.compile(r"arm-smmu.{0,60}Unhandled context fault"), named("iommu_fault")),
    (
        "High ",
        re.compile(rf"mlx5_core (?P<device>{BDF}).{{0,80}}High [Tt]emperature"),
        named("thermal"),
    ),
    (
        "Port module event",
        re.compile(rf"mlx5_core (?P<device>{BDF}).{{0,60}}Port module event\[error\]: module \d{{1,3}}, Cable error"),
        named("cable_error"),
    ),
    (
        "Cable unplugged",
        re.compile(rf"mlx5_core (?P<device>{BDF}).{{0,60}}Port module event: module \d{{1,3}}, Cable unplugged"),
        named("cable_unplugged"),
    ),
    (
        "insufficient power",
        re.compile(rf"mlx5_core (?P<device>{BDF}).{{0,120}}Detected insufficient power on the PCIe slot"),
        named("nic_power"),
    ),
    (
        "ealth",
        re.compile(
            rf"mlx5_core (?P<device>{BDF}).{{0,120}}(?:Health issue observed|health compromised|health recovery flow|"
            r"health recovery failed)"
        ),
        _mlx5_health,
    ),
    (
        "mlx5_core ",
        re.compile(
            rf"mlx5_core (?P<device>{BDF}).{{0,120}}(?:Fatal error \d{{1,3}} detected|firmware internal error|"
            r"mlx5_enter_error_state)"
        ),
        _mlx5_health,
    ),
    (
        "imeout",
        re.compile(
            rf"mlx5_core (?P<device>{BDF})(?: [^:]{{1,40}})?: .{{0,120}}(?:TX timeout|timeout\. Will cause a leak)"
        ),
        named("mlx5_timeout"),
    ),
    (
        "NETDEV WATCHDOG",
        re.compile(rf"NETDEV WATCHDOG: (?:CPU: \d{{1,5}}: )?{_INTERFACE} \(mlx5_core\w{{0,8}}\): transmit queue"),
        named("mlx5_timeout"),
    ),
    (
        "Link down",
        re.compile(rf"(?:mlx5_core|mlx4_en):? [0-9a-fA-F:.]{{7,16}},? {_INTERFACE}: Link down"),
        _link("link_down"),
    ),
    (
        "Link up",
        re.compile(rf"(?:mlx5_core|mlx4_en):? [0-9a-fA-F:.]{{7,16}},? {_INTERFACE}: Link up"),
        _link("link_up"),
    ),
    ("ink is ", re.compile(rf"{_INTERFACE}: (?:NIC )?[Ll]ink is [Dd]own"), _link("link_down")),
    ("ink is ", re.compile(rf"{_INTERFACE}: (?:NIC )?[Ll]ink is [Uu]p"), _link("link_up")),
    (
        "link status definitely down",
        re.compile(rf"(?:slave|interface) {_INTERFACE}\)?:? link status definitely down"),
        _link("link_down"),
    ),
    (
        "link status definitely up",
        re.compile(rf"(?:slave|interface) {_INTERFACE}\)?:? link status definitely up"),
        _link("link_up"),
    ),
    (
        "mlx5_core: probe of ",
        re.compile(rf"mlx5_core: probe of (?P<device>{BDF}) failed with error (?P<errno>-\d{{1,4}})"),
        _probe_failed,
    ),
    (
        "probe with driver mlx5_core failed",
        re.compile(
            rf"mlx5_core (?P<device>{BDF}): probe with driver mlx5_core failed with error (?P<errno>-\d{{1,4}})"
        ),
        _probe_failed,
    ),
    (
        "async reg mr failed",
        re.compile(r"(?:infiniband )?(?P<device>[\w-]{2,32}): .{0,80}async reg mr failed\. status"),
        named("rdma_refused"),
    ),
    (
        "Failed to process command ",
        re.compile(
            r"(?:infiniband |efa [0-9a-fA-F:.]{7,16} )?(?P<device>[\w-]{2,32}): Failed to process command"
            r" (?:ALLOC_PD|REG_MR|CREATE_QP|CREATE_CQ) \(opcode"
        ),
        named("rdma_refused"),
    ),
    (
        "error cqe",
        re.compile(r"infiniband (?P<device>[\w-]{2,32}): .{0,60}(?:Respond[eo]r|Request[eo]r|dump) error cqe"),
        named("rdma_event"),
    ),
)

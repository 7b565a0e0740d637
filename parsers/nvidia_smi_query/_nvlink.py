"""`nvidia-smi nvlink -s`, `nvidia-smi nvlink -e` and `nvidia-smi -L`.

Only replay, recovery and CRC errors are summed: forward-error-correction bins of newer drivers count normal traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.model import Line, Record, Source
from diagnose.parsing import evidence

HEADER = re.compile(r"^\s{0,4}GPU (\d{1,3}): (\S[^\n]{0,80}?) \(UUID: ([^()\n]{1,60})\)", re.M)
"""People take the UUID out before they show it to others."""
_LINK = re.compile(r"^\s{0,12}Link (\d{1,3}):\s*(.{0,80})$")
_ALL_DOWN = re.compile(r"all links are inActive", re.I)
_ERRORS = re.compile(r"(?:Replay|Recovery|CRC) Errors: (\d{1,18})")
_SPEED = re.compile(r"\d{1,4}(?:\.\d{1,4})? GB/s")


class _Gpu:
    def __init__(self, index: int, name: str, uuid: str, line: Line) -> None:
        self.index, self.name, self.uuid = index, name, uuid
        self.first = self.last = line
        self.active: set[int] = set()
        self.inactive: set[int] = set()
        self.errors: int | None = None
        self.errors_line: Line | None = None
        self.inactive_line: Line | None = None
        self.all_down = False

    def link(self, number: int, said: str, line: Line) -> bool:
        """Take in one `Link N: …`; False when it says nothing that is kept."""
        errors = _ERRORS.fullmatch(said)
        if errors:
            count = int(errors.group(1))
            self.errors = (self.errors or 0) + count
            if count and self.errors_line is None:
                self.errors_line = line
        elif _SPEED.fullmatch(said):
            self.active.add(number)
        elif said in ("", "<inactive>", "inactive", "&lt;inactive&gt;"):
            self.inactive.add(number)
            self.inactive_line = self.inactive_line or line
        else:
            return False
        self.last = line
        return True

    def records(self, source: Source) -> Iterator[Record]:
        fields: dict[str, int] = {"gpu": self.index}
        if self.active or self.inactive or self.all_down:
            fields["active"] = len(self.active)
            if not self.all_down or self.inactive:
                fields["inactive"] = len(self.inactive)
        if self.errors is not None:
            fields["errors"] = self.errors
        telling = self.errors_line or self.inactive_line or (self.last if self.all_down else None)
        grounds = [evidence(source, self.first)]
        if telling is not None and telling.number != self.first.number:
            grounds.append(evidence(source, telling))
        if len(fields) > 1:
            yield Record("nvlink_state", fields, tuple(grounds))
        gpu: dict[str, str | int] = {"index": self.index, "name": self.name}
        if self.uuid.startswith("GPU-") and "-" in self.uuid[4:]:
            gpu["uuid"] = self.uuid
        yield Record("gpu", gpu, (grounds[0],))


def read(lines: list[Line], source: Source) -> Iterator[Record]:
    """`nvlink_state` of every GPU with links, and `gpu` for each header line; repeated blocks of a GPU are joined."""
    gpus: dict[tuple[int, str], _Gpu] = {}
    gpu: _Gpu | None = None
    for line in lines:
        text = line.text
        m = HEADER.match(text) if "(UUID: " in text else None
        if m:
            key = (int(m.group(1)), m.group(3))
            if key not in gpus and len(gpus) >= 1_024:
                continue
            gpu = gpus.setdefault(key, _Gpu(key[0], m.group(2), key[1], line))
            continue
        if gpu is None or not text.strip():
            continue
        link = _LINK.match(text.rstrip())
        if link and (link.group(2).strip() or line is not lines[-1]):  # the last line may have been cut
            gpu.link(int(link.group(1)), link.group(2).strip(), line)
        elif _ALL_DOWN.search(text):
            gpu.all_down = True
            gpu.last = line
    for gpu in gpus.values():
        yield from gpu.records(source)

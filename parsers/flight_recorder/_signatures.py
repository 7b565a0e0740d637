"""Short codes for what a collective is: operation, sizes and datatype, as far as these must agree between ranks."""

from __future__ import annotations

import re
import zlib
from array import array
from typing import Any

from ._shape import short

MAX_SIGNATURES = 200
MAX_TENSORS = 16
UNKNOWN = 0

_UNEVEN = re.compile(
    r"all_?to_?all|scatter(?!_base)(?<!reduce_scatter)$|gather$(?<!all_gather)(?<!allgather)", re.IGNORECASE
)


_DATATYPE = re.compile(
    r"Byte|Char|Short|U?Int(?:\d{1,2})?|Long|Half|Float|Double|BFloat16|Bool|Undefined|Complex(?:Half|Float|Double)"
    r"|Float[48]_\w{1,20}|QU?Int\w{1,8}|Bits\w{1,8}"
)
"""Names of torch's scalar types (torch 2.2 to 2.14)."""
_WITHOUT_TENSORS = re.compile(r"barrier|coalesced|allreduce_sparse", re.IGNORECASE)


class Signatures:
    """Codes of signatures; code 0 is a signature that cannot be read, or that lacks its datatype or sizes."""

    def __init__(self) -> None:
        self._typed = False
        self._codes: dict[tuple[Any, ...], int] = {}
        self.texts: dict[int, str] = {}

    def code(self, entry: dict[str, Any]) -> int:
        """The code of an entry's operation, sizes and datatypes."""
        try:
            inputs, outputs = entry["input_sizes"], entry["output_sizes"]
            dtypes = entry.get("input_dtypes", ())
            if len(inputs) == 1 and len(outputs) == 1 and len(dtypes) == 1 and type(dtypes[0]) is str:
                key: tuple[Any, ...] = (
                    entry["profiling_name"], array("q", inputs[0]).tobytes(), array("q", outputs[0]).tobytes(),
                    dtypes[0],
                )  # fmt: skip
            elif all(type(d) is str for d in dtypes[:MAX_TENSORS]):
                key = self._key(entry, inputs, outputs, dtypes)
            else:
                return UNKNOWN
            known = self._codes.get(key)
        except (KeyError, TypeError, OverflowError):
            return UNKNOWN
        if known is None:
            self._typed |= "input_dtypes" in entry
            if not self._complete(entry):
                self._codes[key] = UNKNOWN
                return UNKNOWN
            text = signature_text(entry)
            known = zlib.crc32(text.encode("utf-8", "replace")) or 1
            self._codes[key] = known
            if len(self.texts) < MAX_SIGNATURES:
                self.texts[known] = text
        return known

    def _complete(self, entry: dict[str, Any]) -> bool:
        """Whether it tells what must be compared. Dumps of old versions have no datatypes at all."""
        inputs, outputs, dtypes = entry["input_sizes"], entry["output_sizes"], entry.get("input_dtypes")
        if dtypes is None:
            return not self._typed
        if not all(_DATATYPE.fullmatch(d) for d in dtypes[:MAX_TENSORS]):
            return False
        if _UNEVEN.search(operation(entry["profiling_name"][:80])):
            return bool(dtypes)
        if not inputs or not outputs or not dtypes:
            bare = not inputs and not outputs and not dtypes
            return bare and bool(_WITHOUT_TENSORS.search(short(entry["profiling_name"], 80)))
        return len(dtypes) == len(inputs)

    @staticmethod
    def _key(entry: dict[str, Any], inputs: list[Any], outputs: list[Any], dtypes: list[Any]) -> tuple[Any, ...]:
        return (
            entry["profiling_name"],
            tuple([array("q", s).tobytes() for s in inputs[:MAX_TENSORS]]),
            tuple([array("q", s).tobytes() for s in outputs[:MAX_TENSORS]]),
            len(inputs), len(outputs), *dtypes[:MAX_TENSORS],
        )  # fmt: skip


def operation(name: str) -> str:
    """`nccl:all_reduce` as all_reduce."""
    return name.partition(":")[2] or name


def signature_text(entry: dict[str, Any]) -> str:
    """Operation, sizes and datatype, as far as they must agree between ranks."""
    op = operation(str(entry["profiling_name"])[:80])
    dtypes = {d[:20] for d in entry.get("input_dtypes", ())[:MAX_TENSORS] if isinstance(d, str)}
    dtype = " ".join(sorted(dtypes))
    if _UNEVEN.search(op):
        return f"{op} {dtype}".strip()
    inputs, outputs = _sizes(entry["input_sizes"]), _sizes(entry["output_sizes"])
    if op in ("all_gather", "ALLGATHER"):
        inputs = outputs
    elif op in ("reduce_scatter", "REDUCE_SCATTER"):
        outputs = inputs
    sizes = inputs if inputs == outputs else f"{inputs} -> {outputs}"
    return f"{op} {sizes} {dtype}".strip()


def _sizes(sizes: list[list[int]]) -> str:
    text = "".join("[" + ",".join(map(str, s[:8])) + ("…" if len(s) > 8 else "") + "]" for s in sizes[:4])
    return text + (f"… {len(sizes)} tensors" if len(sizes) > 4 else "")

"""What torchrun (and torch.distributed.launch) says about the processes it started, torch 1.9 and later."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from diagnose.parsing import parse_time

from ._head import Segment
from ._traceback import follow
from ._window import Window

_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d{1,9})\)"
)
_KEY = re.compile(r"\s*(?P<key>time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(?P<value>.*)$")
_INDEX = re.compile(r"\s*\[\d{1,6}\]:\s*$")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,5})\)")
_CODE = re.compile(r"(-?\d{1,5}) \(pid: (\d{1,9})\)")
_CALLED = re.compile(
    r"CalledProcessError: Command .{0,4000}"
    r"(?:exit status (?P<code>\d{1,3})|<Signals\.(?P<name>SIG\w{2,8}): (?P<number>\d{1,2})>)"
)
_DEATH = re.compile(
    r"Received (?:Signals\.)?(?P<signal>SIG\w{2,8}|\d{1,2}) death signal|got signal: (?P<number>\d{1,2})"
)

_CLOSING = re.compile(r"Sending process (\d{1,9}) closing signal (SIG\w{2,8})")

SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU",
}  # fmt: skip
_MAX_KEYS = 6
_CRASHES = ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV")


def exit_fields(code: int | None, signal: str | None = None) -> dict[str, Any]:
    """exit_code, signal and reason of an exit; negative codes are signals. SIGKILL is 'killed': by whom is not said."""
    if code is not None and code < 0:
        signal = SIGNALS.get(-code, f"signal {-code}")
    fields: dict[str, Any] = {"exit_code": code, "signal": signal}
    if signal in _CRASHES:
        fields["reason"] = "crashed"
    elif signal in ("SIGTERM", "SIGINT", "SIGHUP"):
        fields["reason"] = "cancelled"
    elif signal:
        fields["reason"] = "killed"
    elif code:
        fields["reason"] = "error"
    return fields


@dataclass(slots=True)
class Exit:
    """One process exit; the record of the failure report replaces the short line about the same process."""

    fields: dict[str, Any]
    first: int
    last: int
    rank: int | None = None
    host: str | None = None
    at: float | None = None


def short_line(text: str, index: int) -> Exit | None:
    """`failed (exitcode: 1) local_rank: 4 (pid: 4242) of binary: …`."""
    m = _FAILED.search(text)
    if m is None or int(m["code"]) == 0:
        return None
    fields = exit_fields(int(m["code"])) | {"local_rank": int(m["local"]), "pid": int(m["pid"])}
    said = text.strip() if m.end() <= 300 else text[m.start() :]
    fields |= {"reporter": "torchrun", "text": said[:300].rstrip()}
    return Exit(fields, index, index)


def called_process(text: str, index: int) -> Exit | None:
    """The exception of torch.distributed.launch (torch 1.8 and older) about its child."""
    m = _CALLED.search(text)
    if m is None:
        return None
    code = int(m["code"]) if m["code"] else -int(m["number"])
    return Exit(exit_fields(code) | {"reporter": "torchrun", "text": text.strip()[-300:]}, index, index)


def death_signal(text: str) -> str | None:
    """Signal that the launcher itself received."""
    m = _DEATH.search(text)
    if m is None:
        return None
    word = m["signal"] or m["number"]
    return SIGNALS.get(int(word), f"signal {word}") if word.isdigit() else word


def closing_signal(text: str) -> dict[str, Any] | None:
    """Process that torchrun ends because another one of its host failed, and the signal."""
    m = _CLOSING.search(text)
    return {"pid": int(m[1]), "signal": m[2]} if m else None


def torn_report(window: Window, index: int) -> list[Exit]:
    """The process of a report whose heading is missing: the `key : value` lines around the `exitcode` line `index`."""
    start = last = index
    while start > 0 and index - start < _MAX_KEYS and _KEY.match(window.segment(start - 1).text):
        start -= 1
    while last + 1 < len(window.lines) and last - index < _MAX_KEYS and _KEY.match(window.segment(last + 1).text):
        last += 1
    entry: dict[str, str] = {}
    for line in range(start, last + 1):
        m = _KEY.match(window.segment(line).text)
        if m:
            entry.setdefault(m["key"], m["value"].strip())
    return _exit(entry, start, last, False)


def report(window: Window, index: int, segment: Segment) -> tuple[list[Exit], list[int]]:
    """The processes of a failure report that starts on line `index` (`Failures:` or `Root Cause (first …):`).

    Returns them with the indices of the lines read; the tracebacks inside are left for the traceback reader.
    """
    found: list[Exit] = []
    used = [index]
    first_failure = "Root Cause (first" in segment.text
    entry: dict[str, str] = {}
    start = last = index
    lead = (
        segment.text.partition("Root Cause")[0]
        if "Root Cause" in segment.text
        else segment.text.partition("Failures:")[0]
    )
    for following, text in follow(window, index, segment, lead):
        stripped = text.strip()
        if stripped.startswith(("====", "****")) or (stripped and not _is_report_line(text, entry)):
            break
        used.append(following)
        if stripped.startswith("Root Cause"):
            found += _exit(entry, start, last, first_failure)
            entry, first_failure = {}, "(first" in stripped
        elif _INDEX.match(text):
            found += _exit(entry, start, last, first_failure)
            entry, start = {}, following
        else:
            m = _KEY.match(text)
            if m and m["key"] not in entry:
                entry[m["key"]] = m["value"].strip()
                last = following
                if m["key"] == "traceback" and "Traceback (most" in m["value"]:
                    used.pop()
    found += _exit(entry, start, last, first_failure)
    return found, used


def _is_report_line(text: str, entry: dict[str, str]) -> bool:
    stripped = text.strip()
    if stripped.startswith(("----", "<NO_OTHER_FAILURES>", "Failures:", "Other Failures:", "Root Cause")):
        return True
    return bool(_INDEX.match(text) or _KEY.match(text)) or ("traceback" in entry and text.startswith("  "))


def _exit(entry: dict[str, str], start: int, last: int, first_failure: bool) -> list[Exit]:
    code, rank = _CODE.match(entry.get("exitcode", "")), _RANK.match(entry.get("rank", ""))
    if code is None or int(code.group(1)) == 0:
        return []
    fields = exit_fields(int(code.group(1))) | {"pid": int(code.group(2)), "reporter": "torchrun"}
    if rank:
        fields["local_rank"] = int(rank.group(2))
    if first_failure:
        fields["first_failure"] = True
    text = entry.get("traceback") or entry.get("msg", "")
    error_file = entry.get("error_file", "<N/A>")
    if text.startswith(("To enable traceback", "Traceback (most recent")):
        text = ""
    if error_file not in ("<N/A>", ""):
        text = f"{text} (error file {error_file})".strip()
    if text:
        fields["text"] = text[:300]
    at, _ = parse_time(entry.get("time", "").replace("_", "T"))
    return [Exit(fields, start, last, int(rank.group(1)) if rank else None, entry.get("host") or None, at)]

"""Copying, also over SSH and inside tmux; every copy also lands in a file, and the user is told where it went."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from .notes import state_folder

TMUX_SECONDS = 2.0


def clean_copy(text: str) -> str:
    """What may enter a clipboard: no controls but line breaks and tabs, so pasting never does more than typing."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def copy(text: str, osc52: Callable[[str], None], folder: Path | None = None) -> str:
    """Copy by tmux where there is one, else by an OSC 52 sequence; append to a file too. Tells what was done."""
    text = clean_copy(text)
    count = text.count("\n") + (not text.endswith("\n"))
    told = [f"{count} line{'s' if count != 1 else ''} copied:"]
    where = _tmux(text)
    if where:
        told.append(where)
    else:
        osc52(text)
        told.append("terminal clipboard (OSC 52)")
    try:
        path = (folder or state_folder()) / "copied.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "a", encoding="utf-8") as out:
            out.write(text if text.endswith("\n") else text + "\n")
        told.append(f"and file {path}")
    except OSError as error:
        told.append(f"but not to a file: {error.strerror}")
    return " ".join(told)


def _tmux(text: str) -> str:
    """Hand text to the tmux around us and tell where it went; nothing where there is no tmux or it refuses."""
    if not os.environ.get("TMUX"):
        return ""
    # tmux before 3.2 has no -w, which also sets the clipboard of the terminal outside
    for options, where in ((["-w"], "tmux buffer and clipboard"), ([], "tmux buffer")):
        try:
            command = ["tmux", "load-buffer", *options, "-"]
            done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=TMUX_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if done.returncode == 0:
            return where
    return ""

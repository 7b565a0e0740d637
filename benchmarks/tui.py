#!/usr/bin/env python3
"""The screen in a real pseudo-terminal: first frame as a multiple of an empty Textual app's, and time to answer a key.

python3 benchmarks/tui.py [runs]      exit 1 when over budget: first frame 1.5 x, a key 50 ms
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
FRAME_BUDGET = 1.5
KEY_BUDGET_MS = 50.0
COLUMNS, ROWS = 140, 40
LINES, RANKS = 200_000, 10_000
KEYS = b"jjjkjGgjjkG\x1b[5~\x1b[5~\x1b[6~jkjkjk"


def child(what: str, stamp: str) -> None:
    """In the terminal: show something, write the time of its first frame to `stamp`, and run until the end."""
    from textual.app import App

    def first_frame(app: App[object]) -> None:
        app.call_after_refresh(lambda: Path(stamp).write_text(repr(time.monotonic())))

    if what == "empty":

        class Empty(App[None]):
            def on_ready(self) -> None:
                first_frame(self)

        Empty().run()
        return
    sys.path.insert(0, str(TOP))
    from contextlib import nullcontext

    from diagnose.tui.app import DiagnoseApp

    class Screen(DiagnoseApp):
        def on_ready(self) -> None:
            super().on_ready()
            if what == "start":
                first_frame(self)

        def on_diagnose_app_opened(self, event: DiagnoseApp.Opened) -> None:
            super().on_diagnose_app_opened(event)
            self.set_timer(0.5, self.fill)

        def fill(self) -> None:
            if what == "ranks":
                self.triage.detail.switch("ranks")
                self.triage.enter_detail()
                self.triage.detail.pane.next_zoom()  # type: ignore[attr-defined]
                self.triage.detail.pane.next_zoom()  # type: ignore[attr-defined]
            if what == "lines":
                self.open_source("big.log", 1)
            self.set_timer(1.0, lambda: first_frame(self))

    def open_case(_: object) -> object:
        from tests.tui import fake

        text = [f"node017:2211:2263 [1] NCCL INFO AllReduce: opCount {n:x} count 1048576" for n in range(LINES)]
        rows = [
            {"ranks": f"0-4999,5001-{RANKS - 1}", "states": ["done"] * 300, "note": "waiting"},
            {"ranks": "5000", "states": ["done"] * 299 + ["absent"], "note": "never entered", "odd": True},
        ]
        tables = {"progress": {"groups": [{"group": "dp", "seqs": list(range(300)), "rows": rows}]}}
        return nullcontext(fake.FakeCase(fake.diagnosis(tables=tables), {"big.log": text}))

    Screen(open_case, ("bench",)).run()  # type: ignore[arg-type]


class Terminal:
    """A child in a pseudo-terminal."""

    def __init__(self, what: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.stamp = Path(self.folder.name) / "stamp"
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {
            **os.environ, "TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none", "XDG_STATE_HOME": self.folder.name
        }  # fmt: skip
        for name in ("COLUMNS", "LINES", "TMUX"):
            environment.pop(name, None)
        self.started = time.monotonic()
        command = [sys.executable, __file__, "--child", what, str(self.stamp)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)

    def drain(self, seconds: float) -> int:
        """Read what is written within some seconds of silence; tells how much."""
        count = 0
        while select.select([self.master], [], [], seconds)[0]:
            count += len(os.read(self.master, 1 << 16))
        return count

    def first_frame(self) -> float:
        """Seconds from the start to the first frame."""
        end = time.monotonic() + 60
        while not self.stamp.exists() or not self.stamp.read_text():
            if time.monotonic() > end:
                raise SystemExit("no first frame within 60 s")
            self.drain(0.005)
        return float(self.stamp.read_text()) - self.started

    def key(self, key: bytes) -> float | None:
        """Seconds from a key to the first change of the screen; None when nothing changed."""
        self.drain(0.15)
        start = time.monotonic()
        os.write(self.master, key)
        if not select.select([self.master], [], [], 1.0)[0]:
            return None
        return time.monotonic() - start

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        self.folder.cleanup()


def split_keys(keys: bytes) -> list[bytes]:
    """Single keys out of a string of them; `ESC [ 5 ~` is one."""
    found: list[bytes] = []
    at = 0
    while at < len(keys):
        size = 4 if keys[at : at + 1] == b"\x1b" else 1
        found.append(keys[at : at + size])
        at += size
    return found


def main() -> int:
    """First frames interleaved, medians; then keys with much on the screen."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    times: dict[str, list[float]] = {"empty": [], "start": []}
    for _ in range(runs):
        for what, taken in times.items():
            terminal = Terminal(what)
            taken.append(terminal.first_frame())
            terminal.close()
    empty, start = (statistics.median(times[name]) for name in ("empty", "start"))
    ratio = start / empty
    print(f"empty Textual app  {empty * 1000:6.0f} ms to the first frame")
    print(f"diagnose view      {start * 1000:6.0f} ms   {ratio:.2f} x   (budget {FRAME_BUDGET} x)")
    over = ratio > FRAME_BUDGET
    for what, text in (("lines", f"{LINES:,} lines"), ("ranks", f"{RANKS:,} ranks")):
        terminal = Terminal(what)
        terminal.first_frame()
        terminal.drain(0.5)
        answers = [s * 1000 for key in split_keys(KEYS) if (s := terminal.key(key)) is not None]
        terminal.close()
        median = statistics.median(answers)
        print(
            f"a key, {text:15} median {median:5.1f} ms   worst {max(answers):5.1f} ms   {median / 1000 / empty:.3f} x "
            f"of the empty app's first frame   {len(answers)} answers   (budget {KEY_BUDGET_MS:.0f} ms)"
        )
        over = over or median > KEY_BUDGET_MS
    return int(over)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3])
    else:
        sys.exit(main())

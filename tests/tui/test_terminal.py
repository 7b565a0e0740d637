"""One run in a real terminal: tmux around it, keys typed, screen read back."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SECONDS = 30.0

pytestmark = pytest.mark.needs("tmux")


class Tmux:
    """A tmux server of its own with one window of 100×30."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "tmux")
        self.folder = folder

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", *arguments], capture_output=True, text=True
        )
        return done.stdout

    def start(self, command: list[str], **environment: str) -> None:
        """Run a command in the window; its exit code lands in a file, what it prints stays on the screen."""
        told = [f"{name}={value}" for name, value in environment.items()]
        line = (
            shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", *told, *command])
            + f"; echo $? > {self.folder}/code; sleep 60"
        )
        self("new-session", "-d", "-x", "100", "-y", "30", "sh", "-c", line)

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        self("send-keys", *names)

    def until(self, seen: Callable[[], bool]) -> None:
        """Wait until something is to be seen."""
        end = time.monotonic() + SECONDS
        while not seen():
            assert time.monotonic() < end, self.screen()
            time.sleep(0.05)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    server = Tmux(tmp_path)
    yield server
    server("kill-server")


@pytest.mark.parametrize("no_color", ["", "1"], ids=["colour", "NO_COLOR"])
def test_open_search_copy_and_quit_in_tmux(tmux: Tmux, tmp_path: Path, no_color: str) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(TOP), "TERM": "screen-256color"}
    if no_color:
        environment["NO_COLOR"] = no_color
    tmux.start([sys.executable, "-m", "tests.tui.fake"], **environment)
    tmux.until(lambda: "InfiniBand port is down" in tmux.screen() and "status=12" in tmux.screen())
    tmux.keys("3")
    tmux.until(lambda: "iblinkinfo" in tmux.screen())
    tmux.keys("y")
    copied = tmp_path / "state" / "diagnose" / "copied.txt"
    tmux.until(lambda: copied.is_file() and copied.read_text() == "ibstat mlx5_3\n")
    assert "ibstat mlx5_3" in tmux("show-buffer")
    tmux.keys("/")
    tmux.until(lambda: "Search for" in tmux.screen())
    tmux.keys("-l", "Polling")
    tmux.keys("Enter")
    tmux.until(lambda: "hits" in tmux.screen())
    tmux.keys("Escape")
    tmux.until(lambda: "Findings" in tmux.screen())
    tmux("resize-window", "-x", "50", "-y", "12")
    tmux.until(lambda: "╭" not in tmux.screen() and "CRITICAL" in tmux.screen())
    tmux.keys("q")
    tmux.until((tmp_path / "code").exists)
    assert (tmp_path / "code").read_text().strip() == "0"
    assert "Traceback" not in tmux.screen()


def test_a_real_bundle_by_the_command_and_by_a_pipe(tmux: Tmux, tmp_path: Path) -> None:
    log = TOP / "fixtures" / "parsers" / "torch_log" / "sick.txt"
    python = shlex.quote(sys.executable)
    command = f"cat {shlex.quote(str(log))} | {python} -m diagnose view -"
    tmux.start(["sh", "-c", command], XDG_STATE_HOME=str(tmp_path), PYTHONPATH=str(TOP), TERM="screen-256color")
    tmux.until(lambda: "not judged" in tmux.screen() and "CRITICAL" in tmux.screen())
    tmux.keys("2")
    tmux.until(lambda: "Cause" in tmux.screen())
    tmux.keys("G", "z")
    tmux.until(lambda: "▾ 1 source" in tmux.screen())
    tmux.keys("q")
    tmux.until((tmp_path / "code").exists)
    assert (tmp_path / "code").read_text().strip() == "0", tmux.screen()

"""What all tests need: no animations, no files in the user's folders, and the `needs` marker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

os.environ["TEXTUAL_ANIMATIONS"] = "none"
for name in ("SSH_CONNECTION", "TMUX", "NO_COLOR"):
    os.environ.pop(name, None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`needs("tmux")`: skip with a reason where a program is missing; under DIAGNOSE_NO_SKIP=1 fail instead."""
    wanted = [program for marker in item.iter_markers("needs") for program in marker.args]
    missing = [program for program in wanted if shutil.which(program) is None]
    if not missing:
        return
    reason = "needs " + ", ".join(missing) + " on PATH"
    if os.environ.get("DIAGNOSE_NO_SKIP") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and configuration of the test user, empty at first."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home

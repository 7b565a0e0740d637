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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--torch`: also the tests on real PyTorch jobs, which `dev.py e2e` runs in an environment that has it."""
    parser.addoption("--torch", action="store_true", help="run the tests on real PyTorch jobs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on real PyTorch jobs belong to `dev.py e2e`."""
    if config.getoption("--torch"):
        return
    torch = [item for item in items if item.get_closest_marker("torch")]
    config.hook.pytest_deselected(items=torch)
    items[:] = [item for item in items if item not in set(torch)]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under DIAGNOSE_NO_SKIP=1 a skipped test fails the run, whatever its reason."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("DIAGNOSE_NO_SKIP") == "1" and reporter and reporter.stats.get("skipped") and not exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and configuration of the test user, empty at first."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    return home

"""Made files are current: man page, completions, rule pages. `python3 dev.py pages` writes them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tools import pages


def test_made_files_are_current():
    assert pages.stale(pages.made()) == [], "run: python3 dev.py pages"


@pytest.mark.needs("bash")
def test_bash_completion_knows_the_commands():
    script = pages.TOP / pages.COMPLETIONS["bash"]
    ask = f'source "{script}"; COMP_WORDS=(diagnose "an"); COMP_CWORD=1; _shtab_diagnose; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == "analyze", done.stderr


def test_man_page_is_well_formed():
    text = (pages.TOP / pages.MAN).read_text("utf-8")
    assert text.startswith(".TH DIAGNOSE 1")
    for word in ("diagnose analyze", "diagnose collect", "diagnose rules lint", "\\-\\-fail\\-on", ".SH EXIT STATUS"):
        assert word in text
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", str(pages.TOP / pages.MAN)], capture_output=True, timeout=20
        )
        assert done.returncode == 0 and done.stderr == b""

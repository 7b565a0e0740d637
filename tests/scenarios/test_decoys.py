"""Kernel messages of hours before a stall, on the host of the fault and on others: they explain nothing."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from diagnose.run import Options, analyse

FIXTURES = Path(__file__).parents[2] / "fixtures"
STALLS = ("stall-crashed-rank", "stall-late-rank", "stall-missing-rank", "stall-mismatch", "stall-undetermined")
OPTIONS = Options(site=FIXTURES / "site" / "none.toml", jobs=1)
HOURS_BEFORE = 6.72
DECOYS = {
    "oom": "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/user.slice,"
    "task_memcg=/user.slice/user-2041.slice/session-3.scope,task=jupyter-lab,pid=5123,uid=2041",
    "oom-python": "Out of memory: Killed process 5123 (python3) total-vm:9437184kB, anon-rss:8388608kB, file-rss:96kB,"
    " shmem-rss:0kB, UID:2041 pgtables:17000kB oom_score_adj:0",
    "xid": "NVRM: Xid (PCI:0000:c1:00): 94, pid=5123, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    "nfs": "nfs: server stor-9 not responding, still trying",
    "hung-task": "INFO: task kworker/u128:3:5123 blocked for more than 120 seconds.",
}


@pytest.mark.parametrize("decoy", sorted(DECOYS))
@pytest.mark.parametrize("name", STALLS)
def test_what_a_job_survived_does_not_explain_its_stall(name: str, decoy: str, tmp_path: Path) -> None:
    clean = analyse([str(FIXTURES / name)], OPTIONS)
    folder = shutil.copytree(FIXTURES / name, tmp_path / name)
    (folder / "manifest.json").unlink(missing_ok=True)
    since = float(clean.job["stalled_since"]) if "stalled_since" in clean.job else float(str(clean.job["ended"]))
    stamp = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(since - HOURS_BEFORE * 3600))
    for host in sorted(p.name for p in folder.iterdir() if p.is_dir())[:2]:
        (folder / host / "kernel").mkdir(exist_ok=True)
        (folder / host / "kernel" / "dmesg-decoy.txt").write_text(f"[{stamp}] {DECOYS[decoy]}\n")
    dirty = analyse([str(folder)], OPTIONS)
    assert dirty.findings[0].id == clean.findings[0].id
    assert [s.name for s in dirty.findings[0].subjects] == [s.name for s in clean.findings[0].subjects]
    before = {f.id for f in clean.findings if f.role == "root" and f.severity != "info"}
    roots = {f.id for f in dirty.findings if f.role == "root" and f.severity != "info"}
    assert roots == before

"""What torchrun says when it ends the processes of its host."""

from __future__ import annotations

import pytest
from support import load, of, run

PARSER = load("torch_log")


@pytest.mark.parametrize(
    "head",
    [
        "W0725 17:31:40.400000095 3000 torch/distributed/elastic/multiprocessing/api.py:900] ",
        "W0725 17:31:40.400000095 140213 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] ",
        "WARNING:torch.distributed.elastic.multiprocessing.api:",
    ],
)
def test_a_process_that_the_launcher_ends(head: str) -> None:
    text = f"{head}Sending process 4007 closing signal SIGTERM\n{head}Sending process 4015 closing signal SIGKILL\n"
    told = of(run(PARSER, text, "train.log"), "launcher_stop")
    assert [(r.fields["pid"], r.fields["signal"]) for r in told] == [(4007, "SIGTERM"), (4015, "SIGKILL")]
    assert all(r.rank is None for r in told)


def test_a_torn_line_tells_no_process() -> None:
    torn = "W0725 17:31:40.4 3000 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 40"
    assert not of(run(PARSER, torn, "train.log"), "launcher_stop")

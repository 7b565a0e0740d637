"""Commands of this side: what the scheduler says of the job. Bounded in time and size; never raises because of them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from diagnose.fleet.bundle import Bundle, utc

LIMIT_S = 20.0
MAX_OUTPUT = 16 << 20


class NoAnswer(Exception):
    """The scheduler's command is missing, failed or said nothing of use; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended. `code` is None when it was ended at its limit; times in epoch seconds and seconds."""

    out: bytes
    errors: str
    code: int | None
    start: float
    duration: float
    truncated: bool

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode("utf-8", "replace")


def ask(argv: Sequence[str], limit_s: float = LIMIT_S, env: Mapping[str, str] | None = None) -> Answer:
    """Run a command to its end or its limit. NoAnswer when it cannot be started."""
    if shutil.which(argv[0]) is None:
        raise NoAnswer(f"{argv[0]} is not installed here")
    start, began = time.time(), time.monotonic()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=env
    )
    code: int | None = None
    try:
        out, errors = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            out, errors = process.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
    said = " ".join(errors.decode("utf-8", "replace").split())[:500]
    cut = code is None or len(out) > MAX_OUTPUT
    return Answer(out[:MAX_OUTPUT], said, code, start, time.monotonic() - began, cut)


def must(argv: Sequence[str], limit_s: float = LIMIT_S) -> str:
    """Standard output of a command that has to succeed. NoAnswer with what it said."""
    answer = ask(argv, limit_s)
    if answer.code == 0:
        return answer.text
    how = f"exit code {answer.code}" if answer.code is not None else f"no answer within {limit_s:g} s"
    raise NoAnswer(f"{' '.join(argv[:6])}: {answer.errors or how}")


def into(path: str, argv: Sequence[str], host: str | None = None, limit_s: float = LIMIT_S) -> Callable[[Bundle], None]:
    """A task that stores what a command says at `path` of the bundle, or why it said nothing."""

    def task(bundle: Bundle) -> None:
        command = " ".join(argv)
        try:
            answer = ask(argv, limit_s)
        except NoAnswer as reason:
            bundle.miss(command, str(reason), host=host)
            return
        if not answer.out.strip():
            how = f"no answer within {limit_s:g} s" if answer.code is None else answer.errors or "it said nothing"
            bundle.miss(command, how, host=host)
            return
        bundle.put(
            path, answer.out, host=host, command=command, start=utc(answer.start),
            duration_s=round(answer.duration, 3), exit_code=answer.code, truncated=answer.truncated,
        )  # fmt: skip

    return task

"""Facts x rules -> firings, on durable-rules in a child process; `reference` answers in its place when that fails.

What a rule means is said in `reference`; the engine gives the same firings in the same order (the fuzz tests hold it
to that). durable-rules finds the joint matches and the absence of `unless` facts; supports, coverage and derived facts
of a match are the same code for both. The child gets one job per phase and one time limit for all; a crash, a hang or
an answer that makes no sense becomes a problem of the outcome, never an exception.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from diagnose import reference
from diagnose._durable.compile import Unsupported
from diagnose._durable.rulesets import Phase
from diagnose.model import Fact, Outcome, Problem, Rule

MAX_MATCHES = 50_000
"""Joint matches that durable-rules may find in one phase (before what it cannot express is checked)."""

_CHILD = Path(__file__).resolve().parent / "_durable" / "child.py"


class _Failed(Exception):
    """The engine did not answer, or not with sense."""


def run(rules: Sequence[Rule], facts: Sequence[Fact], timeout_s: float = 30.0) -> Outcome:
    """Firings of the rules on the facts; `Outcome.engine` tells what answered, `problems` what failed."""
    installed = _installed()
    if installed is None:
        return replace(reference.run(rules, facts), engine="reference (durable-rules is not installed)")
    version, folder = installed
    try:
        with _Child(folder, timeout_s) as child:

            def match(some: Sequence[Rule], base: reference.Base) -> Iterable[Iterable[reference.Joint]]:
                phase = Phase(some, base)
                try:
                    return phase.joints(child.ask(phase.job(MAX_MATCHES)))
                except ValueError:
                    raise _Failed("its answer makes no sense") from None

            return reference.infer(rules, facts, match, f"durable-rules {version}")
    except (_Failed, Unsupported) as error:
        outcome = reference.run(rules, facts)
        problem = Problem(f"durable-rules did not answer ({error}); the reference evaluator judged in its place")
        return replace(outcome, engine=f"reference ({error})", problems=(*outcome.problems, problem))


def _installed() -> tuple[str, str] | None:
    """Version of durable-rules and the folder that holds it."""
    try:
        found = metadata.distribution("durable-rules")
    except metadata.PackageNotFoundError:
        return None
    return found.version, str(found.locate_file(""))


class _Child:
    """The child process; killed when its time is up, and when the block ends."""

    def __init__(self, folder: str, timeout_s: float) -> None:
        self._folder, self._timeout_s = folder, timeout_s
        self._late = False

    def __enter__(self) -> _Child:
        self._errors = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_CHILD), self._folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise _Failed(f"the child process could not start: {error}") from None
        self._timer = threading.Timer(self._timeout_s, self._kill)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout, self._errors):
            try:
                stream.close()
            except BrokenPipeError:
                continue

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout
        return self._process.stdout

    def _kill(self) -> None:
        self._late = True
        self._process.kill()

    def ask(self, job: dict[str, Any]) -> Any:
        """The firings of one job, per ruleset; ValueError when the answer makes no sense."""
        try:
            self._stdin.write(json.dumps(job) + "\n")
            self._stdin.flush()
            line = self._stdout.readline()
        except (OSError, UnicodeDecodeError):
            line = ""
        if not line.endswith("\n"):
            raise _Failed(self._why())
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(f"not an answer: {line:.80}")
        told = cast(dict[str, Any], answer)
        if "error" in told:
            raise _Failed(str(told["error"]))
        return told.get("fired")

    def _why(self) -> str:
        if self._late:
            return f"no answer in {self._timeout_s:g} s"
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read()[-2_000:].decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}: {last[:200]}" if last else how

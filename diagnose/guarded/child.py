"""The child process: `python -I child.py ROOT BYTES`; a job a line on standard input, an answer a line on output."""

from __future__ import annotations

import gc
import json
import resource
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

MAX_LINES = 2_000_000
COLLECT_EVERY = 50
"""Jobs between two collections of cycles, which only hostile files hold."""


def main() -> None:
    """Answer jobs until standard input ends."""
    sys.path.insert(0, sys.argv[1])
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin, sys.stdout)


def serve(jobs: TextIO, answers: TextIO) -> None:
    """One answer a job."""
    from diagnose import packs

    parsers: dict[str, ModuleType] = {}
    gc.disable()  # what is read is plain data; looking for cycles while it grows costs as much again
    for number, line in enumerate(jobs, 1):
        if number % COLLECT_EVERY == 0:
            gc.collect()
        job = json.loads(line)
        try:
            file = job["parser"]
            if file not in parsers:
                parsers[file] = packs.load_file(Path(file))
            answer = answer_of(parsers[file], job)
        except MemoryError:
            answer = {"error": "not read: it needs more memory than a sound file of its size"}
        except RecursionError:
            answer = {"error": "not read: nested too deeply"}
        except OSError as error:
            answer = {"error": f"cannot be read: {error.strerror or error}"}
        except Exception as error:  # a parser may do anything with hostile bytes
            name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            answer = {"error": f"not read: {name}{error}"[:300]}
        answers.write(json.dumps(answer, ensure_ascii=True) + "\n")
        answers.flush()


def answer_of(parser: ModuleType, job: dict[str, Any]) -> dict[str, Any]:
    """Records, or the text."""
    from diagnose.guarded import packed
    from diagnose.model import Digest, Source

    data = Path(job["location"]).read_bytes()
    source = Source(job["id"], job["path"], "", job["size"])
    if job["what"] == "render":
        text: list[str] = []
        for line in parser.render_bytes(data, source):
            text.append(" ".join(line.splitlines()))
            if len(text) >= MAX_LINES:
                break
        return {"text": text}
    records = [
        record for item in parser.scan_bytes(data, source)
        for record in (item.records() if isinstance(item, Digest) else (item,))
    ]  # fmt: skip
    return {"records": [packed(record) for record in records], "lines": parser.line_count(records)}


if __name__ == "__main__":
    main()

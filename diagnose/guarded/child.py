"""The child process: `python -I child.py ROOT BYTES`; a job a line on standard input, an answer a line on output."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

MAX_LINES = 2_000_000


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
    for line in jobs:
        job = json.loads(line)
        try:
            file = job["parser"]
            if file not in parsers:
                parsers[file] = packs.load_file(Path(file))
                gc.freeze()
            answer = json.dumps(answer_of(parsers[file], job))
        except MemoryError:
            answer = refusal("not read: it needs more memory than a sound file of its size")
        except RecursionError:
            answer = refusal("not read: nested too deeply")
        except OSError as error:
            answer = refusal(f"cannot be read: {error.strerror or error}")
        except Exception as error:  # a parser may do anything with hostile bytes
            name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            answer = refusal(f"not read: {name}{error}")
        answers.write(answer + "\n")
        answers.flush()
        del answer
        gc.collect()  # cycles, which only hostile files hold; what was loaded at the start is frozen, so this is quick


def refusal(reason: str) -> str:
    """The answer instead of records."""
    return json.dumps({"error": reason[:300]})


def content(location: str) -> bytes:
    """The bytes of a file, as many as it has now; ValueError when these are too many."""
    from diagnose.guarded import MAX_BYTES

    with Path(location).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise ValueError(f"it is larger than the {MAX_BYTES >> 20} MiB read of a binary file")
        return file.read(size)


def answer_of(parser: ModuleType, job: dict[str, Any]) -> dict[str, Any]:
    """Records, or the text."""
    from diagnose.guarded import packed
    from diagnose.model import Digest, Source

    data = content(job["location"])
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

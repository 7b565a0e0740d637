"""Turns a flight-recorder pickle into JSON without running anything of it. A program of its own, run as a child.

The unpickler refuses every class and every persistent id, so only plain containers, numbers and texts come out; the
address space of the process is limited, since a few bytes of a pickle can ask for gigabytes.
"""

import io
import json
import pickle
import resource
import sys

MEMORY_BYTES = 4 << 30
KEYS = ("entries", "pg_config", "pg_status", "nccl_comm_state", "version", "comm_lib_version", "rank", "world_size")


class Refusing(pickle.Unpickler):
    """Plain data only."""

    def find_class(self, module, name):
        # type: (str, str) -> object
        raise pickle.UnpicklingError("it asks for %s.%s" % (module, name))

    def persistent_load(self, pid):
        # type: (object) -> object
        raise pickle.UnpicklingError("it has persistent ids")


def convert(data):
    # type: (bytes) -> str
    """The dump as JSON; known keys only. Raises ValueError and whatever a damaged pickle raises."""
    found = Refusing(io.BytesIO(data)).load()
    if not isinstance(found, dict) or "entries" not in found:
        raise ValueError("no flight-recorder dump")
    return json.dumps({k: found[k] for k in KEYS if k in found}, default=str)


def main():
    # type: () -> int
    """Standard input to standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        sys.stdout.write(convert(sys.stdin.buffer.read()))
    except Exception as error:  # whatever a hostile pickle makes of it
        sys.stderr.write("%s: %s\n" % (type(error).__name__, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

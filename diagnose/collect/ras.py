"""Client of NCCL's RAS service (2.24+). A program of its own: the plan runs its text in a child with a time limit.

Format: line protocol on TCP port 28028 of localhost; `SET FORMAT json` since 2.28.7. Only status is asked for.
"""

import socket
import sys
import time


def ask(host, port, form, timeout):
    # type: (str, int, str, float) -> bytes
    """The service's answer to a verbose status in `form` (text or json). Raises OSError."""
    end = time.time() + timeout
    found = []
    with socket.create_connection((host, port), timeout) as link:
        reader = link.makefile("rb")

        def command(line):
            # type: (bytes) -> bytes
            link.settimeout(max(0.1, end - time.time()))
            link.sendall(line + b"\n")
            return reader.readline(65536)

        if not command(b"CLIENT PROTOCOL 2").upper().startswith(b"SERVER PROTOCOL"):
            raise OSError("whatever listens there is no RAS service")
        command(b"TIMEOUT %d" % max(1, int(timeout / 2)))
        if form == "json":
            answer = command(b"SET FORMAT json")
            if not answer.upper().startswith(b"OK"):
                raise OSError("this NCCL has no JSON form of RAS: " + answer.decode("ascii", "replace").strip())
        link.sendall(b"VERBOSE STATUS\n")
        while True:
            link.settimeout(max(0.1, end - time.time()))
            piece = reader.read1(65536)
            if not piece:
                break
            found.append(piece)
    return b"".join(found)


def main(arguments):
    # type: (list) -> int
    """HOST PORT FORM SECONDS -> answer on standard output."""
    host, port, form, timeout = arguments
    try:
        sys.stdout.buffer.write(ask(host, int(port), form, float(timeout)))
    except OSError as error:
        sys.stderr.write("RAS at %s port %s: %s\n" % (host, port, error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

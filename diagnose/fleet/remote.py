"""The far end: runs on each host, sent over standard input. Stdlib of Python 3.6; never imported on the way.

Input: this text, a line of JSON (the order), the collector. Output: lines `dg1 HOST LETTER …`: H says hello, B that the
collector still runs, D carries base64 of the archive, E ends it with size and digest. When standard input ends, the
collector is interrupted and closes what it has; when nobody reads any more, it is ended. Nothing stays behind.
"""

import base64
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

BEAT_S = 2.0
CLOSE_S = 15.0
"""How long the collector may take to close its bundle once it is interrupted."""


class Ended(Exception):
    """Nobody listens any more, or this program is told to end."""


class Talk(object):
    """Lines to the near end."""

    def __init__(self, name, columns):
        self.prefix = ("dg1 %s " % name).encode("utf-8", "surrogateescape")
        self.columns = columns

    def say(self, letter, **fields):
        """One line of JSON; texts are shortened where it would be too long."""
        fields["time"] = time.time()
        for size in (200, 60, 20):
            if len(json.dumps(fields)) > self.columns:
                for key in ("said", "why", "error", "hostname"):
                    if key in fields:
                        fields[key] = fields[key][:size]
        self.line(letter, json.dumps(fields).encode("ascii"))

    def line(self, letter, payload):
        """One line, whole."""
        data = self.prefix + letter.encode("ascii") + b" " + payload + b"\n"
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:
                select.select([], [1], [], 1.0)
            except OSError:
                raise Ended("nobody reads the result")


class Sender(object):
    """A file to write an archive to: it leaves as base64 lines. Stops at `cap` bytes and remembers that."""

    def __init__(self, talk, columns, cap):
        self.talk, self.step, self.cap = talk, max(3, columns // 4 * 3), cap
        self.held = b""
        self.size = 0
        self.digest = hashlib.sha256()
        self.cut = False

    def write(self, data):
        """Take some bytes."""
        given = len(data)
        if self.size + given > self.cap:
            data = data[: self.cap - self.size]
            self.cut = True
        self.size += len(data)
        self.digest.update(data)
        data = self.held + data
        whole = len(data) // self.step * self.step
        for at in range(0, whole, self.step):
            self.talk.line("D", base64.b64encode(data[at : at + self.step]))
        self.held = data[whole:]
        return given

    def end(self):
        """Send what is held back."""
        if self.held:
            self.talk.line("D", base64.b64encode(self.held))
            self.held = b""


def private_folder():
    """A new folder that only this user can look into, where there is one to be had."""
    home = os.path.expanduser("~")
    places = [os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/run/user/%d" % os.getuid(), home, "/dev/shm"]
    errors = []
    for place in places:
        if not place or not os.path.isabs(place):
            continue
        try:
            folder = tempfile.mkdtemp(prefix="diagnose-", dir=place)
        except OSError as error:
            errors.append("%s: %s" % (place, error.strerror))
            continue
        try:
            with open(folder + "/room", "wb") as handle:
                handle.write(b"\0" * (1 << 20))
                handle.flush()
                os.fsync(handle.fileno())
            os.unlink(folder + "/room")
            return folder
        except OSError as error:
            errors.append("%s: %s" % (place, error.strerror))
            shutil.rmtree(folder, ignore_errors=True)
    raise OSError("no place for the collector: " + "; ".join(errors))


class Run(object):
    """The collector, running."""

    def __init__(self, talk, order, folder, program):
        self.talk = talk
        self.order = order
        self.said = b""
        self.why = ""
        path = os.path.join(folder, "diagnose-collect.pyz")
        with open(path, "wb") as handle:
            handle.write(program)
        out = os.path.join(folder, "bundle.tar.gz")
        argv = [sys.executable or "python3", "-I", path] + order["args"] + ["--out", out]
        quiet = subprocess.DEVNULL
        self.child = subprocess.Popen(
            argv, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, cwd=folder, start_new_session=True
        )
        assert self.child.stderr is not None
        self.errors = self.child.stderr.fileno()

    def wait(self):
        """Until it has ended: by itself, its limit, or the end of input. The exit code; None when it was killed."""
        began = beat = time.monotonic()
        limit = began + self.order["limit_s"]
        kill_at = None
        errors = self.errors
        poll = select.poll()
        poll.register(errors, select.POLLIN)
        poll.register(1, 0)
        if self.order["input_stays"]:
            poll.register(0, select.POLLIN)
        while True:
            now = time.monotonic()
            if self.child.poll() is not None:
                if select.select([errors], [], [], 0)[0]:
                    self.said = (self.said + os.read(errors, 65536))[-16384:]
                return self.child.returncode
            if kill_at is None and now > limit:
                self.why = "it took more than %g s" % self.order["limit_s"]
                kill_at = self.interrupt(now)
            if kill_at is not None and now > kill_at:
                self.kill()
                return None
            if now - beat > BEAT_S:
                beat = now
                self.talk.say("B", running_s=round(now - began, 1), said=self.last())
            for fd, _ in poll.poll(200):
                if fd == 1:
                    raise Ended("nobody reads the result")
                piece = os.read(fd, 65536)
                if fd == errors:
                    self.said = (self.said + piece)[-16384:]
                if not piece:
                    poll.unregister(fd)
                    if fd == 0 and kill_at is None:
                        self.why = "interrupted"
                        kill_at = self.interrupt(now)
                    elif fd == errors:
                        time.sleep(0.02)

    def last(self):
        """The last line that the collector said."""
        lines = self.said.decode("utf-8", "replace").replace("\r", "\n").strip().splitlines()
        return lines[-1][-200:] if lines else ""

    def interrupt(self, now):
        """As Ctrl-C does: it closes what it has."""
        self.signal(signal.SIGINT)
        return now + CLOSE_S

    def kill(self):
        """End it by force."""
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
            for _ in range(40):
                if self.child.poll() is not None:
                    return
                time.sleep(0.05)

    def signal(self, number):
        """To the collector and what it started in its own group."""
        try:
            os.killpg(self.child.pid, number)
        except OSError:
            return


def send(talk, order, folder):
    """Whatever the collector left, finished or not: (size, digest, cut, unfinished)."""
    sender = Sender(talk, order["columns"], order["cap"])
    archive = os.path.join(folder, "bundle.tar.gz")
    unfinished = False
    if os.path.isfile(archive):
        with open(archive, "rb") as handle:
            while not sender.cut:
                piece = handle.read(1 << 20)
                if not piece:
                    break
                sender.write(piece)
    else:
        left = sorted(n for n in os.listdir(folder) if os.path.isfile(os.path.join(folder, n, "manifest.json")))
        if left:
            unfinished = left[0].endswith(".partial")
            pack(os.path.join(folder, left[0]), sender)
    sender.end()
    return sender.size, sender.digest.hexdigest(), sender.cut, unfinished


def pack(folder, sender):
    """A folder as a .tar.gz, its manifest first."""
    with tarfile.open(fileobj=sender, mode="w|gz") as archive:
        archive.add(os.path.join(folder, "manifest.json"), "bundle/manifest.json")
        for where, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                full = os.path.join(where, name)
                inside = os.path.relpath(full, folder)
                if inside != "manifest.json" and not name.startswith(".") and os.path.isfile(full):
                    archive.add(full, "bundle/" + inside, recursive=False)


def main():
    """One order, one answer."""
    order = json.loads(sys.stdin.buffer.readline().decode("ascii"))
    name = os.environ.get(order["name_from"]) or order["name"]
    if order["host_by_name"]:
        order["args"] += ["--host", name]
    talk = Talk(name, order["columns"])
    program = sys.stdin.buffer.read(order["size"])

    def end(number, frame):
        raise Ended("signal %d" % number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    folder, run = None, None
    try:
        talk.say("H", hostname=os.uname()[1], pid=os.getpid(), uid=os.getuid(), python=sys.version.split()[0])
        if hashlib.sha256(program).hexdigest() != order["sha256"]:
            talk.say("E", error="the collector did not arrive whole (%d of %d bytes)" % (len(program), order["size"]))
            return 1
        try:
            folder = private_folder()
            run = Run(talk, order, folder, program)
        except OSError as error:
            talk.say("E", error=str(error))
            return 1
        code = run.wait()
        size, digest, cut, unfinished = send(talk, order, folder)
        talk.say(
            "E", exit=code, bytes=size, sha256=digest, cut=cut, unfinished=unfinished, why=run.why, said=run.last()
        )
        return 0
    except Ended:
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if run is not None:
            run.kill()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

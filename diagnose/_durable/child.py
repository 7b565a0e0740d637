"""The process in which durable-rules runs: per phase one JSON line in, one out. Run by path; knows no `diagnose`.

    in   {"rulesets": [{"rules": {name: definition}, "facts": [{kind, uid, …}]}], "max": most firings}
    out  {"fired": [[[rule name, [uid of m0, uid of m1, …]], …] per ruleset]}, or {"error": text}

The definitions come from `_durable`, which keeps to the subset of durable-rules that works. Each ruleset gets all
its facts first, then `__go`, the last positive pattern of every rule, so that a rule sees the whole fact base;
`__end`, a rule of the lowest priority, proves that no action was lost on the way.
"""

import json
import os
import sys


def main() -> None:
    """Serve phases until standard input ends. argv[1] is the folder that durable-rules was installed in."""
    reply = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _limit_memory()
    if sys.argv[1] not in sys.path:
        sys.path.append(sys.argv[1])
    import durable.engine as durable

    serial = 0
    for line in sys.stdin:
        job = json.loads(line)
        try:
            fired = []
            for ruleset in job["rulesets"]:
                serial += 1
                fired.append(_Run(durable, f"phase{serial}", ruleset, job["max"] - sum(map(len, fired))).fired)
            answer = {"fired": fired}
        except Stopped as error:
            answer = {"error": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        reply.write(json.dumps(answer) + "\n")
        reply.flush()


class Stopped(Exception):
    """The run was given up."""


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:
        return
    most = 4 << 30
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


class _Run:
    """One ruleset, run over its facts."""

    def __init__(self, durable, name, ruleset, most):
        class QuietHost(durable.Host):
            """Without the dispatcher threads: actions run only when asked for, here, in a fixed order."""

            def _run(self):
                pass

        self.fired, self.error, self.ended, self.most = [], None, False, most
        rules = {
            rule: {**definition, "pri": n, "run": self._action(rule)}
            for n, (rule, definition) in enumerate(ruleset["rules"].items())
        }
        rules["__end"] = {"all": [{"m0": {"kind": "__go"}}], "pri": 65_000, "run": self._end()}
        host = QuietHost()
        host.set_rulesets({name: rules})
        running = host.get_ruleset(name)
        state = 0
        for fact in _identified([*ruleset["facts"], {"kind": "__go", "uid": -1}]):
            try:
                state = running.assert_fact({**fact, "one": 1})
            except durable.MessageNotHandledException:
                continue
        running.do_actions(state, self._done)
        if self.error:
            raise Stopped(self.error)
        if not self.ended:
            raise Stopped("actions were lost")

    def _action(self, rule):
        def run(c, complete):
            try:
                if len(self.fired) >= self.most:
                    self.error = f"more joint matches than {self.most}, the last of rule {rule}"
                    return
                bound = {alias: fact["uid"] for alias, fact in c._m.items() if alias.startswith("m")}
                self.fired.append([rule, [bound[f"m{n}"] for n in range(len(bound))]])
            except BaseException as error:
                self.error = f"{rule}: {error!r}"
                return
            complete(None)

        return run

    def _end(self):
        def run(c, complete):
            self.ended = True
            complete(None)

        return run

    def _done(self, error, _state):
        if error:
            self.error = repr(error)


def _identified(facts):
    """Facts with ids of which no two share the engine's 32-bit hash (FNV-1a of `sid!id`)."""
    taken, n = set(), 0
    for fact in facts:
        while True:
            n += 1
            name, code = f"f{n}", 0x811C9DC5
            for byte in f"a!{name}".encode():
                code = ((code ^ byte) * 0x01000193) & 0xFFFFFFFF
            if code not in taken:
                break
        taken.add(code)
        yield {**fact, "id": name, "sid": "a"}


if __name__ == "__main__":
    main()

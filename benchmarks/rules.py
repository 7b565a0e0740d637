"""200 rules x 2,000 facts: the engine and the reference against a run that only imports them.

    python benchmarks/rules.py

Prints seconds of whole processes (the median of five) and their ratio to the import-only run. Budget: the engine's
own time is below 1 s.
"""

import statistics
import subprocess
import sys
import time

from diagnose import engine, reference
from diagnose.conditions import parse_condition
from diagnose.model import Fact, Pattern, Rule, SeverityChoice
from diagnose.vocabulary import vocabulary

KINDS = ("nic_rate", "rdma_rate", "nic_gauge", "nic_counter")
RULES, FACTS, ROUNDS = 200, 2_000, 5


def program():
    """Rules with own conditions, two thirds of them with a join or an `unless`, and facts of four kinds."""
    rules = []
    for n in range(RULES):
        kind, other = KINDS[n % 4], KINDS[(n + 1) % 4]
        when = [_pattern("a", kind, f"value > {n // 4 * 10} and device == 'mlx5_{n % 8}'")]
        unless = []
        if n % 3 == 1:
            when.append(_pattern("b", other, "host == a.host and device == a.device and value > a.value", a=kind))
        if n % 3 == 2:
            unless.append(_pattern("u", other, "host == a.host and value < a.value", a=kind))
        choice = (SeverityChoice("major"),)
        rules.append(Rule(f"test/r{n:03d}", "stable", choice, "high", tuple(when), (), tuple(unless), (), (), {}))
    facts = [
        Fact(f"f{n}", KINDS[n % 4], {"host": f"n{n % 61}", "device": f"mlx5_{n // 4 % 8}", "value": n * 37 % 500})
        for n in range(FACTS)
    ]
    return rules, facts


def _pattern(alias, kind, where, **aliases):
    return Pattern(alias, kind, parse_condition(where, kind, aliases, {}, vocabulary()))


def main():
    """Time whole processes, or be one of them."""
    if len(sys.argv) > 1:
        rules, facts = program()
        run = {"import": lambda *_: None, "engine": engine.run, "reference": reference.run}[sys.argv[1]]
        start = time.perf_counter()
        outcome = run(rules, facts)
        print(time.perf_counter() - start, outcome and len(outcome.firings), outcome and outcome.engine, sep="\t")
        return
    took = {}
    for what in ("import", "engine", "reference"):
        rounds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            done = subprocess.run([sys.executable, __file__, what], capture_output=True, text=True, check=True)
            rounds.append((time.perf_counter() - start, done.stdout.split("\t")))
        took[what] = statistics.median(whole for whole, _ in rounds)
        own = statistics.median(float(told[0]) for _, told in rounds)
        print(f"{what:10} {took[what]:.2f} s  {took[what] / took['import']:.1f} x import  (own {own:.2f} s)", end="  ")
        print(*(part.strip() for part in rounds[0][1][1:]))


if __name__ == "__main__":
    main()

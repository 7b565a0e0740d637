"""Random rules and facts for the engine's tests, and a third, naive reading of what rules mean."""

import random
from itertools import permutations

from diagnose.logic import holds
from diagnose.model import (
    And,
    Arith,
    Compare,
    Const,
    Derivation,
    Fact,
    Known,
    Member,
    Not,
    Or,
    Pattern,
    Ref,
    Rule,
    SeverityChoice,
)

KINDS = ("nic_rate", "rdma_port", "kernel_event", "stall", "site_contract", "suspect_rank")
TOPICS = ("nic_rates", "rdma_port", "kernel_log")
FIELDS = ("host", "v", "w", "s")
VALUES = (0, 1, 2, 3, 1.0, 2.5, -1, True, False, "a", "b", "1", "true", "", 1e-07, 1e22, 2**53 + 1, 2.0**53, 2**70,
          float("nan"), float("inf"), ("a", 1), 'q"\\é\n')  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Programs:
    """Draws rules and facts from one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.kinds = self.random.sample(KINDS, self.random.choice((2, 3, 4, 6)))

    def facts(self, count):
        """Facts of few kinds with few values, many of them missing, and some coverage."""
        draw = self.random
        made = []
        for n in range(count):
            fields = {name: self.value() for name in FIELDS[1:] if draw.random() < 0.75}
            if draw.random() < 0.85:
                fields["host"] = draw.choice(("n1", "n2", "n3"))
            made.append(Fact(f"f{n}", draw.choice(self.kinds), fields))
        for topic in TOPICS:
            for host in ("n1", "n2", "n3", None):
                if draw.random() < 0.5:
                    fields = {"topic": topic} if host is None else {"topic": topic, "host": host}
                    made.append(Fact(f"f{len(made)}", "covered", fields))
        draw.shuffle(made)
        return made

    def value(self):
        """A value, mostly of the tame ones."""
        return self.random.choice(VALUES if self.random.random() < 0.25 else VALUES[:9])

    def rules(self, count):
        """Rules of up to three patterns with supports, unless, derivations and phases."""
        return [self.rule(f"fuzz/r{n:03d}") for n in range(count)]

    def rule(self, name):
        """One rule."""
        draw = self.random
        aliases = ["a", "b", "c"][: draw.choice((1, 1, 2, 2, 2, 3))]
        when = tuple(self.pattern(alias, aliases[:n]) for n, alias in enumerate(aliases))
        supports = tuple(self.pattern(f"s{n}", aliases) for n in range(draw.choice((0, 0, 1, 2))))
        unless = tuple(self.pattern(f"u{n}", aliases) for n in range(draw.choice((0, 0, 1, 1, 2, 3))))
        derives = ()
        if draw.random() < 0.2:
            fields = {"host": Ref("a", "host"), "v": Ref(draw.choice(aliases), "w"), "s": Const(draw.choice("ab"))}
            derives = (Derivation("suspect_rank", fields),)
        return Rule(
            name, "stable", (SeverityChoice("major"),), "high", when, supports, unless, (), (), {},
            derives=derives, phase=draw.choice((0, 0, 0, 1, 2)),
        )  # fmt: skip

    def pattern(self, alias, earlier):
        """A pattern; with earlier aliases it mostly joins."""
        return Pattern(alias, self.random.choice(self.kinds), self.condition(2, earlier))

    def condition(self, depth, earlier):
        """A condition of `and`, `or`, `not` over comparisons, membership and known."""
        draw = self.random
        shape = draw.random()
        if depth and shape < 0.45:
            whole = draw.choice((And, And, Or))
            return whole(tuple(self.condition(depth - 1, earlier) for _ in range(draw.choice((0, 1, 2, 2, 3)))))
        if depth and shape < 0.6:
            return Not(self.condition(depth - 1, earlier))
        if shape < 0.68:
            return Known(self.ref(earlier))
        if shape < 0.76:
            return Member(self.expression(earlier, 1), tuple(self.value() for _ in range(draw.choice((1, 2, 3)))))
        if earlier and shape < 0.9:
            field = draw.choice(FIELDS)
            return Compare(draw.choice((*COMPARISONS, "==", "==")), Ref(None, field), Ref(draw.choice(earlier), field))
        return Compare(draw.choice(COMPARISONS), self.expression(earlier, 1), self.expression(earlier, 1))

    def ref(self, earlier):
        """A field, mostly of the own fact."""
        alias = self.random.choice(earlier) if earlier and self.random.random() < 0.3 else None
        return Ref(alias, self.random.choice(FIELDS))

    def expression(self, earlier, depth):
        """A field, a constant or arithmetic."""
        shape = self.random.random()
        if depth and shape < 0.15:
            op = self.random.choice("+-*/")
            return Arith(op, self.expression(earlier, 0), self.expression(earlier, 0))
        return self.ref(earlier) if shape < 0.65 else Const(self.value())


def naive(rule, facts):
    """Ids bound by each joint match, by trying every choice of facts."""
    found = set()
    for bound in permutations(facts, len(rule.when)):
        bindings = {}
        for pattern, fact in zip(rule.when, bound, strict=True):
            bindings[None] = bindings[pattern.alias] = fact
            if fact.kind != pattern.kind or holds(pattern.where, bindings) is not True:
                break
        else:
            blocked = any(
                fact.kind == pattern.kind
                and fact not in bound
                and holds(pattern.where, {**bindings, None: fact}) is True
                for pattern in rule.unless
                for fact in facts
            )
            if not blocked:
                found.add(tuple(fact.id for fact in bound))
    return found

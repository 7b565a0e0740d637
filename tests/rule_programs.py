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
NUMBERS = (0, 1, 2, 3, 4, 5, 1.0, 2.5)
TEXTS = ("a", "b", "c")
ODD = (True, False, -1, "1", "true", "", 1e-07, 1e22, 2**53 + 1, 2.0**53, 2**70, float("nan"), float("inf"), ("a", 1),
       'q"\\é\n')  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Programs:
    """Draws rules and facts from one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.kinds = self.random.sample(KINDS, self.random.choice((2, 2, 3, 4)))

    def facts(self, count):
        """Facts of few kinds with few values, many of them missing, and some coverage."""
        draw = self.random
        made = []
        for n in range(count):
            fields = {name: self.value(name) for name in FIELDS[1:] if draw.random() < 0.85}
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

    def value(self, field):
        """A value that mostly is of the field's usual type."""
        draw = self.random
        if draw.random() < 0.12:
            return draw.choice(ODD)
        return draw.choice(TEXTS if field == "s" else ("n1", "n2", "n3") if field == "host" else NUMBERS)

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
        if depth and shape < 0.4:
            whole = draw.choice((And, Or))
            return whole(tuple(self.condition(depth - 1, earlier) for _ in range(draw.choice((0, 2, 2, 2, 3)))))
        if depth and shape < 0.55:
            return Not(self.condition(depth - 1, earlier))
        if shape < 0.6:
            return Known(self.ref(earlier))
        field = draw.choice(FIELDS)
        if shape < 0.68:
            return Member(self.expression(field, earlier), tuple(self.value(field) for _ in range(draw.choice((1, 3)))))
        op = draw.choice(COMPARISONS if field in ("v", "w") else ("==", "!="))
        if earlier and shape < 0.9:
            sides = [Ref(None, field), Ref(draw.choice(earlier), draw.choice((field, field, draw.choice(FIELDS))))]
            draw.shuffle(sides)
            return Compare(op, *sides)
        return Compare(op, self.expression(field, earlier), self.expression(field, earlier))

    def ref(self, earlier, field=None):
        """A field, mostly of the own fact."""
        draw = self.random
        alias = draw.choice(earlier) if earlier and draw.random() < 0.4 else None
        return Ref(alias, field or draw.choice(FIELDS))

    def expression(self, field, earlier):
        """A field, a constant that it could have, or arithmetic."""
        draw = self.random
        shape = draw.random()
        if shape < 0.15 and field in ("v", "w"):
            sides = [Const(self.value(field)) if draw.random() < 0.3 else self.ref(earlier, "v") for _ in range(2)]
            return Arith(draw.choice("+-*/"), *sides)
        return self.ref(earlier, field) if shape < 0.65 else Const(self.value(field))


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

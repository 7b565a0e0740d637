"""Which dump belongs to which rank: by its content before its name; of several the newest, and of several jobs one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from diagnose.model import Fact, FactBase

STALE_S = 3_600.0
"""Dumps are written within minutes of each other; one that is an hour older stems from an earlier failure."""
OTHER_MOMENT_S = 120.0
"""Clocks of hosts differ by less (chosen by us)."""


@dataclass(slots=True)
class Placed:
    """`kept` are the dumps of the job, `dumps` those of a known rank; `stale` ranks left only dumps of an earlier
    moment, `contested` ones different dumps of about the same time; `spare` are the further ones of a rank."""

    kept: list[Fact]
    dumps: dict[int, Fact] = field(default_factory=dict)
    spare: dict[int, list[Fact]] = field(default_factory=dict)
    contested: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    unplaced: int = 0


def place(dumps: list[Fact], base: FactBase, standing: Collection[str]) -> Placed:
    """The dumps of one job, each with its rank; `standing` are the sources in which an operation is pending."""
    found = Placed(_of_one_job(dumps))
    dumps = found.kept
    claims: dict[int, list[Fact]] = defaultdict(list)
    by_name = Counter(d.fields.get("rank") for d in dumps if d.fields.get("identity") != "content")
    on_host: dict[str, list[int]] = defaultdict(list)
    for rank, host in sorted(base.rank_host.items()):
        on_host[host].append(rank)
    numbers = _numbers(dumps)
    for dump in dumps:
        rank, told = dump.fields.get("rank"), dump.fields.get("identity") == "content"
        if rank is None:
            rank = numbers.get(dump.evidence[0].source)
        candidates = unfold_steps(str(dump.fields.get("candidates", "")))
        if not told:
            if isinstance(rank, int) and by_name[rank] > 1:
                rank = _by_host(rank, on_host.get(str(dump.fields.get("host")), [])) or rank
            if candidates and rank not in candidates:
                rank = candidates[0] if len(candidates) == 1 else None
        if isinstance(rank, int):
            claims[rank].append(dump)
        else:
            found.unplaced += 1
    old = _old(claims)
    current = {rank: [d for d in every if not old(d)] for rank, every in claims.items()}
    other = _of_other_folders(current, standing)
    found.kept = [d for d in dumps if d.evidence[0].source not in other]
    for rank, every in current.items():
        several = [d for d in every if d.evidence[0].source not in other]
        if not several:
            found.stale.add(rank)
            continue
        several.sort(key=_worth)
        best = several[0]
        found.spare[rank] = [d for d in several[1:] if d.fields.get("truncated") is not True]
        rivals = [d for d in found.spare[rank] if d.fields.get("identity") == best.fields.get("identity")]
        if any(last_at(d) != last_at(best) and abs(last_at(d) - last_at(best)) < STALE_S for d in rivals):
            found.contested.add(rank)
        found.dumps[rank] = best
    return found


def _worth(dump: Fact) -> tuple[bool, bool, float, str]:
    """Whole dumps before cut ones, those that tell their rank before those that are only named, the newest first."""
    f = dump.fields
    return f.get("truncated") is True, f.get("identity") != "content", -last_at(dump), dump.evidence[0].source


def _of_other_folders(claims: Mapping[int, Sequence[Fact]], standing: Collection[str]) -> set[str]:
    """Sources to leave out where most ranks left different dumps in several folders, which stem from several jobs or
    attempts: those beside the folder in which most ranks stand still; of several such folders the newest counts."""
    folders: dict[str, list[Fact]] = defaultdict(list)
    several = 0
    for dumps in claims.values():
        several += len({last_at(d) for d in dumps if d.fields.get("truncated") is not True}) > 1
        for dump in dumps:
            folders[_folder(dump)].append(dump)
        if len({_folder(d) for d in dumps}) < len(dumps):
            return set()
    if several * 2 <= len(claims):
        return set()

    def rank_of(folder: str) -> tuple[bool, float, int]:
        dumps = folders[folder]
        still = sum(d.evidence[0].source in standing for d in dumps)
        return still * 2 > len(dumps), max(map(last_at, dumps)), len(dumps)

    chosen = max(folders, key=rank_of)
    return {d.evidence[0].source for folder, dumps in folders.items() if folder != chosen for d in dumps}


def _folder(dump: Fact) -> str:
    return dump.evidence[0].source.rpartition("/")[0]


def _old(claims: Mapping[int, Sequence[Fact]]) -> Callable[[Fact], bool]:
    """Tells dumps of an earlier moment: an hour older than most, or over before most of the others begin."""
    newest = [max(several, key=last_at) for several in claims.values()]
    times = sorted(t for d in newest if (t := last_at(d)))
    begins = sorted(
        t for d in newest if isinstance(t := d.fields.get("first_at"), float) and not d.fields.get("only_active")
    )  # fmt: skip
    if len(times) < 3:
        return lambda d: False
    limit = times[len(times) // 2] - STALE_S
    if len(begins) >= 3:
        limit = max(limit, begins[len(begins) // 2] - OTHER_MOMENT_S)
    return lambda d: 0 < last_at(d) < limit


_NUMBER = re.compile(r"(\d{1,6})\D{0,12}$")


def _numbers(dumps: Sequence[Fact]) -> dict[str, int]:
    """Source -> number at the end of its name, where names tell no rank otherwise and these numbers are ranks: each
    below the size of the job, and each of one dump, copies of it, or dumps of another attempt."""
    found: dict[str, int] = {}
    contents: dict[int, set[tuple[float, object]]] = defaultdict(set)
    for dump in dumps:
        source, f = dump.evidence[0].source, dump.fields
        m = _NUMBER.search(source.rpartition("/")[2].partition(".")[0])
        world = f.get("world")
        if m and f.get("rank") is None and (not isinstance(world, int) or int(m[1]) < world):
            found[source] = int(m[1])
            if f.get("truncated") is not True:
                contents[int(m[1])].add((last_at(dump), f.get("entries")))
    return found if len(contents) > 1 and all(map(_apart, contents.values())) else {}


def _apart(times: set[tuple[float, object]]) -> bool:
    """Different dumps of one number stem from different attempts, not from the hosts of one."""
    ordered = sorted(t for t, _ in times)
    return all(later - t > OTHER_MOMENT_S for t, later in pairwise(ordered))


def _by_host(local: int, ranks: list[int]) -> int | None:
    """Files named by local rank in a folder per host: the rank with that place on the host."""
    return ranks[local] if local < len(ranks) and local not in ranks else None


def last_at(dump: Fact) -> float:
    """When its newest operation was enqueued (epoch s); 0 when it has none."""
    at = dump.fields.get("last_at")
    return at if isinstance(at, float) else 0.0


def unfold_steps(text: str) -> tuple[int, ...]:
    """`0-7,16-56:8` as ranks."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        ranks.extend(range(int(first), int(last or first) + 1, int(step or 1)))
    return tuple(ranks)


def _of_one_job(dumps: list[Fact]) -> list[Fact]:
    """Without those of a job with other ranks (another attempt, another job): of the jobs that left dumps of at least
    half of their ranks, else of all, the newest counts. Dumps that do not list the whole job stay."""
    jobs: dict[str, list[Fact]] = defaultdict(list)
    for dump in dumps:
        if whole := str(dump.fields.get("whole", "")):
            jobs[whole].append(dump)
    if len(jobs) < 2:
        return dumps
    newest = {whole: max(map(last_at, some)) for whole, some in jobs.items()}
    covered = [whole for whole, some in jobs.items() if len(some) * 2 >= len(unfold_steps(whole))]
    chosen = max(covered or jobs, key=lambda whole: (newest[whole], len(jobs[whole])))
    return [d for d in dumps if str(d.fields.get("whole", "")) in ("", chosen)]

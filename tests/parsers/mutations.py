"""Hostile texts for parser tests: anything, and real fixtures with lines lost, doubled, cut and overwritten."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[2] / "fixtures" / "parsers"
_NOISE = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)


def fixtures_of(kind: str) -> list[str]:
    """Texts of all fixtures of a parser."""
    folder = FIXTURES / kind
    return [p.read_bytes().decode("utf-8", "replace") for p in sorted(folder.iterdir()) if p.is_file()]


def foreign(kind: str) -> list[tuple[str, str]]:
    """Name and text of one fixture of every other parser."""
    found: list[tuple[str, str]] = []
    for folder in sorted(FIXTURES.iterdir()):
        if folder.is_dir() and folder.name != kind:
            for file in sorted(p for p in folder.iterdir() if p.is_file())[:4]:
                found.append((f"{folder.name}/{file.name}", file.read_bytes().decode("utf-8", "replace")[:200_000]))
    return found


@st.composite
def mutated(draw: st.DrawFn, kind: str) -> str:
    """A fixture of `kind` with a few random injuries."""
    lines = draw(st.sampled_from(fixtures_of(kind))).split("\n")
    start = draw(st.integers(0, max(0, len(lines) - 60)))
    lines = lines[start : start + 60]
    for _ in range(draw(st.integers(0, 8))):
        if not lines:
            break
        at = draw(st.integers(0, len(lines) - 1))
        what = draw(st.sampled_from(("drop", "double", "cut", "overwrite", "number", "noise")))
        line = lines[at]
        column = draw(st.integers(0, len(line)))
        if what == "drop":
            del lines[at]
        elif what == "double":
            lines.insert(at, line)
        elif what == "cut":
            lines[at] = line[:column]
        elif what == "overwrite":
            lines[at] = line[:column] + draw(_NOISE) + line[column + 3 :]
        elif what == "number":
            lines[at] = line.replace(
                draw(st.sampled_from("0123456789")), draw(st.sampled_from(("", "-", "N/A", "9" * 40, "é", "1e999")))
            )
        else:
            lines.insert(at, draw(_NOISE))
    return "\n".join(lines)


def hostile(kind: str) -> st.SearchStrategy[str]:
    """Any text, or a mutated fixture."""
    return st.one_of(st.text(max_size=400), mutated(kind))

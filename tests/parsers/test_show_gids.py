"""GID tables."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

GIDS = support.load("show_gids")


def read(text: str) -> dict[tuple[object, object], dict[str, object]]:
    return {(r.fields["device"], r.fields["index"]): dict(r.fields) for r in support.run(GIDS, text)}


def test_a_whole_table() -> None:
    found = read(support.fixture("show_gids", "healthy.txt"))
    assert len(found) == 4
    assert found["mlx5_0", 3] == {
        "device": "mlx5_0", "port": 1, "index": 3, "gid": "0000:0000:0000:0000:0000:ffff:c000:0207", "type": "v2",
        "address": "192.0.2.7", "netdev": "ens1np0",
    }  # fmt: skip
    assert "address" not in found["mlx5_0", 1] and found["mlx5_0", 0]["type"] == "v1"


def test_a_table_without_ipv4_or_tabs() -> None:
    found = read(support.fixture("show_gids", "sick.txt"))
    assert found["mlx5_1", 0]["type"] == "v1" and "address" not in found["mlx5_1", 0]


def test_sysfs_files_and_empty_entries() -> None:
    found = read(support.fixture("show_gids", "dirty.txt"))
    assert list(found) == [("rocep26s0", 3)]
    assert found["rocep26s0", 3]["address"] == "192.0.2.9" and found["rocep26s0", 3]["netdev"] == "ens26"


def test_ibv_devinfo_and_cut_tables() -> None:
    found = read(support.fixture("rdma_port", "devinfo.txt"))
    assert found["mlx5_2", 3]["address"] == "192.0.2.7" and found["mlx5_2", 3]["port"] == 1
    assert list(read(support.fixture("show_gids", "truncated.txt"))) == [("mlx5_0", 3)]


def test_evidence_lines() -> None:
    records = support.run(GIDS, support.fixture("show_gids", "healthy.txt"))
    assert [r.evidence[0].first for r in records] == [3, 4, 5, 6]


def test_sniff_and_foreign_text() -> None:
    for text in mutations.fixtures_of("show_gids"):
        assert GIDS.sniff(text, "x") == 0.9
    for name, text in mutations.foreign("show_gids"):
        if not name.startswith("rdma_port/"):
            assert support.run(GIDS, text) == [] and GIDS.sniff(text, name) == 0.0, name


@given(mutations.hostile("show_gids"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    GIDS.sniff(text, "x")
    support.run(GIDS, text)

"""nvidia-smi topo: whole, wrapped, glued, cut and interleaved matrices; a cell never counts for another column."""

from __future__ import annotations

import mutations
import support
from hypothesis import given, settings

from diagnose.model import Record

TOPO = support.load("nvidia_smi_topo")


def read(name: str) -> list[Record]:
    return support.run(TOPO, support.fixture("nvidia_smi_topo", name))


def links(records: list[Record]) -> dict[tuple[object, object], object]:
    return {(r.fields["a"], r.fields["b"]): r.fields["relation"] for r in support.of(records, "topo_link")}


def gpus(records: list[Record]) -> dict[object, dict[str, object]]:
    return {r.fields["gpu"]: dict(r.fields) for r in support.of(records, "topo_gpu")}


def summary(records: list[Record]) -> dict[str, object]:
    (record,) = support.of(records, "topo_summary")
    return {name: value for name, value in record.fields.items() if name != "nic_map"}


def test_a_healthy_matrix_with_its_nic_legend() -> None:
    records = read("healthy.txt")
    assert summary(records) == {
        "gpus": 8, "nics": 8, "gpus_with_local_nic": 8, "gpus_without_local_nic": "",
        "nvlink_gpus": 8, "links": "NV18", "flat": False,
    }  # fmt: skip
    assert gpus(records)["GPU6"] == {
        "gpu": "GPU6", "nic_count": 8, "best_nic_relation": "PIX", "best_nics": "mlx5_8", "best_columns": "NIC6",
        "cpu_affinity": "32-63,96-127", "numa": "1",
    }  # fmt: skip
    assert links(records)["GPU0", "GPU7"] == "NV18" and links(records)["GPU0", "mlx5_2"] == "PIX"
    assert len(records) <= 150
    (record,) = [r for r in records if r.fields.get("gpu") == "GPU6"]
    assert (record.evidence[0].first, record.evidence[0].last) == (8, 8)


def test_the_map_of_near_nics() -> None:
    (record,) = support.of(read("healthy.txt"), "topo_summary")
    assert str(record.fields["nic_map"]).startswith("GPU0-mlx5_2 PIX; GPU1-mlx5_3 PIX; ")
    far = (
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV4\tNV4\tPIX\t0-7\t0\nGPU1\tNV4\t X \tNV4\tSYS\t0-7\t0\nGPU2\tNV4\tNV4\t X \tSYS\t0-7\t0\n"
    )
    (record,) = support.of(support.run(TOPO, far), "topo_summary")
    assert record.fields["nic_map"] == "GPU0-NIC0 PIX; GPU1,GPU2 only SYS"


def test_a_terminal_copy_reads_alike() -> None:
    assert [r.fields for r in read("terminal.txt")] == [r.fields for r in read("healthy.txt")]


def test_wrapped_rows_read_alike() -> None:
    records = read("wrapped.txt")
    assert links(records) == links(read("healthy.txt"))
    assert summary(records) == summary(read("healthy.txt"))
    row = next(r for r in records if r.fields.get("gpu") == "GPU0").evidence[0]
    assert row.last - row.first == 2 and not support.of(records, "parse_problem")


def test_missing_nvlink_and_far_nics() -> None:
    records = read("sick.txt")
    found = summary(records)
    assert found["links"] == "NV18,NODE,SYS" and found["nvlink_gpus"] == 7
    assert found["gpus_with_local_nic"] == 4 and found["gpus_without_local_nic"] == "GPU4,GPU5,GPU6,GPU7"
    assert gpus(records)["GPU4"]["best_nic_relation"] == "SYS"
    assert gpus(records)["GPU1"]["best_nics"] == "NIC1"
    assert links(records)["GPU0", "GPU5"] == "SYS"


def test_glued_cells_are_taken_apart_and_a_lost_cell_rejects_its_row() -> None:
    records = read("dirty.txt")
    found = links(records)
    assert found["GPU0", "mlx5_2"] == "NODE" and found["GPU0", "mlx5_4"] == "SYS"
    (problem,) = support.of(records, "parse_problem")
    assert "row GPU1" in str(problem.fields["text"]) and problem.evidence[0].first == 4
    assert found["GPU1", "mlx5_0"] == "PXB" and found["GPU1", "mlx5_2"] == "NODE"
    assert "GPU1" not in gpus(records)


def test_cut_at_the_right_edge() -> None:
    records = read("truncated-right.txt")
    found = links(records)
    assert found["GPU0", "GPU1"] == "NV18" and all(str(b).startswith("GPU") for _, b in found)


def test_cut_before_the_first_row() -> None:
    records = read("truncated-head.txt")
    assert links(records) == {(a, f"NIC{str(b)[5:]}" if str(b).startswith("mlx5") else b): r
                              for (a, b), r in _unnamed(links(read("healthy.txt"))).items()}  # fmt: skip


def _unnamed(found: dict[tuple[object, object], object]) -> dict[tuple[object, object], object]:
    return {
        (a, f"mlx5_{int(str(b)[5:]) - 2}" if str(b).startswith("mlx5") else b): relation
        for (a, b), relation in found.items()
    }


def test_two_hosts_interleaved() -> None:
    records = read("pdsh.txt")
    relations = {(r.host, r.fields["a"], r.fields["b"]): r.fields["relation"] for r in support.of(records, "topo_link")}
    assert relations["gpu-c01", "GPU0", "GPU1"] == "NV4" and relations["gpu-c02", "GPU0", "GPU1"] == "SYS"
    assert relations["gpu-c02", "GPU1", "NIC0"] == "SYS"


def test_peer_to_peer_status() -> None:
    records = read("p2p.txt")
    assert {r.kind for r in records} == {"topo_p2p"}
    found = {(r.fields["a"], r.fields["b"]): r.fields["status"] for r in records}
    assert found == {("GPU0", "GPU1"): "OK", ("GPU0", "GPU2"): "CNS", ("GPU1", "GPU2"): "TNS"}
    assert {r.fields["operation"] for r in records} == {"r"}


def test_a_pcie_only_matrix_says_nothing_about_nvlink() -> None:
    records = read("pcie-only.txt")
    assert "links" not in summary(records) and "nvlink_gpus" not in summary(records)
    assert links(records) == {("GPU0", "mlx5_0"): "PHB", ("GPU1", "mlx5_0"): "PHB"}


def test_flat_as_in_a_virtual_machine() -> None:
    assert summary(read("vm.txt"))["flat"] is True
    assert gpus(read("vm.txt"))["GPU0"]["numa"] == "0-1"


def test_no_nics_at_all() -> None:
    records = read("no-nics.txt")
    assert summary(records) == {"gpus": 2, "nics": 0, "nvlink_gpus": 0, "links": "PHB"}
    assert gpus(records)["GPU1"] == {"gpu": "GPU1", "nic_count": 0, "cpu_affinity": "0-15", "numa": "0"}


def test_asymmetry_is_damage() -> None:
    text = support.fixture("nvidia_smi_topo", "healthy.txt").replace("\tNV18", "\tNV12", 1)
    records = support.run(TOPO, text)
    assert len(support.of(records, "parse_problem")) == 1 and ("GPU0", "GPU1") not in links(records)


def test_look_alikes_are_refused() -> None:
    rocm = "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n"
    assert TOPO.sniff(rocm, "x") == 0.0 and support.run(TOPO, rocm) == []
    for name, text in mutations.foreign("nvidia_smi_topo"):
        assert TOPO.sniff(text, name) == 0.0, name
        assert support.of(support.run(TOPO, text), "topo_link") == [], name


def test_sniff() -> None:
    for text in mutations.fixtures_of("nvidia_smi_topo"):
        assert TOPO.sniff(text, "x") == 0.9


@given(mutations.hostile("nvidia_smi_topo"))
@settings(max_examples=60, deadline=None)
def test_hostile_text_never_breaks_it(text: str) -> None:
    TOPO.sniff(text, "x")
    support.run(TOPO, text)


@given(mutations.mutated("nvidia_smi_topo"))
@settings(max_examples=60, deadline=None)
def test_damage_never_invents_a_local_nic_for_a_far_gpu(text: str) -> None:
    for record in support.of(support.run(TOPO, text), "topo_gpu"):
        assert str(record.fields.get("best_nic_relation", "SYS")) in ("PIX", "PXB", "PHB", "NODE", "SYS")

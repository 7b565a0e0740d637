"""nvidia-smi in its many outputs: what it prints is read, what it does not know stays unknown."""

from __future__ import annotations

from hypothesis import given, settings

from diagnose.model import Record
from tests.parsers.mutations import foreign, hostile
from tests.parsers.support import fixture, load, of, run

parser = load("nvidia_smi_query")
KIND = "nvidia_smi_query"


def gpus(name: str) -> dict[object, Record]:
    return {r.fields.get("index", r.fields.get("bus_id")): r for r in of(run(parser, fixture(KIND, name)), "gpu")}


def test_query_listing_of_healthy_gpus() -> None:
    found = gpus("healthy-q.txt")
    assert list(found) == [0, 1]
    f = found[1].fields
    assert (f["bus_id"], f["name"], f["driver"]) == ("0000:3b:00.0", "NVIDIA H200", "570.172.08")
    assert (f["pcie_gen"], f["pcie_width"], f["pcie_width_max"]) == (5, 16, 16)
    assert (f["power_w"], f["power_limit_w"], f["temp_c"], f["temp_slowdown_c"]) == (402.11, 700.0, 55.0, 89.0)
    assert (f["throttle_bits"], f["ecc_uncorrected_volatile"], f["remap_pending"]) == (0, 0, False)
    assert (f["fabric_state"], f["inforom"]) == ("Completed", "G520.0280.00.01")
    assert "clock_app_mhz" not in f, "deprecated is unknown, not zero"
    assert "retired_pending" not in f
    assert found[0].at == 1772623353.0
    processes = of(run(parser, fixture(KIND, "healthy-q.txt")), "gpu_process")
    assert [(p.fields["pid"], p.fields["memory_mib"], p.fields["bus_id"]) for p in processes] == [
        (7000, 120500.0, "0000:1a:00.0"),
        (7001, 120500.0, "0000:3b:00.0"),
    ]


def test_query_listing_of_sick_gpus() -> None:
    found = gpus("sick-q.txt")
    hot, lost = found[0].fields, found[1].fields
    assert (hot["throttle_bits"], hot["throttle_thermal"], hot["clock_sm_mhz"]) == (0x68, True, 705.0)
    assert hot["throttle_brake"] is False, "hardware slowdown by heat is no power brake"
    assert (lost["pcie_gen"], lost["pcie_width"], lost["throttle_brake"]) == (3, 8, True)
    assert (lost["ecc_uncorrected_volatile"], lost["remap_pending"], lost["remap_failed"]) == (3, True, True)
    assert lost["error"] == "GPU is lost"
    assert lost["power_w"] == 400.0, "the average stands in for the value that was lost"
    assert (lost["fabric_state"], "fabric_status" in lost) == ("In Progress", False)
    texts = " ".join(e.text for e in found[1].evidence)
    assert "HW Power Brake Slowdown" in texts
    assert "Remapping Failure Occurred" in texts


def test_sections_of_an_old_driver() -> None:
    (record,) = gpus("old-q-sections.txt").values()
    f = record.fields
    assert "index" not in f, "one of four GPUs was printed"
    assert (f["throttle_bits"], f["throttle_app_clocks"], f["idle"]) == (0x6, True, False)
    assert (f["ecc_uncorrected_volatile"], "ecc_uncorrected_aggregate" in f) == (1, False)
    assert (f["retired_pending"], f["temp_slowdown_c"], f["power_limit_w"]) == (True, 87.0, 280.0)
    assert (f["clock_app_mhz"], f["power_w"]) == (1290.0, 250.01)


def test_xml_listing() -> None:
    f = gpus("sick.xml.txt")[0].fields
    assert (f["bus_id"], f["name"], f["pcie_gen"], f["pcie_width"]) == ("0000:1a:00.0", "NVIDIA H200", 4, 8)
    assert (f["throttle_bits"], f["ecc_uncorrected_volatile"], f["remap_pending"]) == (0x48, 2, True)
    assert (f["temp_slowdown_c"], f["power_w"], f["clock_sm_mhz"], f["mig"]) == (89.0, 500.1, 1200.0, False)


def test_truncated_listing_keeps_what_was_printed() -> None:
    f = gpus("truncated-q.txt")["0000:1a:00.0"].fields
    assert f["throttle_thermal"] is True
    assert "temp_c" not in f


def test_repeated_rows_are_folded() -> None:
    found = gpus("loop.csv")
    idle, hot = found[0].fields, found[1].fields
    assert (idle["temp_c"], idle["power_w"], idle["utilization_pct"], idle["idle"]) == (60.0, 650.0, 0.0, False)
    assert (hot["throttle_bits"], hot["throttle_thermal"], hot["clock_sm_mhz"]) == (0x48, True, 1100.0)
    assert hot["remap_pending"] is False
    assert found[1].at == 1772622005.2


def test_columns_named_by_the_command_line() -> None:
    found = gpus("nounits.csv")
    first, second = found[0].fields, found[1].fields
    assert (first["power_w"], first["clock_sm_mhz"], first["throttle_bits"]) == (250.1, 1290.0, 0x20)
    assert "ecc_uncorrected_volatile" not in first
    assert (second["error"], second["throttle_brake"], second["ecc_uncorrected_volatile"]) == ("Unknown Error", True, 3)
    assert "idle" not in first, "idleness was not asked for"


def test_rows_without_header_tell_only_what_is_plain() -> None:
    f = gpus("bare.csv")[0].fields
    assert (f["bus_id"], f["power_w"], f["power_limit_w"]) == ("0000:1b:00.0", 72.44, 700.0)
    assert (f["memory_used_mib"], f["memory_total_mib"], f["throttle_bits"]) == (66010.0, 81559.0, 4)
    assert "temp_c" not in f


def test_columns_named_by_the_source() -> None:
    text = "0, 66, 1980\n1, 61, 1975\n"
    command = "nvidia-smi --query-gpu=index,temperature.gpu,clocks.sm --format=csv,noheader,nounits"
    records = of(run(parser, text, command=command), "gpu")
    assert [(r.fields["temp_c"], r.fields["clock_sm_mhz"]) for r in records] == [(66.0, 1980.0), (61.0, 1975.0)]


def test_plain_table() -> None:
    found = gpus("sick-table.txt")
    assert (found[0].fields["ecc_uncorrected_volatile"], found[0].fields["power_w"]) == (2, 92.0)
    assert found[0].fields["driver"] == "535.161.08"
    lost = found[1].fields
    assert "error" in lost
    assert not {"temp_c", "power_w", "utilization_pct", "ecc_uncorrected_volatile"} & set(lost)
    third = found[2].fields
    assert (third["name"], third["persistence"], third["mig"]) == ("NVIDIA A100-SXM", False, True)
    assert not {"power_w", "utilization_pct", "ecc_uncorrected_volatile"} & set(third)
    (process,) = of(run(parser, fixture(KIND, "sick-table.txt")), "gpu_process")
    assert (process.fields["pid"], process.fields["bus_id"]) == (4242, "0000:07:00.0")


def test_nvlink_states_and_errors_are_joined_per_gpu() -> None:
    states = of(run(parser, fixture(KIND, "sick-nvlink.txt")), "nvlink_state")
    assert dict(states[0].fields) == {"gpu": 0, "active": 2, "inactive": 2, "errors": 42}
    assert "Recovery Errors: 1" in states[0].evidence[1].text
    assert dict(states[1].fields) == {"gpu": 1, "active": 0}


def test_lost_gpu_and_lost_driver() -> None:
    errors = {
        str(r.fields["error"]) for r in of(run(parser, fixture(KIND, "dirty-lost.txt")), "gpu") if "error" in r.fields
    }
    assert len(errors) == 2
    assert any("GPU is lost" in e for e in errors)


def test_sniff_claims_its_own() -> None:
    for name in (
        "healthy-q.txt",
        "sick.xml.txt",
        "loop.csv",
        "nounits.csv",
        "bare.csv",
        "sick-table.txt",
        "sick-nvlink.txt",
    ):
        assert parser.sniff(fixture(KIND, name), name) >= 0.5, name


def test_foreign_text_is_left_alone() -> None:
    for name, text in foreign(KIND):
        if "(UUID: GPU-" not in text and "NVIDIA-SMI" not in text:
            assert parser.sniff(text, name) < 0.5, name
            assert not run(parser, text), name


def test_nvlinks_of_a_gpu_whose_uuid_was_taken_out() -> None:
    text = """GPU 3: Tesla V100-SXM2-32GB (UUID: ...)
\t Link 0: 25.781 GB/s
\t Link 1: <inactive>
"""
    assert parser.sniff(text, "x.txt") == 0.9
    (link,) = of(run(parser, text), "nvlink_state")
    assert [link.fields[n] for n in ("gpu", "active", "inactive")] == [3, 1, 1]


def test_sections_cut_out_of_a_listing() -> None:
    text = """    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : 2
"""
    assert parser.sniff(text, "x.txt") == 0.9
    (gpu,) = run(parser, text)
    assert gpu.fields["throttle_thermal"] is True
    assert (gpu.fields["ecc_uncorrected_volatile"], "bus_id" in gpu.fields) == (2, False)


@settings(max_examples=80, deadline=None)
@given(hostile(KIND))
def test_any_text_is_survived(text: str) -> None:
    parser.sniff(text, "x")
    run(parser, text)


def test_lists_that_end_early_say_so() -> None:
    csv = fixture("nvidia_smi_query", "loop.csv").rstrip("\n")
    whole = [r for r in run(parser, csv) if r.kind == "parse_problem"]
    cut = [r for r in run(parser, csv[:-30]) if r.kind == "parse_problem"]
    assert (len(whole), len(cut)) == (0, 1)
    listed = fixture("nvidia_smi_query", "healthy-q.txt")
    assert not of(run(parser, listed), "parse_problem")
    assert of(
        run(parser, listed.replace("Attached GPUs                             : 2", "Attached GPUs : 8")),
        "parse_problem",
    )


def test_a_link_whose_line_is_cut_is_not_inactive() -> None:
    head = "GPU 0: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n\t Link 0: 26.562 GB/s\n\t Link 1:"
    (cut,) = of(run(parser, head), "nvlink_state")
    (lost,) = of(run(parser, head + "\n\t Link 2: 26.562 GB/s\n"), "nvlink_state")
    assert (cut.fields["inactive"], lost.fields["inactive"]) == (0, 1)


def test_a_lost_gpu_is_named_by_its_bus_behind_its_index_too() -> None:
    text = (
        "Unable to determine the device handle for GPU3: 0000:81:00.0: GPU is lost.  Reboot the system to recover it\n"
    )
    (record,) = of(run(parser, text), "gpu")
    assert str(record.fields["bus_id"]).lower().startswith("0000:81:00")

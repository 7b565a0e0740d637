"""What NCCL logs say when something fails: warnings by area, completions, events, connections, disagreements."""

from __future__ import annotations

import importlib

import pytest
from support import fixture, load, of, run

from diagnose.model import Record

PARSER = load("nccl_log")
AREAS = importlib.import_module(f"{PARSER.__name__}._areas")
KIND = "nccl_log"


def read(name: str) -> list[Record]:
    return run(PARSER, fixture(KIND, name), name)


def warned(message: str) -> list[Record]:
    """Records of one signed WARN."""
    return run(PARSER, f"n1:10:11 [3] misc/somewhere.cc:42 NCCL WARN {message}")


def one(records: list[Record], kind: str) -> Record:
    (found,) = of(records, kind)
    return found


# --- forms of warnings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "file", "at"),
    [
        ("n1:10:11 [3] socket.cc:42 NCCL WARN Boom 7", "socket.cc:42", None),
        ("n1:10:11 [3] misc/socket.cc:42 NCCL WARN Boom 7", "misc/socket.cc:42", None),
        ("[2026-11-30 17:24:40] n1:10:11 [3] misc/socket.cc:42 NCCL WARN Boom 7", "misc/socket.cc:42", 1796059480.0),
        (
            "[2026-11-30 17:24:40] n1:10:11 [3] misc/socket.cc:42 (ncclSocketInit) NCCL WARN Boom 7",
            "misc/socket.cc:42 (ncclSocketInit)",
            1796059480.0,
        ),
        (
            "n1:10:11 [3] void f(std::vector<int>*, char**):42 NCCL WARN Boom 7",
            "void f(std::vector<int>*, char**):42",
            None,
        ),
        ("n1:10:11 [3] ofi_process_cq:1039 NCCL WARN Boom 7", "ofi_process_cq:1039", None),
        ("Mon 30 17:24 n1:10:11 [3] misc/socket.cc:42 NCCL WARN Boom 7", "misc/socket.cc:42", None),
    ],
)
def test_every_form_of_a_warning(line: str, file: str, at: float | None) -> None:
    record = one(run(PARSER, line), "nccl_warning")
    assert dict(record.fields) == {
        "area": "other",
        "level": "WARN",
        "text": "Boom 7",
        "file": file,
        "cuda_dev": 3,
        "pid": 10,
    }
    assert (record.host, record.at) == ("n1", at)


@pytest.mark.parametrize("device", ["32765", "-1", "1702240357"])
def test_a_garbage_device_is_unknown(device: str) -> None:
    record = one(run(PARSER, f"n1:10:11 [{device}] init.cc:12 NCCL WARN Boom"), "nccl_warning")
    assert "cuda_dev" not in record.fields


def test_a_warning_whose_signature_is_lost_is_kept() -> None:
    record = one(run(PARSER, "isc/socket.cc:42 NCCL WARN Boom"), "nccl_warning")
    assert record.fields["text"] == "Boom"
    assert record.host is None


def test_equal_warnings_are_counted_with_first_and_last_line() -> None:
    text = "\n\n".join(f"n1:10:11 [3] a.cc:1 NCCL WARN Boom {n} at 0x{n:x}" for n in (3, 4, 5))
    record = one(run(PARSER, text), "nccl_warning")
    assert (record.count, record.fields["text"]) == (3, "Boom 3 at 0x3")
    assert [e.first for e in record.evidence] == [1, 5]


def test_the_lines_a_message_goes_on_for() -> None:
    records = read("sick-2.32.txt")
    nvls = one(records, "nccl_nvls")
    assert (nvls.fields["state"], nvls.fields["cuda_error"]) == ("bind_failed", 401)
    assert str(nvls.fields["text"]).endswith("error in the future.")
    assert (nvls.evidence[0].first, nvls.evidence[0].last) == (4, 6)


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("Bootstrap : no socket interface found", "bootstrap"),
        ("socketProgress: Connection closed by remote peer 192.0.2.1<5>", "socket"),
        ("NET/Socket : peer 192.0.2.1<5> message truncated : receiving 4 bytes instead of 2", "socket"),
        ("NET/IB : Got completion from peer 192.0.2.1<5> with error 12, opcode 1, len 0, vendor err 129", "net_ib"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "net_ib"),
        ("NET/OFI Request 0x1 completed with error. RC: 20", "net_plugin"),
        ("Failed to initialize any NET plugin", "net_plugin"),
        ("GIN plugin does not support GET", "net_plugin"),
        ("RMA proxy is not connected", "rma"),
        ("gdr_pin_buffer(addr 1, size 2) failed: 3", "gdr"),
        ("Could not open XML topology file x : y", "topology"),
        ("No transport found for rank 1[1] -> rank 2[2]", "topology"),
        ("P2P is disabled between NVLINK connected GPUs 1 and 2.", "p2p"),
        ("UDS: Sending data over socket x failed : 1", "p2p"),
        ("Error: failed to extend /dev/shm/nccl-x to 5 bytes", "shm"),
        ("NVLS UB arena divergence: rank 3 allocated offset 4", "nvls"),
        ("MNNVL (cliqueSize 4) is available but not working on this system.", "mnnvl"),
        ("CollNet does not support LL128", "collnet"),
        ("Error : no algorithm/protocol available", "tuning"),
        ("comm 0x7f has already been destroyed", "init"),
        ("Duplicate GPU detected : rank 1 and rank 2 both on CUDA device 1b000", "init"),
        ("AllReduce : invalid root 9 (root should be in the 0..8 range)", "arguments"),
        ("Cuda failure 700 'an illegal memory access was encountered'", "cuda"),
        ("Failed to CUDA calloc 6291456 bytes", "memory"),
        ("[Proxy Service 3] Failed to execute operation Setup from rank 2, retcode 3", "proxy"),
        ("RAS received unknown message type (9) from x", "ras"),
        ("RAS diagnostics payload size is invalid", "diagnostics"),
        ("rank 3 deregister IPC buffer 0x1 peerRank 4 failed", "registration"),
        ("Mismatched NCCL version detected : rank 0 version 1 rank 9 version 2", "version"),
        ('Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', "host_settings"),
        ("Call to clock_gettime failed: x", "other"),
    ],
)
def test_areas(text: str, area: str) -> None:
    assert AREAS.area_of(text) == area


# --- verbs --------------------------------------------------------------------------------------------


def test_completions_of_every_age() -> None:
    old = of(read("sick-2.12.txt"), "nccl_completion_error")
    assert [(r.fields["status"], r.fields["status_name"], r.fields["vendor_error"]) for r in old] == [
        (12, "IBV_WC_RETRY_EXC_ERR", 129),
        (5, "IBV_WC_WR_FLUSH_ERR", 244),
    ]
    middle = one(read("sick-2.23.txt"), "nccl_completion_error")
    assert middle.fields["remote_gid"] == "::ffff:203.0.113.7"
    assert (middle.fields["device"], middle.fields["peer"]) == ("mlx5_4", "203.0.113.7")
    new = one(read("sick-2.30.txt"), "nccl_completion_error")
    assert (new.fields["status"], new.fields["opcode"], new.rank) == (13, 0, 2)
    newest = one(read("sick-2.32.txt"), "nccl_completion_error")
    assert (newest.fields["peer_host"], newest.fields["remote_gid"]) == ("beech-7", "fe80::2")


def test_asynchronous_events() -> None:
    assert one(read("sick-2.12.txt"), "nccl_async_event").fields["event"] == "port_error"
    fatal = one(read("sick-2.23.txt"), "nccl_async_event")
    assert (fatal.fields["event"], fatal.fields["fatal"], fatal.fields["device"], fatal.fields["port"]) == (
        "qp_fatal",
        True,
        "mlx5_4",
        1,
    )
    assert one(read("sick-2.30.txt"), "nccl_async_event").fields["event"] == "gid_change"


@pytest.mark.parametrize(
    ("message", "event", "fatal"),
    [
        ("NET/IB : mlx5_0:1 Got async event : port active", "port_active", None),
        ("NET/IB : mlx5_0:1 async fatal event: local catastrophic error", "device_fatal", True),
        ("NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(17)", "client_reregister", None),
        ("NET/IB : mlx5_0:1 Got async error event: LID change", "lid_change", None),
        ("NET/IB : mlx5_0:1 Got async event : communication established", "other", None),
    ],
)
def test_an_event(message: str, event: str, fatal: bool | None) -> None:
    record = one(warned(message), "nccl_async_event")
    assert (record.fields["event"], record.fields.get("fatal"), record.fields["device"]) == (event, fatal, "mlx5_0")


def test_verbs_calls() -> None:
    retry, final = of(read("sick-2.30.txt"), "nccl_verbs_error")
    assert (retry.fields["retrying"], "retrying" in final.fields) == (True, False)
    assert final.fields["local_gid_index"] == 3
    assert (final.fields["error"], final.fields["errno"], final.fields["device"]) == ("timed_out", 110, "mlx5_1")
    assert (final.fields["local_gid"], final.fields["remote_gid"]) == ("::ffff:192.0.2.5", "::ffff:198.51.100.6")
    memory, qp = of(read("sick-2.23.txt"), "nccl_verbs_error")
    assert (memory.fields["call"], memory.fields["error"], memory.fields["errno"]) == (
        "ibv_reg_mr_iova2",
        "no_memory",
        12,
    )
    assert (qp.fields["call"], qp.fields["errno"]) == ("ibv_modify_qp", 110)


# --- sockets --------------------------------------------------------------------------------------------


def test_connections_refused_after_retries() -> None:
    records = read("sick-2.16.txt")
    record = one(records, "nccl_connect_error")
    assert dict(record.fields) == {
        "peer_address": "172.17.0.3",
        "peer_port": 41021,
        "peer_scope": "docker_bridge",
        "error": "refused",
        "text": "Connection refused",
        "attempts": 3,
        "final": True,
        "pid": 77,
    }
    closed, timed_out = of(records, "nccl_peer_closed")
    assert (closed.fields["peer_host"], closed.fields["reason"]) == ("pine-02-ib", "closed")
    assert (timed_out.fields["peer_address"], timed_out.fields["reason"]) == ("198.51.100.9", "timed_out")


@pytest.mark.parametrize(
    ("message", "error", "address"),
    [
        ("Connect to 192.0.2.9<37551> failed : Connection refused", "refused", "192.0.2.9"),
        ("Net : Connect to 192.0.2.9<37551> failed : No route to host", "no_route", "192.0.2.9"),
        ("f: connect to 192.0.2.9<1> failed : Network is unreachable", "network_unreachable", "192.0.2.9"),
        ("f: connect to 2001:db8::9<1> returned Connection timed out, exceeded error retry count after 35 attempts",
         "timed_out", "2001:db8::9"),
        ("socketPollConnect: Connect to 192.0.2.9<1> returned 113(No route to host) errno 115(In progress)",
         "no_route", "192.0.2.9"),
        ("ncclOsSocketPollConnect to 192.0.2.9<1> failed with error Cannot assign requested address", "no_address",
         "192.0.2.9"),
    ],
)  # fmt: skip
def test_a_connection(message: str, error: str, address: str) -> None:
    record = one(warned(message), "nccl_connect_error")
    assert (record.fields["error"], record.fields["peer_address"], record.fields["final"]) == (error, address, True)


def test_retries_before_a_finished_init_are_not_told() -> None:
    text = (
        "n1:7:71 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
        "n1:7:71 [0] NCCL INFO comm 0xaa rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init COMPLETE"
    )
    assert not of(run(PARSER, text), "nccl_connect_error")


# --- memory, disagreements and the rest -----------------------------------------------------------------


def test_cuda_and_shared_memory() -> None:
    records = read("sick-2.19.txt")
    memory, ecc = of(records, "nccl_cuda_error")
    assert (memory.fields["error"], memory.fields["code"], memory.fields["cuda_dev"]) == ("out_of_memory", 2, 3)
    assert (ecc.fields["error"], "cuda_dev" in ecc.fields) == ("ecc", False)
    grown, attached = of(records, "nccl_shm_error")
    assert (grown.fields["error"], grown.fields["bytes"], grown.fields["path"]) == (
        "no_space",
        4194660,
        "/dev/shm/nccl-Zk81qe",
    )
    assert (attached.fields["error"], attached.fields["errno"]) == ("not_found", 2)
    assert [r.fields["state"] for r in of(records, "nccl_p2p_state")] == ["disabled_connected", "disabled_on_nvlink"]


def test_ranks_that_disagree() -> None:
    found = {r.fields["subject"]: r.fields for r in of(read("sick-2.23.txt"), "nccl_config_mismatch")}
    assert set(found) == {"version", "duplicate_gpu", "rank_duplicate", "message_size"}
    assert (found["version"]["rank_b"], found["version"]["value_b"]) == (9, "22105")
    assert (found["duplicate_gpu"]["rank_a"], found["duplicate_gpu"]["rank_b"]) == (4, 5)
    assert (found["message_size"]["value_a"], found["message_size"]["value_b"]) == ("4", "2")
    counts = of(read("sick-2.30.txt"), "nccl_config_mismatch")
    assert [(r.fields.get("rank_a"), r.fields["value_a"], r.fields["value_b"]) for r in counts] == [
        (2, "7", "8"),
        (None, "7", "8"),
    ]
    newest = {str(r.fields["subject"]) for r in of(read("sick-2.32.txt"), "nccl_config_mismatch")}
    assert newest == {"magic", "nvls_arena"}


def test_only_the_innermost_line_of_an_unwinding() -> None:
    records = of(read("sick-2.12.txt"), "nccl_error_return")
    assert [(r.fields["file"], r.fields["code_name"]) for r in records] == [("include/net.h:32", "system")]
    new = one(read("sick-2.30.txt"), "nccl_error_return")
    assert (new.fields["file"], new.fields["code"]) == ("transport/net_ib/connect.cc:812", 2)


def test_hints_are_no_evidence() -> None:
    assert not [r for r in read("sick-2.30.txt") if any("HINT" in e.text for e in r.evidence)]


def test_ras_and_diagnostics() -> None:
    records = read("sick-2.32.txt")
    assert [(r.fields["event"], r.fields["peer"]) for r in of(records, "nccl_ras_event")] == [
        ("keepalive_error", "203.0.113.21"),
        ("peer_closed", "203.0.113.22"),
        ("port_busy", "localhost:28028"),
    ]
    assert [r.fields["level"] for r in of(records, "nccl_diagnostic")] == ["ok", "fault", "info"]
    assert one(records, "nccl_plugin").fields["state"] == "failed"
    assert one(records, "nccl_comm").fields["state"] == "aborted"


def test_the_aws_plugin_and_libfabric() -> None:
    records = read("sick-efa.txt")
    assert [(r.fields["event"], r.fields.get("provider"), r.rank, r.host) for r in of(records, "nccl_ofi")] == [
        ("provider", "efa", 13, "ofi-worker-1"),
        ("gdr_disabled", None, 13, "ofi-worker-1"),
        ("request_error", None, 13, "ofi-worker-1"),
        ("request_error", "efa", 13, "ofi-worker-1"),
    ]
    assert of(records, "nccl_ofi")[3].at == 1668017255.0
    assert one(records, "nccl_network").fields["transport"] == "efa"


@pytest.mark.parametrize(
    ("message", "error", "code"),
    [
        ("failed to open CUDA IPC handle : 64 peer access is not supported between these two devices", "ipc", 64),
        ("hipIpcGetMemHandle failed : invalid argument", "ipc", None),
        ("HIP failure: 'invalid device function'", "other", None),
        ("Cuda failure 101 'invalid device ordinal'", "other", 101),
        ("Cuda failure 4 'driver shutting down'", "shutting_down", 4),
    ],
)
def test_cuda_calls_that_failed(message: str, error: str, code: int | None) -> None:
    fields = one(warned(message), "nccl_cuda_error").fields
    assert (fields["error"], fields.get("code")) == (error, code)


def test_no_interface_to_use() -> None:
    message = "Bootstrap : no socket interface found"
    assert one(warned(message), "nccl_interface_absent").fields["text"] == message


def test_failed_connections_keep_the_words_of_the_call() -> None:
    message = "socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort"
    fields = one(warned(message), "nccl_connect_error").fields
    assert (fields["error"], fields["text"]) == ("other", "Software caused connection abort")


def test_a_segment_removed_twice_is_not_one_that_is_missing() -> None:
    fields = one(warned("Call to shm_unlink failed : No such file or directory"), "nccl_shm_error").fields
    assert fields["error"] == "other"


def test_a_connection_reset_by_a_peer_without_a_name() -> None:
    fields = one(warned("Call to write failed : Connection reset by peer"), "nccl_peer_closed").fields
    assert (fields["reason"], fields.get("peer_address")) == ("reset", None)


@pytest.mark.parametrize(
    ("message", "failed"),
    [
        ("Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)", True),
        ("Call to socket failed : Too many open files", True),
        ("Broadcast : invalid root 8 (root should be in the 0..8 range)", True),
        ("socketFinalizeAccept: wrong magic 1234", None),
        ("Cannot get incoming CPU.", None),
    ],
)
def test_warnings_of_calls_that_failed(message: str, failed: bool | None) -> None:
    assert one(warned(message), "nccl_warning").fields.get("failed") is failed

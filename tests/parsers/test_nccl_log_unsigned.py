"""Messages of NCCL that lost their signature, and older or other ways to sign."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support import load, of, run

PARSER = load("nccl_log")
TORCH = """[rank3]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, NCCL version 2.27.5
[rank3]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
[rank3]: Last error:
[rank3]: Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 1f000
"""


def test_last_error_of_torch():
    (told,) = of(run(PARSER, TORCH), "nccl_config_mismatch")
    assert (told.fields["subject"], told.fields["rank_a"], told.rank) == ("duplicate_gpu", 3, 3)
    assert told.evidence[0].first == 4
    (bound,) = of(
        run(PARSER, "NCCL version 2.29.3\nLast error:\nFailed to bind NVLink SHARP (NVLS) : CUDA error 401"),
        "nccl_nvls",
    )
    assert bound.fields["cuda_error"] == 401


def test_a_signed_warning_says_it_better():
    signed = "n1:10:11 [0] init.cc:9 NCCL WARN Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 1f000\n"
    (told,) = of(run(PARSER, TORCH + signed), "nccl_config_mismatch")
    assert told.host == "n1"
    assert PARSER.sniff(TORCH, "x") >= 0.5


def test_quoted_without_its_start():
    text = "NET/IBX:Got completion from peer 192.0.2.3<36315> with status=12 opcode=0 len=0 vendor err 129 (Send)"
    assert PARSER.sniff(text, "x") >= 0.5
    (error,) = of(run(PARSER, text), "nccl_completion_error")
    assert (error.fields["status"], error.fields["peer"], error.host) == (12, "192.0.2.3", None)


def test_before_2_3():
    text = (
        "n1:18:53 [0] INFO NET/Socket : 1 interfaces found\n"
        "n1:18:61 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out\n"
    )
    assert PARSER.sniff(text, "x") >= 0.5
    (error,) = of(run(PARSER, text), "nccl_connect_error")
    assert (error.fields["error"], error.fields["final"], error.host) == ("timed_out", True, "n1")
    assert not of(
        run(PARSER, "n1:18:61 [0] app WARN Call to connect failed : Connection timed out"), "nccl_connect_error"
    )


def test_plugin_programs():
    text = (
        "WARN: Function: component Line: 459: NET/OFI Couldn't open AV. RC: -22\nINFO: Function: x Line: 3: NET/OFI y"
    )
    (told,) = of(run(PARSER, text), "nccl_ofi")
    assert told.fields["event"] == "setup_error"


def test_call_inside_nvls():
    (told,) = of(
        run(PARSER, "n1:10:11 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'"), "nccl_nvls"
    )
    assert (told.fields["state"], told.fields["cuda_error"]) == ("bind_failed", 1)
    assert not of(run(PARSER, "n1:10:11 [2] transport/nvls.cc:9 NCCL WARN Cuda failure 2 'out of memory'"), "nccl_nvls")
    assert not of(run(PARSER, "n1:10:11 [2] enqueue.cc:9 NCCL WARN Cuda failure 1 'invalid argument'"), "nccl_nvls")


def test_rings_of_2_4_and_a_glued_stamp():
    rings = "n1:10:11 [2] NCCL INFO Ring 00 : 2 -> 4 [receive] via NET/IB/0\n"
    (told,) = of(run(PARSER, rings), "nccl_transport")
    assert (told.fields["network"], told.fields["gdr"], told.fields["channels"]) == ("IB", False, 1)
    glued = "2026-05-16T16:39:51.208-07:00n1:79:79 [0] NCCL INFO Bootstrap : Using eth0:10.36.29.253<0>"
    assert [r.host for r in of(run(PARSER, glued), "nccl_bootstrap")] == ["n1"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([*TORCH.splitlines(), "Last error:", " WARN ", "Got completion ", "", "x" * 900]), max_size=9
    )
)
def test_any_order(parts):
    run(PARSER, "\n".join(parts))


def test_verbs_without_a_device():
    (told,) = of(
        run(
            PARSER, "n1:10:11 [2] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device"
        ),
        "nccl_verbs_error",
    )
    assert (told.fields["error"], told.fields["errno"]) == ("no_device", 19)
    masked = (
        "n1:10:11 [5] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, remote GID ::ffff:xx.x.x"
    )
    (told,) = of(run(PARSER, masked), "nccl_verbs_error")
    assert "remote_gid" not in told.fields


def test_a_foreign_handshake():
    for text in (
        "socketFinalizeAccept: wrong type 4 != 3",
        "Net : connecting to address  with family 33621 is neither AF_INET(2)",
    ):
        (told,) = of(run(PARSER, f"n1:10:11 [2] misc/socket.cc:441 NCCL WARN {text}"), "nccl_config_mismatch")
        assert told.fields["subject"] == "magic"

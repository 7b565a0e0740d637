"""No credential survives a collection, and no evidence is taken for one."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.collect import bundles
from diagnose.collect.secrets import Cleaner, secret_values
from diagnose.collect.writer import Writer
from tests.collect.canaries import canaries
from tests.collect.support import collect, everything, fake_rank, manifest, tool

ALL = canaries()


def test_there_are_forty_kinds():
    assert len({kind for kind, _, _ in ALL}) >= 40
    assert len({secret for _, _, secret in ALL}) == len(ALL)


@pytest.mark.parametrize(("kind", "text", "secret"), ALL, ids=[kind for kind, _, _ in ALL])
def test_each_kind_goes_and_its_surroundings_stay(kind: str, text: str, secret: str):
    cleaned = Cleaner().text(f"before line\n{text}\nafter line\n")
    assert secret not in cleaned
    assert "[SECRET-" in cleaned
    assert cleaned.startswith("before line\n") and cleaned.endswith("\nafter line\n")


def test_the_same_credential_gets_the_same_token_everywhere():
    cleaner = Cleaner()
    secret = "gh" + "p_" + "A1b2" * 9
    first, second = cleaner.text(f"TOKEN={secret}"), cleaner.text(f"see {secret} there")
    assert first.removeprefix("TOKEN=") == second.split()[1]
    assert Cleaner().text(f"TOKEN={secret}") != first, "tokens of two bundles cannot be joined"
    assert cleaner.text(first) == first


def test_known_values_go_wherever_they_stand():
    value = "Xq9-very/odd+value="
    cleaner = Cleaner([value])
    for text in (value, "%58q9"[:0] + "Xq9-very%2Fodd%2Bvalue%3D", base64.b64encode(value.encode()).decode()):
        assert "[SECRET-" in cleaner.text(f"a {text} b"), text
    inner = base64.b64encode(b"user:" + value.encode() + b":more").decode()
    assert "[SECRET-" in cleaner.text(f"blob {inner}")


KEY = "3f786850e387550fdab836ed7e6dc881de23001b"


def test_a_value_found_by_its_name_goes_before_and_after_and_in_later_texts():
    cleaner = Cleaner()
    text = f"bare {KEY}\nWANDB_API_KEY={KEY}\nwandb login {KEY}\n+ '{KEY}'\n"
    assert KEY not in cleaner.text(text)
    assert cleaner.text(f"later {KEY}.") == f"later {cleaner.token(KEY)}."
    assert KEY not in Cleaner().text(f"$ wandb login --relogin {KEY}\n{KEY}")
    password = "Xq9veryOdd7Value2" + "x"
    assert password not in Cleaner().text(f"{password}\nhttps://bot:{password}@git.example/x\n{password}")
    other = Cleaner()
    assert KEY.encode() not in other.masked(f"\0{KEY} API_KEY={KEY}".encode()) and KEY not in other.text(KEY)


@pytest.mark.parametrize(
    "value",
    [
        "a-plain-word-of-some-length",
        "DistributedDataParallel",
        "/data/run7/tok3n/x9y8z7w6v5",
        "conf/tok3n/v1a2b3c4/x.json",
        "short1A2b3C",
        "184467440737095516150",
    ],
)
def test_words_paths_and_numbers_go_only_where_they_are_assigned(value: str):
    cleaner = Cleaner()
    cleaner.text(f"api_key={value}")
    assert cleaner.text(f"see {value} there") == f"see {value} there"


def test_a_credential_that_becomes_known_late_goes_from_what_was_written_before(tmp_path: Path):
    cleaner = Cleaner()
    writer = Writer(str(tmp_path / "b"), {"by": f"x {KEY}"}, cleaner.clean, cleaner.masked)
    writer.put("h/early.txt", f"{KEY}\n".encode(), {"command": f"echo {KEY}"})
    writer.put("h/early.bin", f"\0{KEY}".encode(), {"command": "dump"}, binary=True)
    writer.put("h/late.txt", f"wandb login {KEY}\n".encode(), {"command": "cat log"})
    writer.clean_again()
    writer.close(str(tmp_path / "made"))
    assert KEY.encode() not in everything(tmp_path / "made")
    assert bundles.verify(str(tmp_path / "made")).good


EVIDENCE = [
    "node-a:4711:4790 [0] NCCL INFO comm 0x55d0c8 rank 0 nranks 32 busId 1a000 commId 0x8f3a2b1c9d0e4f55",
    "NCCL_IB_HCA=mlx5_0,mlx5_1 NCCL_SOCKET_IFNAME=eth0",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901)",
    "tokens/s: 183942 tokens_per_second=10.2 max_tokens=4096 num_tokens: 128",
    "pad_token='<pad>', eos_token_id=2, tokenizer=meta/x, special_tokens_map.json",
    "PWD=/home/alice/run OLDPWD=/home/alice",
    "fe80:0000:0000:0000:a088:c2ff:fe12:3456 mlx5_0 1 3 v2",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "[rank3]:[E1124 09:12:00.123456789 ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout",
    "key: value, monkey=banana, keyboard: us, key_padding_mask=None",
    "     rx_prio3_pause: 18446744073709551615",
    "secret santa is at noon; password must be changed",
    "the passwords are long; token bucket; access token expired",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "author: someone, authority=ca, authenticated=true",
    "password=None token: null secret=*** api_key=<redacted> token=${HF_TOKEN}",
    "Cookie monster ate 12 cookies",
]


@pytest.mark.parametrize("text", EVIDENCE)
def test_evidence_stays_as_it_is(text: str):
    assert Cleaner().text(text) == text


def test_secret_variables_are_told_by_their_names():
    secret = {"HF_TOKEN": "value-1", "DB_PASSWORD": "value-2", "X_KEY": "value-3", "WEBHOOK_URL": "https://x/y"}
    plain = {
        "PWD": "/home/alice", "TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "INFO", "MAX_TOKEN": "4096",
        "SSH_AUTH_SOCK": "/tmp/agent", "KEYBOARD": "us-intl",
    }  # fmt: skip
    assert sorted(secret_values({**secret, **plain})) == sorted(secret.values())


def test_binary_data_keeps_its_length():
    secret = "gh" + "p_" + "A1b2" * 9
    data = b"\x80\x02}q\x00X\x28\x00\x00\x00" + secret.encode() + b"q\x01s."
    masked = Cleaner().masked(data)
    assert len(masked) == len(data) and secret.encode() not in masked


def test_other_bytes_stay():
    data = bytes(range(256)) * 3 + b"\nTOKEN=abcdefgh123\n\xff\xfe"
    cleaned = Cleaner().clean(data)
    assert (
        cleaned.startswith(bytes(range(256)) * 3) and cleaned.endswith(b"\n\xff\xfe") and b"abcdefgh123" not in cleaned
    )


def test_utf16_is_read_as_such():
    assert b"hunter22" not in Cleaner().clean("password=hunter22".encode("utf-16"))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("pasword=token:\"' \n-_/@{}[]key.BEGIN\\\u0130é"), max_size=300))
def test_any_text_comes_through_and_twice_is_once(text: str):
    cleaner = Cleaner()
    once = cleaner.text(text)
    assert cleaner.text(once) == once


@pytest.mark.parametrize(
    "unit", ["password=", "eyJ" * 3, "a" * 50 + "token ", "-----BEGIN RSA PRIVATE KEY-----\n", "://x:", "curl -s "]
)
def test_hostile_texts_take_linear_time(unit: str):
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        began = time.process_time()
        Cleaner().text(text)
        return time.process_time() - began

    seconds(10_000)
    small, large = seconds(100_000), seconds(800_000)
    assert large < 30 * max(small, 0.02)


def test_a_collection_with_forty_kinds_planted_holds_none(tmp_path: Path):
    """In the environment and command line of a rank, in its log, in a dump and in what tools print."""
    log, tools = tmp_path / "nccl.log", tmp_path / "bin"
    tools.mkdir()
    log.write_text("".join(f"node-a:77:80 [0] NCCL INFO line {n}\n{text}\n" for n, (_, text, _) in enumerate(ALL)))
    for name in ("ibstat", "show_gids", "lldpctl"):
        tool(tools, name, f"cat {tmp_path / 'planted'}; cat {tmp_path / 'planted'} >&2")
    (tmp_path / "planted").write_text("".join(text + "\n" for _, text, _ in ALL))
    values = {f"NCCL_CANARY_{n}": text.replace("\n", " ") for n, (_, text, _) in enumerate(ALL)}
    values |= {f"OWN{n}_TOKEN": f"plain-value-{n}-{'q' * n}" for n in range(1, 6)}
    log.open("a").write("".join(f"value {v} seen\n" for k, v in values.items() if k.startswith("OWN")))
    rank = fake_rank(
        tmp_path, RANK="0", NCCL_DEBUG_FILE=str(log), HOME=str(tmp_path), XDG_CACHE_HOME="", **values
    )  # fmt: skip
    dump = tmp_path / ".cache" / "torch" / "comm_lib_trace_rank_0"
    dump.parent.mkdir(parents=True)
    dump.write_bytes(b"\x80\x02}q\x00(" + "\n".join(text for _, text, _ in ALL[:20]).encode() + b"entriesu.")
    out = tmp_path / "b.tar.gz"
    argument = "--by=" + ALL[11][2]
    try:
        done = collect(
            "--quick", "--out", str(out), "--pid", str(rank.pid), "--log", f"/nowhere/{ALL[25][2]}/x.log",
            env={"PATH": f"{tools}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode in (0, 3), done.stderr
    finally:
        rank.kill()
        rank.wait()
    held = everything(out)
    assert argument.encode() not in held
    left = [
        (kind, held[max(0, at - 60) : at + 20]) for kind, _, secret in ALL if (at := held.find(secret.encode())) >= 0
    ]
    assert left == []
    assert b"plain-value-" not in held
    assert held.count(b"NCCL INFO line") == len(ALL), "the log itself must be there"
    assert any(f["path"].endswith("ibstat.txt") for f in manifest(out)["files"])
    assert b"SECRET-" in held
    verified = subprocess.run(["tar", "-tzf", str(out)], capture_output=True)
    assert verified.returncode == 0

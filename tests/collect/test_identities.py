"""Identities go, and what rules need survives: order, subnets, joins of names, device names, versions."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.collect.identities import Identities
from diagnose.collect.names import compress, expand, natural, relatives

LOG = """\
gpu07.cluster.example:4711:4790 [3] NCCL INFO Bootstrap : Using eth0:10.20.33.7<0>
gpu12:4711:4790 [0] NCCL INFO NET/Socket : Using [0]eth0:10.20.34.12<0> [1]ib0:192.168.40.12<0>
gpu100:88:90 [0] NCCL WARN NET/IB : Got completion from peer 10.20.33.7<57294> with status=12 gpu07
SLURM_JOB_NODELIST=gpu[007,012,100],login1
SLURM_NODELIST=gpu[07,12] MASTER_ADDR=gpu07.cluster.example
  inet 10.20.32.1/20 brd 10.20.47.255 scope global eth0
  link/ether a0:88:c2:12:34:56 brd ff:ff:ff:ff:ff:ff
  inet6 fe80::a288:c2ff:fe12:3456/64 scope link
mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a14:2107 10.20.33.7 v2 eth0
node_guid: a088:c203:0012:3456
File "/home/alice/llm-secret/train_model.py", line 88 in main
/home/alice/llm-secret/ckpt/step_100/model.bin /usr/lib/python3.11/site-packages/torch/nn/linear.py
UserId=alice(1000) GroupId=research(2000)
NCCL version 2.21.5+cuda12.4 driver 550.54.15 fw 28.39.3560 0.0.0.0 127.0.0.1 224.0.0.1
alice submitted it; mlx5_0:1/RoCE GPU 0 rank 3 eth0 CUDA-12
"""


@pytest.fixture
def names() -> Identities:
    made = Identities()
    made.learn_hosts(["gpu07"])
    made.learn(LOG)
    made.settle()
    made.text(LOG)
    return made


def test_nothing_that_identifies_is_left(names: Identities):
    text = names.text(LOG)
    for word in (
        "gpu07",
        "gpu12",
        "gpu100",
        "login1",
        "cluster.example",
        "alice",
        "llm-secret",
        "10.20.",
        "12:34:56",
        "0012:3456",
    ):
        assert word not in text, word
    assert "0a14:2107" not in text and "c2ff:fe12:3456" not in text


def test_what_rules_need_stays(names: Identities):
    text = names.text(LOG)
    for word in (
        "[3] NCCL INFO Bootstrap : Using eth0:", "NCCL version 2.21.5+cuda12.4 driver 550.54.15 fw 28.39.3560 0.0.0.0",
        "224.0.0.1", "mlx5_0:1/RoCE GPU 0 rank 3 eth0 CUDA-12", "brd ff:ff:ff:ff:ff:ff", "status=12",
        "train_model.py\", line 88", "/usr/lib/python3.11/site-packages/torch/nn/linear.py", "v2 eth0", "a0:88:c2:",
    ):  # fmt: skip
        assert word in text, word


def test_hosts_keep_their_order_and_their_joins(names: Identities):
    back = {original: token for token, original in names.mapping.items()}
    tokens = [back[n] for n in ("gpu07", "gpu12", "gpu100", "login1")]
    assert tokens == sorted(tokens)
    text = names.text(LOG)
    assert f"{back['gpu07']}.{back['cluster.example']}:4711:4790 [3]" in text, "short and long names still join"
    assert "SLURM_NODELIST=h[" in text
    assert text.count(back["gpu07"]) >= 3


def test_addresses_keep_their_subnets(names: Identities):
    back = {original: token for token, original in names.mapping.items()}
    a, b, gateway = (ipaddress.ip_address(back[x]) for x in ("10.20.33.7", "10.20.34.12", "10.20.32.1"))
    net = ipaddress.ip_network(f"{gateway}/20", strict=False)
    assert a in net and b in net
    assert ipaddress.ip_network(f"{a}/24", strict=False) != ipaddress.ip_network(f"{b}/24", strict=False)
    assert a in ipaddress.ip_network("10.0.0.0/8") and str(a).endswith(".7")
    assert ipaddress.ip_address(back["192.168.40.12"]) in ipaddress.ip_network("192.168.0.0/16")
    gid = back["0000:0000:0000:0000:0000:ffff:0a14:2107"]
    assert ipaddress.IPv6Address(gid).ipv4_mapped == a, "the GID is still that of the address"


def test_the_same_in_every_text_and_another_key_in_another_bundle(names: Identities):
    assert names.text("10.20.33.7") == names.text("x 10.20.33.7").split()[1]
    other = Identities()
    other.settle()
    texts = ["10.20.33.7", "10.1.2.3", "10.9.77.1", "10.200.5.6"]
    assert [other.text(t) for t in texts] != [names.text(t) for t in texts]


def test_generic_words_are_no_hosts():
    made = Identities()
    made.learn("MASTER_ADDR=localhost HOSTNAME=node\nnode:1:2 [0] NCCL INFO x\n")
    made.learn_hosts(["vm"])
    made.settle()
    text = "vm.max_map_count = 65530 on node localhost, kernel vm: fine"
    assert made.text(text).startswith("vm.max_map_count") and "localhost" in made.text(text)


def test_node_lists():
    assert expand("gpu", "001-003,007", "-ib") == ["gpu001-ib", "gpu002-ib", "gpu003-ib", "gpu007-ib"]
    assert expand("gpu", "", "") == ["gpu"]
    assert compress(["h0001", "h0002", "h0003", "h0007"]) == "h[0001-0003,0007]"
    assert compress(["h0004"]) == "h0004"
    assert sorted(["n10", "n9", "n1a"], key=natural) == ["n1a", "n9", "n10"]


SITE = """\
gpu12.dc1.acme-research.io:4711:4790 [0] NCCL INFO Bootstrap : Using eth0:10.20.33.7<0>
slurmstepd: error: *** JOB 88123 ON login3 CANCELLED AT 2026-11-24T09:12:00 DUE TO TIME LIMIT ***
slurmstepd: error: *** STEP 88123.0 ON gpu14 CANCELLED AT 2026-11-24T09:12:00 ***
ssh: connect to host store.dc1.acme-research.io port 22: Connection refused
write to alice@acme-research.io, bob@gpu12.dc1.acme-research.io or ceo@bigcorp.com, not carol@gpu12
Cloning git@git.acme-research.io:vision/llama-x.git, git@github.com:acme/secret-llm.git and https://git.acme-research.io/vision/y
wandb: Currently logged in as: dave-w (acme-team). Use `wandb login --relogin` to force relogin
wandb: View project at https://wandb.ai/acme-team/llm-secret/runs/abc123
gpu13 and gpu15, carol and acme-team: registry.acme-research.io/x:1
"""
WORLD = """\
see https://pytorch.org/docs https://docs.nvidia.com/x https://github.com/pytorch/pytorch https://wandb.ai/site
torch.distributed.run gpu0 gpu 1 GPU12 GPU15 mlx5_0 eth0 ib0 huggingface.co pypi.org
h100 a100 cuda12 rank3 nvme0n1 step100 node0 sm90 libnccl.so.2 train.py
user@1000.service q@k.transpose mds01@o2ib "@torch.no_grad" systemd-journald@x
wandb:   train/loss 0.31 wandb: Syncing run fluffy-cloud-12
"""


def test_names_of_the_site_go_and_names_of_the_world_stay():
    made = Identities()
    made.learn(SITE + WORLD)
    made.settle()
    text = made.text(SITE)
    for word in (
        "gpu1", "login3", "store", "acme", "alice", "bob", "ceo", "bigcorp", "carol", "dave", "vision",
        "llama-x", "secret", "registry",
    ):  # fmt: skip
        assert word not in text, (word, text)
    assert "@github.com:" in text and "https://wandb.ai/" in text and "/runs/abc123" in text
    back = {original: token for token, original in made.mapping.items()}
    hosts = [back[name] for name in ("gpu12", "gpu13", "gpu14", "gpu15", "login3", "store")]
    assert hosts == sorted(hosts), "hosts found by their family keep their order"
    assert f"ON {back['gpu14']} CANCELLED" in text
    assert f"host {back['store']}.{back['dc1.acme-research.io']} port" in text
    for line in WORLD.splitlines():
        assert made.text(line) == line


def test_a_name_under_a_domain_learnt_later_goes_too():
    made = Identities()
    made.learn("https://wiki.acme-research.co.uk/x says so")
    made.learn_hosts(["gpu07.dc1.acme-research.co.uk"])
    made.settle()
    assert "acme" not in made.text("https://wiki.acme-research.co.uk/x and acme-research.co.uk")
    assert made.text("bbc.co.uk") == "bbc.co.uk"


@pytest.mark.parametrize(
    ("known", "word", "same"),
    [
        ("gpu12", "gpu13", True), ("gpu99", "gpu100", True), ("gpu007", "gpu012", True), ("gpu007", "gpu12", False),
        ("gpu12", "GPU13", False), ("gpu12", "gpu3", False), ("gpu3", "gpu4", False), ("node1", "node0", False),
        ("worker-0", "worker-11", True), ("rack3-gpu07", "rack4-gpu12", True), ("rank3", "rank4", False),
        ("a100", "h100", False), ("n1", "n2", False), ("c2-n1", "c2-n2", True), ("heron", "heron7", False),
    ],
)  # fmt: skip
def test_families_of_hosts(known: str, word: str, same: bool):
    assert relatives([known], [word]) == ({word} if same else set())


address = st.integers(0, 2**32 - 1).map(lambda n: str(ipaddress.IPv4Address(n)))


@settings(max_examples=50, deadline=None)
@given(address, address, st.integers(8, 32))
def test_two_addresses_share_a_subnet_afterwards_exactly_when_they_did(first: str, second: str, length: int):
    made = Identities()
    made.settle()
    after = [ipaddress.ip_address(made.text(x)) for x in (first, second)]
    before = [ipaddress.ip_address(x) for x in (first, second)]

    def shared(pair) -> bool:
        return pair[1] in ipaddress.ip_network(f"{pair[0]}/{length}", strict=False)

    if any(
        a.is_reserved or a.is_multicast or a.is_unspecified or int(str(a).split(".")[0]) in (0, 255) for a in before
    ):
        return
    assert shared(after) == shared(before)
    assert before[0].is_private == after[0].is_private or before[0] == after[0] or before[0].packed[0] != 10


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_text_comes_through(text: str):
    made = Identities()
    made.learn(text)
    made.settle()
    made.text(text)

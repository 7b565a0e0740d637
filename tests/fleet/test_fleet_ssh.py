"""Many hosts over SSH, with real sshd on loopback ports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import fleet_support as support
import pytest

pytestmark = pytest.mark.needs("ssh", "ssh-keygen", "sshd")


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Farm]:
    with support.farm(tmp_path_factory.mktemp("farm"), ["node001", "node002"]) as made:
        yield made


RANDOM = """
data = os.urandom(3000001) + bytes(range(256)) * 20 + b"\\r\\n\\r\\r\\n" * 2000
files["host/random.bin"] = data
open({place!r} + "/" + host, "w").write(hashlib.sha256(data).hexdigest())
"""


def test_random_bytes_arrive_as_they_were(farm: support.Farm, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    program = support.stand_in(RANDOM.format(place=str(told)))
    out, visits = support.collect(tmp_path / "b.tar.gz", farm.hosts, program, farm.ssh)
    assert [(v.state, v.reason, v.damaged) for v in visits] == [("arrived", "", "")] * 2
    manifest, files = support.contents(out)
    for host in farm.hosts:
        assert hashlib.sha256(files[f"{host}/host/random.bin"]).hexdigest() == (told / host).read_text()
    assert {e["host"] for e in manifest["files"]} == set(farm.hosts)
    assert not list(tmp_path.glob("*.partial"))

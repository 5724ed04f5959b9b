from __future__ import annotations

import pytest

from ottla.coordination.zookeeper.access import CHROOT_BYTES_MAX, BadConnectString, ConnectString


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1:2181", (("zk1", 2181),), ""),
        ("zk1", (("zk1", 2181),), ""),
        ("zk1:2181/", (("zk1", 2181),), ""),
        (" zk1:2181 , zk2:2182/ottla ", (("zk1", 2181), ("zk2", 2182)), "/ottla"),
        ("10.0.0.1:1,10.0.0.2:2/a/b", (("10.0.0.1", 1), ("10.0.0.2", 2)), "/a/b"),
        ("[::1]:2181,[fe80::2]/a", (("::1", 2181), ("fe80::2", 2181)), "/a"),
    ],
)
def test_servers_and_chroot_are_read(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    parsed = ConnectString.parse(text)
    assert parsed == (servers, chroot)
    assert ConnectString.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no host name"),
        ("zk1:2181,", "has no host name"),
        (":2181", "has no host name"),
        ("zk1:", "'' is not a port"),
        ("zk1:0", "'0' is not a port"),
        ("zk1:65536", "'65536' is not a port"),
        ("zk1:२१८१", "is not a port"),
        ("zk1:2181;zk2:2181", "is not a port"),
        ("user@zk1:2181", "is not a host name"),
        ("zk 1:2181", "is not a host name"),
        ("[::1:2181", "is not \\[ipv6 address\\]:port"),
        ("[::1]2181", "is not \\[ipv6 address\\]:port"),
        ("::1", "'\\:1' is not a port|has no host name"),
        ("zk1:2181/ottla,zk2:2181/ottla", "written once, after the last server"),
        ("zk1:2181/ottla/,zk2/ottla", "written once, after the last server"),
        ("zk1/ottla:2181", "written once, after the last server"),
        ("zk1:2181/a//b", "is not a tree path"),
        ("zk1:2181/a/", "is not a tree path"),
        ("zk1:2181/../a", "is not a tree path"),
        ("zk1:2181/" + "a" * CHROOT_BYTES_MAX, "longer than 128 bytes"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(BadConnectString, match=problem) as failure:
        ConnectString.parse(text)
    assert "zookeeper.connect" in str(failure.value)
    assert failure.value.hint is not None

from __future__ import annotations

import pytest

from ottla.groups.subscription import subscribed_topics

V0 = bytes.fromhex("0000 00000002 0001 61 0002 6262 ffffffff")
V3 = bytes.fromhex("0003 00000001 0001 61 00000000 00000000 00000005 0002 7261")


def test_topics_of_every_version_are_read() -> None:
    assert subscribed_topics(V0) == frozenset({"a", "bb"})
    assert subscribed_topics(V3) == frozenset({"a"})


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x00", V0[:5], V0[:8], b"\xff\xff" + V0[2:], b"\x00\x00\x7f\xff\xff\xff" + V0, b"\x00\x00\xff\xff\xff\xff"],
)
def test_bytes_that_are_no_subscription_are_none(damaged: bytes) -> None:
    assert subscribed_topics(damaged) is None

"""Tests that need a ZooKeeper skip with the reason where this machine cannot run one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.testing.zookeeper import ZooKeeperUnavailable


@contextmanager
def skips_without_zookeeper() -> Iterator[None]:
    try:
        yield
    except ZooKeeperUnavailable as reason:
        pytest.skip(str(reason))

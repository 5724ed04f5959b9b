from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ottla.mirror import Mirror, MirrorOptions, Names
from ottla.testing import ControlledBroker, Namespace
from tests.tree_fixtures import has_zookeeper

__all__ = ["has_zookeeper"]

SETTINGS = {"group.min.session.timeout.ms": "100", "log.cleaner.backoff.ms": "100"}


@pytest.fixture(scope="module")
def live() -> Iterator[ControlledBroker]:
    """The cluster that is copied."""
    with ControlledBroker(SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def offline() -> Iterator[ControlledBroker]:
    """The cluster that gets the copies."""
    with ControlledBroker(SETTINGS) as broker:
        yield broker


@pytest.fixture
def names(live: ControlledBroker) -> Iterator[Namespace]:
    """Topics and groups of one test on the live cluster; their copies stay until the end of the module."""
    with live.namespace() as namespace:
        yield namespace


@pytest.fixture
def mirror_of(names: Namespace, live: ControlledBroker, offline: ControlledBroker) -> Callable[..., Mirror]:
    """A mirror of the test's own topics and groups; its messages go to `notes`."""

    def make(options: MirrorOptions | None = None, notes: list[str] | None = None) -> Mirror:
        mine = Names((re.escape(names.prefix) + ".*",))
        options = replace(options or MirrorOptions(session_timeout_ms=500), topics=mine, groups=mine)
        return Mirror(live.bootstrap, offline.bootstrap, options, note=(notes if notes is not None else []).append)

    return make

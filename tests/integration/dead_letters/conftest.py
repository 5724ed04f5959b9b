"""A client of the file's broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected

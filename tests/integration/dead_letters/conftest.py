"""One broker for the file, and names of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.cluster import Cluster
from ottla.testing import Namespace
from ottla.testing.broker import RunningBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def namespace(broker: RunningBroker) -> Iterator[Namespace]:
    with Namespace(broker.bootstrap) as names:
        yield names


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected

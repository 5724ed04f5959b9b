from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.broker import RunningBroker


@pytest.fixture(scope="module")
def grouping_broker() -> Iterator[RunningBroker]:
    """A broker whose groups do not wait for more members before they assign."""
    with RunningBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.broker import RunningBroker


@pytest.fixture(scope="module")
def grouping_broker() -> Iterator[RunningBroker]:
    """A broker whose groups do not wait for more members before they assign."""
    # Clients write records of 2023, and retention runs every five minutes.
    with RunningBroker(settings={"group.initial.rebalance.delay.ms": "0", "log.retention.ms": "-1"}) as running:
        yield running

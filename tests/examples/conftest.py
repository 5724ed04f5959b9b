"""One broker for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import ControlledBroker, Namespace


@pytest.fixture(scope="session")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as running:
        yield running


@pytest.fixture
def namespace(broker: ControlledBroker) -> Iterator[Namespace]:
    with broker.namespace("examples") as topics:
        yield topics

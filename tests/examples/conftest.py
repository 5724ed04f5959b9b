"""One broker for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import ControlledBroker, Namespace
from tests.old_records import KEEPS_OLD_RECORDS


@pytest.fixture(scope="session")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker(KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.fixture
def namespace(broker: ControlledBroker) -> Iterator[Namespace]:
    with broker.namespace("examples") as topics:
        yield topics

"""For tests: a real broker that a test controls, its own topics, and their records.

With pytest (`pip install 'ottla[pytest]'`) fixtures are there, which ottla/testing/plugin.py lists:

    from ottla.testing import assert_produced

    def test_paid_order_is_announced(ottla_namespace):
        orders = ottla_namespace.topic("orders")
        pay(order=7, bootstrap=orders.bootstrap, topic=orders)
        assert_produced(orders, [("7", "paid")])

Without it:

    from ottla.testing import ControlledBroker

    with ControlledBroker() as broker, broker.namespace() as namespace:
        ...

ControlledBroker    a broker: kill, pause, slow down, fill up, and move its clock
ControlledCluster   three such brokers, or more
Namespace           topics and groups that are gone after it
produce             writes records
consume_all         the records of a topic
assert_produced     fails unless a topic has just these records
Record, ANY         a record with more than key and value; what may be anything

Importing this package imports nothing else: a name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.testing.controlled.broker import BrokerClock, BrokerEnded, ControlledBroker
    from ottla.testing.controlled.cluster import ControlledCluster
    from ottla.testing.namespace import Namespace
    from ottla.testing.record import ANY, Record
    from ottla.testing.topic import Topic, assert_produced, consume_all, produce

__all__ = [
    "ANY",
    "BrokerClock",
    "BrokerEnded",
    "ControlledBroker",
    "ControlledCluster",
    "Namespace",
    "Record",
    "Topic",
    "assert_produced",
    "consume_all",
    "produce",
]

# Where the public names are.
_HOMES: Final = {
    "ANY": "record",
    "BrokerClock": "controlled.broker",
    "BrokerEnded": "controlled.broker",
    "ControlledBroker": "controlled.broker",
    "ControlledCluster": "controlled.cluster",
    "Namespace": "namespace",
    "Record": "record",
    "Topic": "topic",
    "assert_produced": "topic",
    "consume_all": "topic",
    "produce": "topic",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
    return getattr(import_module(f"ottla.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""All faults by their names, and which of them need namespaces of the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.cluster.clock_faults import CLOCK_FAULTS
from tests.cluster.disk_faults import DISK_FAULTS
from tests.cluster.faults import FAULTS
from tests.cluster.group_faults import GROUP_FAULTS
from tests.cluster.network_faults import NETWORK_FAULTS
from tests.cluster.scripted_orders import SCRIPTED_ORDERS, power_cut_all_unflushed
from tests.cluster.stale_directories import STALE_DIRECTORY_FAULTS
from tests.cluster.target import Fault
from tests.cluster.topic_faults import TOPIC_FAULTS

PLAIN_FAULTS: Final[Mapping[str, Fault]] = {
    **FAULTS,
    **GROUP_FAULTS,
    **TOPIC_FAULTS,
    **CLOCK_FAULTS,
    **STALE_DIRECTORY_FAULTS,
}
PRIVATE_FAULTS: Final[Mapping[str, Fault]] = {**DISK_FAULTS, **NETWORK_FAULTS, **SCRIPTED_ORDERS}
ALL_FAULTS: Final[Mapping[str, Fault]] = {**PLAIN_FAULTS, **PRIVATE_FAULTS}
# Some tens of seconds each, by watching or waiting.
SLOW_FAULTS: Final = (
    CLOCK_FAULTS.keys()
    | SCRIPTED_ORDERS.keys()
    | STALE_DIRECTORY_FAULTS.keys()
    | {
        "recreate-topic-while-one-is-away",
        "stuck-sync-of-leader",
        "stuck-sync-of-follower",
        "leader-from-zookeeper-with-waiting-clients",
    }
)
# Loses records by intent: only the controls do it.
CONTROL_FAULTS: Final[Mapping[str, Fault]] = {"power-cut-all-unflushed": power_cut_all_unflushed}

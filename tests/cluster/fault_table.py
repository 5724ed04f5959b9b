"""All faults by their names, and which of them need separate namespaces."""

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
# One broker at most is hurt, and all others are in sync: another replica can serve all clients all the time, or from
# the moment that the fault itself notes.
LEAVES_A_REPLICA: Final = (
    CLOCK_FAULTS.keys()
    | STALE_DIRECTORY_FAULTS.keys()
    | {
        "kill-leader",
        "kill-broker",
        "kill-coordinator",
        "stop-broker",
        "pause-leader",
        "pause-broker",
        "pause-coordinator",
        "recreate-topic",
        "recreate-topic-while-one-is-away",
        "move-replica",
        "move-leaders",
        "grow-topic",
        "change-settings",
        "power-cut-leader",
        "disk-dies",
        "sync-fails",
        "sync-fails-at-follower",
        "write-fails",
        "write-fails-at-follower",
        "rename-fails",
        "slow-sync-of-leader",
        "slow-sync-of-follower",
        "slow-sync-everywhere",
        "stuck-sync-of-leader",
        "stuck-sync-of-follower",
        "corrupt-replica",
        "truncate-replica",
        "lose-disk",
        "leader-from-zookeeper",
        "leader-from-zookeeper-with-waiting-clients",
        "leader-alone",
        "brokers-in-a-ring",
        "one-way",
        "lossy-between-brokers",
        "lossy-to-zookeeper",
        "lossy-to-clients",
        "lossy-everywhere",
    }
)
# A broker is silent to clients, and its connections stay: clients give up their requests by their own time-out,
# which no broker shortens.
SILENT_BROKER_FAULTS: Final = frozenset({"pause-leader", "pause-broker", "pause-coordinator", "leader-alone"})
# The group is hurt, and no broker is.
HURTS_THE_GROUP: Final = GROUP_FAULTS.keys() | {"kill-member", "pause-member", "replace-member"}
# Clients are judged after the end of the fault; the reason why no replica can serve them before, or need not.
LEAVES_NONE: Final[Mapping[str, str]] = {
    "kill-all": "all are killed",
    "power-cut-two": "one is left, and `min.insync.replicas` is two",
    "power-cut-all": "all lose their power",
    "starve-broker": "it leads on, a tenth as fast, since its session lives",
    "kill-zookeeper": "without ZooKeeper all leases end",
    "pause-zookeeper": "without ZooKeeper all leases end",
    "zookeeper-alone": "without ZooKeeper all leases end",
    "move-replica-and-kill": "the partition has two replicas when one of them is killed",
    "disk-full": "the broker waits 5 s for room before it gives way, and has room again by then",
    "sync-fails-everywhere": "no broker can flush",
    "write-fails-everywhere": "a broker of each replica may refuse to write",
    "leader-from-followers": "its session lives, so it leads on, with fewer in sync than may acknowledge",
    "leader-from-clients": "its session lives, so it leads on, and clients do not reach it",
    "part-kill": "two are away at the same time",
    "last-replica-standing": "two are away at the same time",
    "stale-rejoin": "all are killed",
}
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
# Loses records intentionally: only the controls use it.
CONTROL_FAULTS: Final[Mapping[str, Fault]] = {"power-cut-all-unflushed": power_cut_all_unflushed}

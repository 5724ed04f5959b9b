"""Settings of brokers that are set while they run, as Kafka's tools do for a reassignment (KIP-73).

They belong to one broker, or as a default to all brokers; a configuration file cannot set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.limits import INT64_MAX
from ottla.model.setting import AnySetting, int64, setting_named

FOLLOWER_THROTTLED_RATE: Final = int64(
    "follower.replication.throttled.rate",
    INT64_MAX,
    "The bytes that a broker fetches in a second for its replicas in `follower.replication.throttled.replicas`, while "
    "they are not in sync.",
    minimum=0,
)

_STORED: Final[tuple[AnySetting, ...]] = (
    int64(
        "leader.replication.throttled.rate",
        INT64_MAX,
        "The rate of the followers alone is in force.",
        minimum=0,
        honoured=False,
    ),
    int64(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        INT64_MAX,
        "A broker has one log directory.",
        minimum=1,
        honoured=False,
    ),
)

DYNAMIC_BROKER_SETTINGS: Final[Mapping[str, AnySetting]] = {
    setting.name: setting for setting in (FOLLOWER_THROTTLED_RATE, *_STORED)
}


def dynamic_broker_setting(name: str) -> AnySetting:
    """Raises `ConfigError` for a name that is not one of these."""
    return setting_named(name, DYNAMIC_BROKER_SETTINGS, "a running broker")

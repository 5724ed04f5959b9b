"""The settings of single consumer groups (KIP-848), and the rules for changing them.

A group's own value wins over the broker's.  Apache Kafka 4.1 also has settings of share and streams groups; they are
unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.model import broker_settings as broker
from ottla.model.errors import ConfigError
from ottla.model.limits import SECOND_MS
from ottla.model.setting import AnySetting, Setting, int32, setting_named
from ottla.model.settings import BrokerSettings

CONSUMER_SESSION_TIMEOUT_MS: Final = int32(
    "consumer.session.timeout.ms",
    45 * SECOND_MS,
    "A member without a heartbeat for this time is removed; longer than the heartbeat interval.",
    minimum=1,
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = int32(
    "consumer.heartbeat.interval.ms", 5 * SECOND_MS, "The interval of members' heartbeats.", minimum=1
)


class Bounds(NamedTuple):
    """The broker's settings for a group's setting: its default and its bounds."""

    inherited: Setting[int]
    lowest: Setting[int]
    highest: Setting[int]


BOUNDS: Final[Mapping[str, Bounds]] = {
    CONSUMER_SESSION_TIMEOUT_MS.name: Bounds(
        broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    CONSUMER_HEARTBEAT_INTERVAL_MS.name: Bounds(
        broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
}
GROUP_SETTINGS: Final[Mapping[str, Setting[int]]] = {
    setting.name: setting for setting in (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS)
}


def group_setting(name: str) -> AnySetting:
    """The group setting of this name.  Raises `ConfigError` that names the nearest."""
    return setting_named(name, GROUP_SETTINGS, "groups")


def in_force(setting: Setting[int], own: Mapping[str, str], settings: BrokerSettings) -> int:
    """The settings in force for a group with these own values."""
    text = own.get(setting.name)
    return settings[BOUNDS[setting.name].inherited] if text is None else setting.parse(text)


def check_group(own: Mapping[str, str], settings: BrokerSettings) -> None:
    """Raise `ConfigError` unless every value is within the broker's bounds, and a session is longer than the interval.

    Inherited values are the operator's choice and are not checked.
    """
    for name in own:
        value, bounds = in_force(GROUP_SETTINGS[name], own, settings), BOUNDS[name]
        for bound, is_broken in ((bounds.lowest, int.__lt__), (bounds.highest, int.__gt__)):
            if is_broken(value, settings[bound]):
                word = "at least" if bound is bounds.lowest else "at most"
                raise ConfigError(f"{name}: {value} is not {word} {settings[bound]} ({bound.name})")
    session_ms = in_force(CONSUMER_SESSION_TIMEOUT_MS, own, settings)
    interval_ms = in_force(CONSUMER_HEARTBEAT_INTERVAL_MS, own, settings)
    if own and session_ms <= interval_ms:
        problem = f"a session of {session_ms} ms is not longer than a heartbeat interval of {interval_ms} ms"
        raise ConfigError(problem, hint="make consumer.session.timeout.ms greater than consumer.heartbeat.interval.ms")

"""Maps the broker's settings to those of groups: the one place that knows both sets of names."""

from __future__ import annotations

from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.model import broker_settings as setting
from ottla.model.group_settings import CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS, in_force
from ottla.model.limits import MINUTE_MS
from ottla.model.settings import BrokerSettings


def group_settings(broker: BrokerSettings) -> GroupSettings:
    """The limits and times of all groups of this broker."""
    return GroupSettings(
        min_session_timeout_ms=broker[setting.GROUP_MIN_SESSION_TIMEOUT_MS],
        max_session_timeout_ms=broker[setting.GROUP_MAX_SESSION_TIMEOUT_MS],
        initial_rebalance_delay_ms=broker[setting.GROUP_INITIAL_REBALANCE_DELAY_MS],
        max_size=broker[setting.GROUP_MAX_SIZE],
        offset_metadata_max_bytes=broker[setting.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=broker[setting.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
        offsets_retention_check_interval_ms=broker[setting.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
        consumer_session_timeout_ms=broker[setting.GROUP_CONSUMER_SESSION_TIMEOUT_MS],
        consumer_heartbeat_interval_ms=broker[setting.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
        consumer_max_size=broker[setting.GROUP_CONSUMER_MAX_SIZE],
        consumer_assignors=broker[setting.GROUP_CONSUMER_ASSIGNORS],
    )


def consumer_times(configs: ConfigsView, group_id: str, broker: BrokerSettings) -> ConsumerTimes:
    """The settings of one consumer group: its own over the broker's."""
    own = configs.of(ConfigEntity.group(group_id))
    return ConsumerTimes(
        in_force(CONSUMER_SESSION_TIMEOUT_MS, own, broker), in_force(CONSUMER_HEARTBEAT_INTERVAL_MS, own, broker)
    )

"""Settings of a member of a Kafka group.  Names and defaults follow Kafka's consumers where they have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.session_lease import lease_ms

AUTO: Final = "auto"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
PROTOCOLS: Final = (AUTO, CLASSIC, CONSUMER)


@dataclass(frozen=True, slots=True)
class KafkaGroupOptions:
    """All times in ms.

    protocol               "consumer" (KIP-848), "classic", or "auto": the former where the broker offers it and the
                           group has no members of the other kind
    session_timeout_ms     a classic member is removed when the coordinator has not heard of it for so long.  Of a
                           KIP-848 group the broker decides; this is taken where it does not say
    heartbeat_interval_ms  between heartbeats of a classic member; of a KIP-848 group the broker decides
    rebalance_timeout_ms   so long the group waits for this member to give partitions back (max.poll.interval.ms)
    group_instance_id      a static member (KIP-345): closed, it keeps its partitions for the session timeout, and gets
                           them again when it is back by then.  One process at a time has the id
    topics_refresh_ms      a topic that a filter selects is read at most so long after it was made
    commit_timeout_ms      a commit is tried for so long before it is refused
    request_timeout_ms     a coordinator that does not answer for so long is looked up again
    """

    protocol: str = AUTO
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    group_instance_id: str | None = None
    topics_refresh_ms: int = 5_000
    commit_timeout_ms: int = 60_000
    request_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ConfigError(
                f"the group protocol {self.protocol!r} is none of {', '.join(PROTOCOLS)}", hint="leave it out, or auto"
            )
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        instance_id = self.group_instance_id
        if instance_id is not None and (not isinstance(instance_id, str) or not instance_id):
            raise ConfigError(f"group_instance_id is {instance_id!r}", hint="it is a text, or leave it out")
        if self.heartbeat_interval_ms >= lease_ms(self.session_timeout_ms):
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than two thirds of"
                f" session_timeout_ms ({self.session_timeout_ms}): so long a member may act without an answer",
                hint="a third of it, or less",
            )

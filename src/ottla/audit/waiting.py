"""Waits until a topic is complete: what a batch job calls before it reads an hour."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection

from ottla.audit.completeness import Completeness, CompletenessRules, completeness_of
from ottla.audit.topic import AuditReader
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.lost_offsets import read_lost_offsets
from ottla.model.errors import OttlaError
from ottla.model.nearest import nearest_name
from ottla.model.own_names import AUDIT_TOPIC
from ottla.model.windows import time_text

POLL_MS = 2_000


class NotComplete(OttlaError):
    """The time was over before the topic was complete; `status` is what was known last."""

    hint = "`ottla audit status` shows what each tier has counted; allow more time, or a lower threshold"

    def __init__(self, message: str, status: Completeness) -> None:
        super().__init__(message)
        self.status = status


def wait_until_complete(
    cluster: Cluster,
    topic: str,
    until_ms: int,
    rules: CompletenessRules | None = None,
    *,
    from_ms: int | None = None,
    timeout_ms: float | None = None,
    audit_topic: str = AUDIT_TOPIC,
    poll_ms: float = POLL_MS,
    on_status: Callable[[Completeness], object] = lambda _: None,
    on_trouble: Callable[[ClientError], object] = lambda _: None,
) -> Completeness:
    """Return when every window of `topic` from `from_ms` to `until_ms` is complete; None: from the first one on.

    with Cluster("localhost:9092") as cluster:
        wait_until_complete(cluster, "clicks", 1_330_608_000_000, timeout_ms=3_600_000)

    `on_status` is called with the status after each read, every `poll_ms`.  A read that fails because brokers are away
    is reported to `on_trouble`, and tried again.  Raises NotComplete after `timeout_ms`, or the error of the last read
    when none succeeded; None waits for ever.  Raises UnknownTopic at the first read where the cluster has no such
    topic and no counter has counted it.
    """
    rules = rules or CompletenessRules()
    deadline = None if timeout_ms is None else cluster.retrying.deadline(timeout_ms)
    reader = AuditReader(cluster, audit_topic)
    status: Completeness | None = None
    while True:
        try:
            snapshot = reader.update()
            if status is None and topic not in snapshot.topics:
                _check_exists(cluster, topic, snapshot.topics)
        except ClientError as error:
            if not error.is_retriable or (status is None and deadline is not None and deadline.has_passed):
                raise
            on_trouble(error)
        else:
            status = completeness_of(snapshot, topic, rules, cluster.clock.now_ms())
            on_status(status)
            if status.is_complete_between(from_ms, until_ms):
                return status
        if status is not None and deadline is not None and deadline.has_passed:
            why = why_not(status, until_ms, from_ms)
            if status.short_between(from_ms, until_ms):
                # That the topic of lost offsets cannot be read either is no news.
                with contextlib.suppress(ClientError):
                    why += "".join(f"; {text}" for text in lost_texts(cluster, [topic]).values())
            raise NotComplete(f"not complete until {time_text(until_ms)}: {why}", status)
        pause_ms = poll_ms if deadline is None else min(poll_ms, max(1.0, deadline.remaining_ms))
        cluster.retrying.sleep_ms(pause_ms)


def _check_exists(cluster: Cluster, topic: str, counted: Collection[str]) -> None:
    """Raises UnknownTopic with the name that was probably meant, ClientError."""
    names = {each.name for each in cluster.refresh(None) if not each.is_internal}
    if topic not in names:
        nearest = nearest_name(topic, sorted({*names, *counted}))
        problem = f"topic {topic} does not exist, and no counter has counted it"
        raise UnknownTopic(problem, hint=None if nearest is None else f"did you mean {nearest}?")


def lost_texts(cluster: Cluster, topics: Collection[str]) -> dict[str, str]:
    """The lost offsets of these topics, where there are any: they may be why the topics lack records.

    Raises ClientError.
    """
    ranges = Counter(entry.lost.topic for entry in read_lost_offsets(cluster))
    return {
        topic: f"{ranges[topic]} {'ranges' if ranges[topic] > 1 else 'range'} of {topic} could not be read, "
        f"as `ottla audit lost-offsets {topic}` shows"
        for topic in topics
        if ranges[topic]
    }


def why_not(status: Completeness, until_ms: int, from_ms: int | None = None) -> str:
    """What keeps the topic from being complete between these times."""
    short = status.short_between(from_ms, until_ms)
    if short:
        line = short[0]
        more = f", and {len(short) - 1} windows more lack some" if len(short) > 1 else ""
        return (
            f"{line.tier} has {line.records} of {line.expected_records} records of {status.topic} "
            f"in {line.window}{more}"
        )
    if status.behind_count:
        return f"{status.topic}: {status.behind_text}"
    if status.reported_until_ms is None:
        return f"no counter of {status.topic} before tier {status.rules.tier} has reported anything"
    if status.reported_until_ms < until_ms:
        return f"{status.topic} is counted until {time_text(status.reported_until_ms)} only"
    return str(status)

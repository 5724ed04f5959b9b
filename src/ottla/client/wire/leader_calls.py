"""One question to the leaders of many partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, UnknownTopic
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

Q = TypeVar("Q")
A = TypeVar("A", bound=object)

_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

Exchange = Callable[[Connection, Mapping[TopicPartition, Q], Deadline], Mapping[TopicPartition, A | BrokerRefused]]


def call_leaders(
    cluster: Cluster,
    what: str,
    questions: Mapping[TopicPartition, Q],
    exchange: Exchange[Q, A],
    timeout_ms: float | None = None,
) -> dict[TopicPartition, A]:
    """`exchange` makes one request to one leader.  Partitions with retriable errors are retried, with their leader at
    that time.

    Raises the first error that is not retriable.
    """
    deadline = cluster.retrying.deadline(timeout_ms)
    backoff = cluster.retrying.backoff()
    answers: dict[TopicPartition, A] = {}
    while True:
        left = {partition: questions[partition] for partition in questions if partition not in answers}
        failure: ClientError = CallTimedOut("a broker left partitions out of its response")
        for leader_id, group in group_by_leader(cluster, left, deadline).items():
            asked = {partition: questions[partition] for partition in group}
            outcome = _ask(cluster, leader_id, asked, exchange, deadline)
            for partition in group:
                answer = outcome.get(partition)
                if isinstance(answer, ClientError):
                    failure = _retriable(answer)
                    cluster.forget([partition.topic])
                elif answer is not None:
                    answers[partition] = answer
        if len(answers) == len(questions):
            return {partition: answers[partition] for partition in questions}
        cluster.retrying.pause_or_give_up(what, backoff, deadline, failure)


def group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> dict[int, list[TopicPartition]]:
    """Node ids with the partitions that they lead; waits while a partition has no leader."""
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = cluster.retrying.run(
            f"finding the leader of {partition}",
            lambda left, sought=partition: cluster.leader(sought, deadline=left),  # type: ignore[misc]
            deadline,
        )
        groups.setdefault(leader.leader_id, []).append(partition)
    return groups


def try_leaders(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], exchange: Exchange[Q, A]
) -> dict[TopicPartition, A | ClientError]:
    """Like `call_leaders`, but each partition has its answer or the reason why there is none: one without a leader does
    not hide the others.  Retriable failures are retried once, without waiting.

    Raises what keeps it from finding the leaders, but only while no partition has an answer.
    """
    deadline = cluster.retrying.deadline()
    backoff = cluster.retrying.backoff()
    outcomes: dict[TopicPartition, A | ClientError] = {}
    left = list(questions)
    for is_last in (False, True):
        try:
            groups, failures = leaders_now(cluster, left, deadline)
        except ClientError:
            if all(isinstance(each, ClientError) for each in outcomes.values()):
                raise
            break
        outcomes.update(failures)
        for leader_id, group in groups.items():
            found = _ask(cluster, leader_id, {each: questions[each] for each in group}, exchange, deadline)
            for partition in group:
                answer = found.get(partition)
                if answer is None:  # while 0 is an answer
                    answer = CallTimedOut(f"the broker left {partition} out")
                outcomes[partition] = answer
        left = [each for each in left if isinstance(why := outcomes[each], ClientError) and why.is_retriable]
        if is_last or not left:
            break
        cluster.retrying.sleep_ms(backoff.next_ms())
    return outcomes


def leaders_now(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: Deadline
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, ClientError]]:
    """Node ids with the partitions that they lead, and why the others have no leader.  One request for all."""
    wanted = list(partitions)
    names = sorted({each.topic for each in wanted})
    topics = {topic.name: topic for topic in cluster.refresh(names, deadline=deadline)} if names else {}
    groups: dict[int, list[TopicPartition]] = {}
    failures: dict[TopicPartition, ClientError] = {}
    for partition in wanted:
        topic = topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        if topic is not None and topic.error_code and topic.error_code not in _MISSING:
            failures[partition] = BrokerRefused(topic.error_code, str(partition))
        elif found is None:
            failures[partition] = UnknownTopic(f"there is no partition {partition}")
        elif found.leader_id < 0:
            failures[partition] = BrokerRefused(
                ErrorCode.LEADER_NOT_AVAILABLE, str(partition), "no broker leads it now"
            )
        else:
            groups.setdefault(found.leader_id, []).append(partition)
    return groups, failures


def _ask(
    cluster: Cluster, leader_id: int, asked: Mapping[TopicPartition, Q], exchange: Exchange[Q, A], deadline: Deadline
) -> Mapping[TopicPartition, A | ClientError]:
    try:
        return exchange(cluster.connect_broker(leader_id, deadline), asked, deadline)
    except ClientError as error:
        return dict.fromkeys(asked, error)


def _retriable(error: ClientError) -> ClientError:
    if not error.is_retriable:
        raise error
    return error

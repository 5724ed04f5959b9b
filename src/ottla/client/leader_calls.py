"""One question to the leaders of many partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerRefused, CallTimedOut, ClientError
from ottla.model.identifiers import TopicPartition

Q = TypeVar("Q")
A = TypeVar("A", bound=object)

Exchange = Callable[[Connection, Mapping[TopicPartition, Q], Deadline], Mapping[TopicPartition, A | BrokerRefused]]


def call_leaders(
    cluster: Cluster,
    what: str,
    questions: Mapping[TopicPartition, Q],
    exchange: Exchange[Q, A],
    timeout_ms: float | None = None,
) -> dict[TopicPartition, A]:
    """`exchange` makes one request to one leader.  Partitions that fail for now are asked again, of their leader then.

    Raises the first error that is not retriable.
    """
    deadline = cluster.retrying.deadline(timeout_ms)
    backoff = cluster.retrying.backoff()
    answers: dict[TopicPartition, A] = {}
    while True:
        left = {partition: questions[partition] for partition in questions if partition not in answers}
        failure: ClientError = CallTimedOut("a broker left partitions out of its answer")
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

"""What moves leave behind when they cannot be begun, or are not waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast
from uuid import UUID

import click
import pytest

from ottla.cli.cluster import moves as cluster_moves
from ottla.cli.cluster.moves import LOOKS_AT_THE_END, carry_out
from ottla.cli.cluster.replica_plan import Move
from ottla.client.admin.replicas import OngoingMove
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import PartitionInfo, TopicInfo
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

PARTITION = TopicPartition("orders", 0)
MOVES = [Move(PARTITION, (1, 2), (1, 3), 100)]
STAYS = "The throttle stays: end it with `ottla cluster rebalance --cancel` when the moves have ended.\n"


def topic_info(code: ErrorCode, replicas: Mapping[int, tuple[int, ...]]) -> TopicInfo:
    partitions = {
        index: PartitionInfo(index, nodes[0], 0, nodes, nodes, (), ErrorCode.NONE) for index, nodes in replicas.items()
    }
    return TopicInfo(PARTITION.topic, UUID(int=1), False, partitions, code)


class ScriptedAdmin:
    """A cluster that refuses moves, or carries them out at once; throttles are not looked at."""

    refusal: BrokerRefused | None = None
    is_interrupted = False
    # Of the one partition, at each look; the last one stays.  None of them: the topic is deleted.
    replicas: Sequence[tuple[int, ...]] = ((1, 3),)

    def __init__(self, cluster: Cluster) -> None: ...

    def alter_reassignments(self, targets: Mapping[TopicPartition, object]) -> Mapping[TopicPartition, object]:
        return dict.fromkeys(targets, self.refusal)

    def list_reassignments(self, partitions: object = None) -> Mapping[TopicPartition, OngoingMove]:
        if self.is_interrupted:
            raise KeyboardInterrupt
        return {}

    def describe_topics(self, names: Iterable[str]) -> list[TopicInfo]:
        assert list(names) == [PARTITION.topic]
        if not self.replicas:
            return [topic_info(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})]
        found, *later = self.replicas
        self.replicas = later or self.replicas
        return [topic_info(ErrorCode.NONE, {0: found})]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedAdmin]:
    class Admin(ScriptedAdmin):
        pass

    monkeypatch.setattr(cluster_moves, "Admin", Admin)
    monkeypatch.setattr(cluster_moves, "POLL_INTERVAL_S", 0)
    monkeypatch.setattr(cluster_moves, "_throttle", lambda admin, moves, rate_bytes: None)
    monkeypatch.setattr(cluster_moves, "end_throttle", lambda admin: print("ended"))  # noqa: T201
    return Admin


def carried_out(capsys: pytest.CaptureFixture[str], *, rate_bytes: int | None, returns_at_once: bool = False) -> str:
    carry_out(cast("Cluster", None), MOVES, rate_bytes, returns_at_once=returns_at_once)
    return capsys.readouterr().out


@pytest.mark.usefixtures("admin")
def test_throttle_ends_with_the_moves(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(capsys, rate_bytes=9).endswith("ended\n")
    assert "throttle" not in carried_out(capsys, rate_bytes=None)


@pytest.mark.usefixtures("admin")
def test_throttle_of_moves_that_are_not_waited_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(capsys, rate_bytes=9, returns_at_once=True).endswith(STAYS)


def test_throttle_is_told_when_moves_are_refused(
    admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    admin.refusal = BrokerRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "orders-0")
    with pytest.raises(BrokerRefused):
        carried_out(capsys, rate_bytes=9)
    assert capsys.readouterr().out == STAYS


def test_throttle_is_told_when_the_wait_is_interrupted(
    admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    admin.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        carried_out(capsys, rate_bytes=9)
    assert capsys.readouterr().out.endswith(STAYS)


def test_move_that_was_cancelled_is_no_success(admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]) -> None:
    admin.replicas = ((1, 2),)
    with pytest.raises(click.ClickException) as failed:
        carried_out(capsys, rate_bytes=9)
    assert failed.value.exit_code == 1
    assert failed.value.message == (
        "1 of 1 partition not moved: that was cancelled, or ended elsewhere; "
        "broker 2 still holds 1 that were to leave it"
    )
    shown = capsys.readouterr().out
    assert "0 of 1 partition moved, 0 of 100 bytes" in shown
    assert "1 of 1" not in shown
    assert shown.endswith("ended\n"), "the throttle ends with the moves"


def test_broker_that_holds_no_replica_any_more_is_not_named(
    admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    admin.replicas = ((1, 4),)
    with pytest.raises(click.ClickException, match=r"ended elsewhere$"):
        carried_out(capsys, rate_bytes=None)


def test_broker_that_hears_late_of_the_end_is_asked_again(
    admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    admin.replicas = (*[(1, 3, 2)] * (LOOKS_AT_THE_END - 1), (1, 3))
    assert carried_out(capsys, rate_bytes=None).endswith("1 of 1 partition moved, 100 of 100 bytes\n")


def test_topic_that_is_deleted_meanwhile_has_nothing_to_move(
    admin: type[ScriptedAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    admin.replicas = ()
    assert "1 of 1 partition moved" in carried_out(capsys, rate_bytes=None)

"""What moves leave behind when they cannot be begun, or are not waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from ottla.cli import cluster_moves
from ottla.cli.cluster_moves import carry_out
from ottla.cli.replica_plan import Move
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerRefused
from ottla.client.reassignments import OngoingMove
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

PARTITION = TopicPartition("orders", 0)
MOVES = [Move(PARTITION, (1, 2), (1, 3), 100)]
STAYS = "The throttle stays: end it with `ottla cluster rebalance --cancel` when the moves have ended.\n"


class ScriptedAdmin:
    """A cluster that refuses moves, or carries them out at once; throttles are not looked at."""

    refusal: BrokerRefused | None = None
    is_interrupted = False

    def __init__(self, cluster: Cluster) -> None: ...

    def alter_reassignments(self, targets: Mapping[TopicPartition, object]) -> Mapping[TopicPartition, object]:
        return dict.fromkeys(targets, self.refusal)

    def list_reassignments(self, partitions: object = None) -> Mapping[TopicPartition, OngoingMove]:
        if self.is_interrupted:
            raise KeyboardInterrupt
        return {}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedAdmin]:
    class Admin(ScriptedAdmin):
        pass

    monkeypatch.setattr(cluster_moves, "Admin", Admin)
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

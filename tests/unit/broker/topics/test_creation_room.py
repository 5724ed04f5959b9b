"""The room of a broker for further partitions."""

from __future__ import annotations

import pytest

from ottla.broker.topics.topic_requests import CreationRoom
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId
from ottla.storage.directory.open_files import LogsRoom

HERE, THERE = NodeId(1), NodeId(2)
ANY_NUMBER = 2**31 - 1


def require(
    room: CreationRoom, added_count: int, present_count: int = 0, *, at: NodeId = HERE, is_automatic: bool = False
) -> None:
    room.require("clicks", [[at]] * added_count, present_count, is_automatic=is_automatic)


def test_partitions_up_to_the_setting_have_room() -> None:
    room = CreationRoom(HERE, 100, None)
    require(room, 40, 60)
    with pytest.raises(RequestError, match=r"broker 1 41 partition.* it has 60, and 100 may be made") as refusal:
        require(room, 41, 60)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    assert refusal.value.hint is not None
    assert "max.broker.partitions" in refusal.value.hint


def test_what_others_take_needs_no_room_here() -> None:
    require(CreationRoom(HERE, 1, None), 1_000, 1, at=THERE)


def test_automatic_creations_leave_a_quarter() -> None:
    room = CreationRoom(HERE, 100, None)
    require(room, 1, 74, is_automatic=True)
    with pytest.raises(RequestError, match="75 may be made automatically"):
        require(room, 1, 75, is_automatic=True)
    require(room, 1, 75)


def test_limit_of_open_files_lowers_the_setting() -> None:
    room = CreationRoom(HERE, ANY_NUMBER, LogsRoom(limit=1_024, other_files=20).logs_max)
    require(room, 1, 939)
    with pytest.raises(RequestError, match="the limit of open files") as refusal:
        require(room, 1, 940)
    assert refusal.value.hint is not None
    assert "LimitNOFILE" in refusal.value.hint


@pytest.mark.parametrize("limit", [64, 256, 1_024, 4_096, 65_536, 1_048_576])
@pytest.mark.parametrize("other_files", [10, 20])
def test_what_creations_allow_a_start_accepts(limit: int, other_files: int) -> None:
    room = LogsRoom(limit, other_files)
    assert room.allows_start(max(room.logs_max, 0))
    assert not room.allows_start(room.left(0))


def test_room_without_a_place_refuses_everything() -> None:
    room = CreationRoom(HERE, ANY_NUMBER, LogsRoom(limit=30, other_files=20).logs_max)
    with pytest.raises(RequestError, match="0 may be made"):
        require(room, 1)

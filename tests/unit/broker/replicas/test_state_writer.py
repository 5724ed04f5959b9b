"""Changes of states are written together, and each gets the outcome that it really has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.replicas.state_writer import StateWriter
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.layout import lay_out
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Topic
from ottla.coordination.tree import SessionState
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_STATE_VERSION, ChangeOutcome, ChangeResult
from tests.contract.unsure_tree import UnsureTree

ONE = NodeId(1)
STALE = ChangeOutcome(ChangeResult.STALE, NO_STATE_VERSION)
UNKNOWN = ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION)


def applied(version: int) -> ChangeOutcome:
    return ChangeOutcome(ChangeResult.APPLIED, version)


class Session:
    session_id = 1
    state = SessionState.CONNECTED


class Writing:
    """A writer over a real tree whose answers may get lost, and a topic."""

    def __init__(self, tree: UnsureTree, registry: TopicRegistry, other: TopicRegistry, topic: Topic) -> None:
        self.tree = tree
        self.registry = registry
        self.other = other
        self.topic = topic
        self.session = Session()
        self.waits_count = 0
        self.on_wait: Callable[[], object] = lambda: None
        self.outcomes: dict[int, ChangeOutcome] = {}
        self.writer = StateWriter(registry, self.session, asyncio.get_running_loop(), self._wait)

    async def _wait(self, _seconds: float) -> None:
        self.waits_count += 1
        self.on_wait()
        await asyncio.sleep(0)

    def change(self, index: int, leader_epoch: int = 1) -> StateChange:
        partition = self.topic.partitions[index]
        return StateChange.of(self.topic, partition, partition.state._replace(leader_epoch=LeaderEpoch(leader_epoch)))

    def propose(self, index: int, leader_epoch: int = 1) -> None:
        def on_outcome(outcome: ChangeOutcome) -> None:
            assert index not in self.outcomes, "an outcome is reported once"
            self.outcomes[index] = outcome

        self.writer.propose(self.change(index, leader_epoch), on_outcome)

    async def outcomes_of(self, count: int) -> list[ChangeOutcome]:
        async with asyncio.timeout(10):
            while len(self.outcomes) < count:  # noqa: ASYNC110 (the outcomes are reported by calls)
                await asyncio.sleep(0)
        return [self.outcomes[index] for index in sorted(self.outcomes)]

    async def epochs(self) -> list[int]:
        topic = (await self.other.refresh()).by_name["orders"]
        return [partition.state.leader_epoch for partition in topic.partitions]


@asynccontextmanager
async def writing(path: Path, partitions_count: int = 3) -> AsyncIterator[Writing]:
    home = await EmbeddedBackend.open(str(path / "tree"))
    try:
        tree, theirs = await home.connect(), await home.connect()
        await lay_out(tree)
        unsure = UnsureTree(tree)
        registry = TopicRegistry(unsure)
        topic = await registry.create("orders", [[ONE]] * partitions_count, {ONE: 7})
        yield Writing(unsure, registry, TopicRegistry(theirs), topic)
    finally:
        await home.close()


async def test_changes_of_one_turn_are_written_together(tmp_path: Path) -> None:
    async with writing(tmp_path, 300) as node:
        commits: list[int] = []
        multi = node.tree.multi

        async def counted(operations):  # type: ignore[no-untyped-def]
            commits.append(len(operations))
            return await multi(operations)

        node.tree.multi = counted  # type: ignore[method-assign]
        for index in range(300):
            node.propose(index)
        assert await node.outcomes_of(300) == [applied(1)] * 300
        assert commits == [301]  # and `/changes`


async def test_stale_change_is_told_so_and_the_others_are_written(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        await node.other.change_states([node.change(1, 5)])
        for index in range(3):
            node.propose(index)
        assert await node.outcomes_of(3) == [applied(1), STALE, applied(1)]
        assert await node.epochs() == [1, 5, 1]


async def test_change_whose_answer_was_lost_is_found_applied(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        node.tree.lose_answers = 1
        node.propose(0)
        node.propose(1)
        assert await node.outcomes_of(2) == [applied(1)] * 2
        assert node.waits_count == 1


async def test_change_that_was_not_written_is_written_again(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        node.tree.lose_answers, node.tree.drop_writes = 3, True
        node.propose(0)
        assert await node.outcomes_of(1) == [applied(1)]
        assert node.waits_count == 3
        assert await node.epochs() == [1, 0, 0]


async def test_change_that_another_broker_overtook_is_stale(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        node.tree.lose_answers, node.tree.drop_writes = 1, True
        node.propose(0)
        overtaking: list[asyncio.Task[list[ChangeOutcome]]] = []
        node.on_wait = lambda: overtaking.append(asyncio.ensure_future(node.other.change_states([node.change(0, 8)])))
        node.tree.lose_answers = 1_000
        assert await node.outcomes_of(1) == [STALE]
        assert await node.epochs() == [8, 0, 0]


async def test_outcome_stays_unknown_when_the_session_ended_before_it_was_decided(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        node.tree.lose_answers, node.tree.drop_writes = 1_000, True
        node.on_wait = lambda: setattr(node.session, "session_id", node.session.session_id + (node.waits_count == 3))
        node.propose(0)
        assert await node.outcomes_of(1) == [UNKNOWN]
        node.tree.lose_answers = 0
        node.propose(1)
        assert (await node.outcomes_of(2))[1] == applied(1)


async def test_bug_in_what_follows_from_an_outcome_leaves_all_others_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(_outcome: ChangeOutcome) -> None:
        node.propose(2)
        raise AssertionError("a bug")

    async with writing(tmp_path) as node:
        node.propose(0)
        node.writer.propose(node.change(1), bug)
        assert await node.outcomes_of(2) == [applied(1), applied(1)]
        assert await node.epochs() == [1, 1, 1]
    assert [record.getMessage() for record in caplog.records] == ["state_writer.bug"]


async def test_bug_in_an_attempt_leaves_its_changes_undecided_and_later_ones_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with writing(tmp_path) as node:
        change_states = node.registry.change_states

        async def attempt(changes: Sequence[StateChange]) -> list[ChangeOutcome]:
            if changes[0].topic_partition.partition == 0:
                node.propose(1)
                raise AssertionError("a bug")
            return await change_states(changes)

        monkeypatch.setattr(node.registry, "change_states", attempt)
        node.propose(0)
        assert await node.outcomes_of(2) == [UNKNOWN, applied(1)]
    assert [record.getMessage() for record in caplog.records] == ["state_writer.bug"]


async def test_stop_ends_repeated_attempts_and_begins_no_batch(tmp_path: Path) -> None:
    async with writing(tmp_path) as node:
        node.tree.lose_answers, node.tree.drop_writes = 1_000, True
        node.propose(0)
        while node.waits_count < 3:  # noqa: ASYNC110 (counted by calls)
            await asyncio.sleep(0)
        node.propose(1)
        await node.writer.stop()
        assert node.outcomes == {0: UNKNOWN}
        node.propose(2)
        await asyncio.sleep(0)
        assert await node.epochs() == [0, 0, 0]

"""The checks of connector runs find each planted error, and nothing in a clean run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.client.consumer_registry.group_nodes import ConsumerNode, OffsetContent, encode_consumer, encode_offset
from ottla.client.groups.subscription import Subscription
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from tests.connectors.checks import check_delivery, check_duplicates, check_offsets, check_owners
from tests.connectors.claims import read_groups
from tests.connectors.journal import Handed, Joined, Sent
from tests.connectors.progress import Disturbance, Progress
from tests.connectors.tree_checks import Clocks, check_group
from tests.connectors.tree_log import Change, Kind
from tests.connectors.verdict import Verdict, Wrong

GROUP = "workers"
PARTITION = TopicPartition("jobs", 0)
MS = 1_000_000
SECOND = 1_000 * MS


def handed(member: str, offset: int, at_ms: int, *, asked_ms: int | None = None, stream: int = 0) -> Handed:
    asked = at_ms - 1 if asked_ms is None else asked_ms
    return Handed(member, asked * MS, at_ms * MS, stream, *PARTITION, offset, f"v{offset}")


def progress(*entries: Handed) -> Progress:
    made = Progress()
    for entry in entries:
        made.add(entry)
    return made


def journals_verdict(*entries: Handed, disturbances: Sequence[Disturbance] = (), sent_count: int = 0) -> Verdict:
    verdict = Verdict()
    made = progress(*entries)
    sent = [Sent("feed", 0, *PARTITION, offset, f"v{offset}") for offset in range(sent_count)]
    check_delivery(GROUP, made, sent, verdict)
    check_owners(GROUP, made, disturbances, verdict)
    check_duplicates(GROUP, made, disturbances, verdict)
    return verdict


def test_partition_that_changes_its_owner_in_order_is_clean() -> None:
    verdict = journals_verdict(
        handed("a", 0, 10), handed("a", 1, 20), handed("b", 2, 30), handed("a", 3, 40), sent_count=4
    )
    assert verdict.is_clean, str(verdict)
    assert verdict.figures == {"acknowledged": 4, "handed_out": 4}


def test_acknowledged_message_without_a_delivery_is_found() -> None:
    verdict = journals_verdict(handed("a", 0, 10), sent_count=2)
    assert verdict.found == {Wrong.NOT_DELIVERED}


def test_different_value_at_an_offset_is_found() -> None:
    verdict = journals_verdict(handed("a", 0, 10)._replace(value="v1"), handed("a", 1, 20), sent_count=2)
    assert verdict.found >= {Wrong.OTHER_VALUE}


def test_two_members_that_deliver_at_the_same_time_are_found() -> None:
    entries = [
        each for offset in range(3) for each in (handed("a", offset, 10 * offset), handed("b", offset, 10 * offset + 5))
    ]
    assert journals_verdict(*entries).found == {Wrong.DOUBLE_OWNER, Wrong.DUPLICATE}


def test_unprocessed_message_at_a_release_may_be_delivered_again() -> None:
    verdict = journals_verdict(handed("a", 0, 10), handed("a", 1, 20), handed("b", 1, 30), handed("b", 2, 40))
    assert verdict.is_clean, str(verdict)
    assert verdict.figures["duplicates"] == 1


def test_processed_message_must_not_be_delivered_again() -> None:
    verdict = journals_verdict(handed("a", 0, 10), handed("a", 1, 20), handed("b", 0, 30), handed("b", 1, 40))
    assert verdict.found == {Wrong.DUPLICATE}


@pytest.mark.parametrize("whom", ["a", None])
def test_kill_permits_duplicates_of_its_member(whom: str | None) -> None:
    killed = Disturbance("killed", whom, 25 * MS, 26 * MS)
    entries = handed("a", 0, 10), handed("a", 1, 20), handed("b", 0, 30), handed("b", 1, 40)
    assert journals_verdict(*entries, disturbances=[killed]).is_clean


def test_kill_of_another_member_permits_no_duplicates() -> None:
    killed = Disturbance("killed", "c", 25 * MS, 26 * MS)
    entries = handed("a", 0, 10), handed("a", 1, 20), handed("b", 0, 30), handed("b", 1, 40)
    assert journals_verdict(*entries, disturbances=[killed]).found == {Wrong.DUPLICATE}


def test_committed_offset_that_decreases_is_found() -> None:
    verdict = Verdict()
    check_offsets(GROUP, {PARTITION: [3, 3, 5, 4]}, verdict)
    assert verdict.found == {Wrong.OFFSET_WENT_BACK}


class WrittenTree:
    """Changes as consumers make them; the clocks are the same here."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._joined: dict[str, Joined] = {}
        self._pids: dict[str, int] = {}

    def join(self, member: str) -> None:
        pid = self._pids[member] = len(self._pids) + 1
        self._joined[member] = Joined(member, 0, GROUP, pid)
        node = ConsumerNode(Subscription({"jobs": 1}), "host", pid, "", 0)
        self._add(0, pid, Kind.CREATED, f"ids/c{pid}", encode_consumer(node))

    def leave(self, member: str, at_ms: int) -> None:
        """Its session ends, and its nodes with it."""
        pid = self._pids[member]
        self._add(at_ms, pid, Kind.DELETED, f"ids/c{pid}", b"", session_ended=True)

    def claim(self, member: str, at_ms: int, offset: int, number: int = 1) -> None:
        pid = self._pids[member]
        zxid = self._add(at_ms, pid, Kind.CREATED, "owners/jobs/0", f"c{pid}-0".encode())
        self.write(member, at_ms, offset, number, zxid)

    def write(self, member: str, at_ms: int, offset: int, number: int | None = 1, zxid: int = 0) -> None:
        claim = None if number is None else ClaimId(self._pids[member], number)
        data = encode_offset(OffsetContent(offset, claim, None, "", at_ms))
        self._add(at_ms, self._pids[member], Kind.WRITTEN, "offsets/jobs/0", data, zxid=zxid)

    def release(self, member: str, at_ms: int, offset: int) -> None:
        zxid = self._add(at_ms, self._pids[member], Kind.DELETED, "owners/jobs/0", b"")
        self.write(member, at_ms, offset, None, zxid)

    def lose(self, member: str, at_ms: int) -> None:
        self._add(at_ms, self._pids[member], Kind.DELETED, "owners/jobs/0", b"", session_ended=True)

    def verdict(self, *entries: Handed) -> Verdict:
        found = Verdict()
        clocks = Clocks([0])
        history = read_groups(self._changes)[GROUP]
        check_group(GROUP, history, progress(*entries), self._joined, clocks, found)
        return found

    def _add(
        self,
        at_ms: int,
        session_id: int,
        kind: Kind,
        path: str,
        data: bytes,
        *,
        session_ended: bool = False,
        zxid: int = 0,
    ) -> int:
        zxid = zxid or len(self._changes) + 1
        self._changes.append(Change(zxid, at_ms, session_id, kind, f"/consumers/{GROUP}/{path}", data, session_ended))
        return zxid


@pytest.fixture
def tree() -> WrittenTree:
    """Two members; `a` has the partition from 100 to 200, delivers and commits 0 and 1; then `b` has it."""
    made = WrittenTree()
    made.join("a")
    made.join("b")
    made.claim("a", 100, NO_OFFSET)
    made.write("a", 150, 1)
    made.release("a", 200, 2)
    made.claim("b", 210, 2)
    return made


A_S_PART = handed("a", 0, 110), handed("a", 1, 140), handed("a", 2, 160)
B_S_PART = handed("b", 2, 220), handed("b", 3, 230)


def end(tree: WrittenTree) -> None:
    tree.release("b", 900, 4)
    tree.leave("a", 901)
    tree.leave("b", 902)


def test_history_of_two_owners_one_after_the_other_is_clean(tree: WrittenTree) -> None:
    end(tree)
    verdict = tree.verdict(*A_S_PART, *B_S_PART)
    assert verdict.is_clean, str(verdict)
    assert verdict.figures["claims"] == 2


def test_message_that_is_delivered_after_the_release_is_found(tree: WrittenTree) -> None:
    end(tree)
    assert tree.verdict(*A_S_PART, *B_S_PART, handed("a", 3, 300)).found == {Wrong.NOT_OWNED}


def test_message_that_was_requested_before_the_release_is_ambiguous(tree: WrittenTree) -> None:
    """The process may have been stopped between the delivery and the line in its journal."""
    end(tree)
    assert tree.verdict(*A_S_PART[:-1], handed("a", 2, 300, asked_ms=160), *B_S_PART).is_clean


def test_message_that_is_delivered_before_the_claim_is_found(tree: WrittenTree) -> None:
    end(tree)
    assert Wrong.NOT_OWNED in tree.verdict(handed("b", 0, 90), *A_S_PART, *B_S_PART).found


def test_message_that_is_delivered_after_the_session_is_found(tree: WrittenTree) -> None:
    tree.lose("b", 900)
    tree.leave("a", 901)
    tree.leave("b", 902)
    assert tree.verdict(*A_S_PART, *B_S_PART).is_clean
    assert tree.verdict(*A_S_PART, *B_S_PART, handed("b", 4, 1000)).found == {Wrong.NOT_OWNED}


def test_owner_that_does_not_start_at_the_claims_offset_is_found(tree: WrittenTree) -> None:
    end(tree)
    assert Wrong.OUT_OF_ORDER in tree.verdict(*A_S_PART, handed("b", 3, 230)).found


def test_owner_that_skips_an_offset_is_found(tree: WrittenTree) -> None:
    end(tree)
    assert Wrong.OUT_OF_ORDER in tree.verdict(*A_S_PART, handed("b", 2, 220), handed("b", 4, 230)).found


def wake_and_commit(tree: WrittenTree) -> None:
    tree.write("a", 300, 1)


def wake_and_commit_further(tree: WrittenTree) -> None:
    tree.write("a", 300, 3)


def commit_what_was_not_asked_past(tree: WrittenTree) -> None:
    tree.write("b", 225, 4)


def release_less_than_was_asked_past(tree: WrittenTree) -> None:
    tree.release("b", 250, 2)
    tree.claim("b", 260, 2, number=2)


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (wake_and_commit, {Wrong.OFFSET_WENT_BACK, Wrong.NOT_FENCED}),
        (wake_and_commit_further, {Wrong.NOT_FENCED}),
        (commit_what_was_not_asked_past, {Wrong.COMMITTED_TOO_FAR}),
        (release_less_than_was_asked_past, {Wrong.RELEASED_SHORT}),
    ],
)
def test_write_that_breaks_a_rule_is_found(
    tree: WrittenTree, plant: Callable[[WrittenTree], None], expected: set[Wrong]
) -> None:
    plant(tree)
    end(tree)
    # The next one is requested at 249: only then is 3 processed.
    verdict = tree.verdict(*A_S_PART, *B_S_PART, handed("b", 4, 900, asked_ms=249))
    assert expected <= verdict.found, str(verdict)


def test_offset_that_an_operator_resets_is_no_error(tree: WrittenTree) -> None:
    tree.join("operator")
    tree.write("operator", 240, 0, None)
    # The owner releases, and starts from there.
    tree.release("b", 260, 0)
    tree.claim("b", 270, 0, number=2)
    end(tree)
    tree.leave("operator", 903)
    again = [handed("b", offset, 280 + offset) for offset in range(4)]
    verdict = tree.verdict(*A_S_PART, *B_S_PART, *again)
    assert verdict.is_clean, str(verdict)


def test_leftover_node_is_found(tree: WrittenTree) -> None:
    assert tree.verdict(*A_S_PART, *B_S_PART).found == {Wrong.NOT_EMPTY}

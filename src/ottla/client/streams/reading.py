"""One claim of a partition, as its stream reads it: what was handed out, passed, committed.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from inspect import GEN_CLOSED, GEN_SUSPENDED, getgeneratorstate
from itertools import chain
from typing import Any, NamedTuple
from weakref import ref

from ottla.client.fetching.messages import Message
from ottla.client.streams.message_run import MessageRun
from ottla.consumers.partition_nodes import ClaimId
from ottla.model.identifiers import NO_OFFSET, TopicPartition


class HandOut:
    """A batch whose messages are handed out.

    One thread hands out: it takes the runs, and compares the clock with `until_ns` before each message.  Other threads
    may read the place that it has reached, and stop it.
    """

    __slots__ = (
        "_messages",
        "_runs",
        "is_cut",
        "is_end_known",
        "is_ended",
        "next_offset",
        "reading",
        "run",
        "start",
        "token",
        "until_ns",
    )

    def __init__(
        self,
        reading: Reading,
        runs: Iterator[MessageRun],
        start: int,
        next_offset: int,
        until_ns: int,
        *,
        is_end_known: bool,
    ) -> None:
        self.reading = reading
        self.token = reading.token
        self._runs = runs
        # It waits in its `yield` while the message that was taken last is handed out.  It refers to its stream, which
        # must not live on with the connector.
        self._messages: ref[Generator[Message[Any, Any], None, None]] | None = None
        # The run that is handed out now.
        self.run: MessageRun | None = None
        self.start = start
        # After the batch, as its head says; damage in there may be seen.
        self.next_offset = next_offset
        self.is_end_known = is_end_known
        self.until_ns = until_ns
        # Whether it ended before its last message: the one that was taken last was not handed out then.
        self.is_cut = False
        # Whether all its messages were handed out.
        self.is_ended = False

    def begin(self, messages: Generator[Message[Any, Any], None, None]) -> None:
        """`messages` hands it out."""
        self._messages = ref(messages)

    def take_runs(self) -> Iterator[MessageRun]:
        """For the thread that hands out.  When it has handed out a run it takes the next one."""
        for run in self._runs:
            self.run = run
            yield run
        self.is_ended = True

    def extend(self, until_ns: int) -> None:
        """Messages may be handed out up to this moment."""
        self.until_ns = until_ns

    def stop(self) -> None:
        """No message is handed out after the one in hand."""
        self.until_ns = 0

    def cut(self) -> None:
        """It ends before the message that was taken last."""
        self.is_cut = True

    def rest(self, first: MessageRun, start: int) -> HandOut:
        """What is left of the batch: `first` and the runs after it; everything below `start` was passed."""
        runs = chain([first], self._runs)
        return HandOut(self.reading, runs, start, self.next_offset, until_ns=0, is_end_known=self.is_end_known)

    @property
    def is_current(self) -> bool:
        """Whether its reading was neither stopped nor sought elsewhere."""
        return self.token == self.reading.token and not self.reading.is_stopped

    @property
    def is_broken_off(self) -> bool:
        """Whether what handed it out is gone in the middle of it, as when the user has pressed Ctrl-C there."""
        return not self.is_ended and not self.is_cut and self.is_current

    @property
    def passed_end(self) -> int:
        """Everything below was passed; the message at it may be in hand.  Never too high, in any thread."""
        return self.start if self.run is None else max(self.start, self.run.last_taken)

    @property
    def handed_out_end(self) -> int:
        """All that was handed out is below, as is a message that is being taken.  Never too low, in any thread."""
        if self.run is None or not self.run.taken_count or self._ends_before_last:
            return self.passed_end
        return self.run.last_taken + 1

    @property
    def returned_end(self) -> int:
        """Everything that was handed out is below; no message that is being taken.  Never too high, in any thread."""
        # Read before the state of the generator: a message that is being taken may be handed out between the two.
        end = self.handed_out_end
        messages = None if self._messages is None else self._messages()
        is_returned = self.is_ended or (messages is not None and getgeneratorstate(messages) == GEN_SUSPENDED)
        return end if is_returned else self.passed_end

    @property
    def _ends_before_last(self) -> bool:
        """Whether the message that was taken last was not handed out, and will not be."""
        messages = None if self._messages is None else self._messages()
        if self.is_cut or messages is None:
            return self.is_cut
        return getgeneratorstate(messages) == GEN_CLOSED and not self.is_ended


class Reading:
    """Begins with a `Start` and ends with its `Lost` or `Released`.

    A `token` names what is read since the last `seek`: what was fetched or found out for another counts no more.
    """

    __slots__ = (
        "_aside",
        "_done",
        "_has_given",
        "_held",
        "_pending",
        "_position",
        "_taken",
        "awaits_user",
        "claim",
        "committed",
        "hand_out",
        "high_watermark",
        "is_answered",
        "is_notified",
        "is_paused",
        "is_stopped",
        "partition",
        "question",
        "release_by_ms",
        "requested",
        "token",
    )

    def __init__(self, partition: TopicPartition, claim: ClaimId, offset: int, token: int) -> None:
        self.partition = partition
        self.claim = claim
        self.token = token
        # What ListOffsets has to answer before anything can be read: `seek_target.question_of`.
        self.question: int | None = None
        # What the group is known to have, and what it was last asked to have.
        self.committed = offset
        self.requested = offset
        self.hand_out: HandOut | None = None
        # Of the last fetch that brought records.
        self.high_watermark: int | None = None
        # Revoked: nothing more is handed out.  Answered: `on_stopped` was said.
        self.is_stopped = False
        self.is_answered = False
        # When a stopped reading waits no longer for the message in hand.
        self.release_by_ms: int | None = None
        # Stopped, and the user's code must run before the partition is given back; `is_notified`: it runs.
        self.awaits_user = False
        self.is_notified = False
        # Nothing is fetched or handed out until it is resumed.
        self.is_paused = False
        # While nothing is handed out: everything below was passed.
        self._position = offset
        # What transactions were given last: everything that was handed out below is theirs.
        self._taken = offset
        self._has_given = False
        # Said by the user to be done, though nothing after it was asked for.
        self._done = NO_OFFSET
        # What was being handed out when it was paused: it may still end before the message that was taken last.
        self._aside: HandOut | None = None
        # What was passed when a batch of messages was requested: none of the batch counts before the next request.
        self._held: int | None = None
        # Commits without an outcome, in their order.
        self._pending: deque[_Pending] = deque()

    @property
    def passed_end(self) -> int:
        """What may be committed, exclusive; NO_OFFSET while the first position is not known."""
        return self.read_end if self._held is None else max(self._held, self._done)

    @property
    def read_end(self) -> int:
        """Where reading continues: everything below was passed, or is held."""
        position = self._position if self.hand_out is None else self.hand_out.passed_end
        return max(position, self._done)

    @property
    def position(self) -> int:
        """The offset after the message that was handed out last; NO_OFFSET while the first position is not known."""
        return self._position if self.hand_out is None else self.hand_out.handed_out_end

    @property
    def known_position(self) -> int | None:
        """`position`; None while it is still to be found out."""
        return None if self.question is not None or self.position == NO_OFFSET else self.position

    def on_fetched(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark

    @property
    def has_in_hand(self) -> bool:
        """Whether a message may be in hand that was not passed."""
        hand_out = self.hand_out
        return (hand_out is not None and not hand_out.run) or self.position > self.passed_end

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def hold(self) -> None:
        """Messages that are handed out from now on count as passed after `pass_held`."""
        if self._held is None:
            self._held = self.passed_end

    def pass_held(self) -> None:
        """What was held is passed, but for a message that is still in hand."""
        self._held = None

    def pass_in_hand(self) -> None:
        """The message in hand is passed; those after it are held."""
        self._held = self.position

    def pause(self, token: int) -> None:
        """Nothing is fetched or handed out; what was fetched ahead is forgotten.  The message in hand stays there."""
        self.is_paused = True
        end = self.position
        if end > self.passed_end:
            self.hold()
        self._aside = self.hand_out
        self._leave_hand_out()
        self.token = token
        self._position = end

    def on_cut(self, hand_out: HandOut, token: int) -> bool:
        """Whether it is read again from the message that was taken last, and not handed out because of a pause."""
        if self._aside is not hand_out:
            return False
        self._aside = None
        if hand_out.run is None or hand_out.run.last_taken >= self._position:
            return False  # it was taken after the pause, and not counted as handed out
        self.token = token
        self._position = hand_out.run.last_taken
        return True

    def resume(self) -> None:
        self.is_paused = False

    def move_to(self, offset: int, token: int) -> None:
        """Read on from `offset`, wherever it was before."""
        self._leave_hand_out()
        self.token = token
        self.question = None
        self._position = self._taken = offset
        self._done = NO_OFFSET
        self._held = None
        self._aside = None

    def move_to_answer(self, question: int, token: int) -> None:
        """Read on from what this question is answered; until then what may be committed stays."""
        position = self.passed_end
        self.move_to(position, token)
        self.question = question

    def begin_hand_out(self, hand_out: HandOut) -> None:
        self.hand_out = hand_out
        self._aside = None

    def settle(self) -> None:
        """What was being handed out has come to its end, or was cut."""
        hand_out, self.hand_out = self.hand_out, None
        if hand_out is not None and hand_out.token == self.token:
            self._position = hand_out.next_offset if hand_out.is_ended else hand_out.passed_end

    def settle_at(self, offset: int) -> None:
        """What was being handed out ends before `offset`."""
        self._leave_hand_out()
        self._position = offset

    def stop_hand_out(self) -> None:
        """The message in hand is the last of its batch."""
        if self.hand_out is not None:
            self.hand_out.stop()

    def revoke(self, release_by_ms: int, *, awaits_user: bool) -> None:
        """Nothing more is handed out, at once; from `release_by_ms` on the release waits neither for the message in
        hand nor for the user's code."""
        self._stop()
        self.release_by_ms = release_by_ms
        self.awaits_user = awaits_user

    def on_user_notified(self) -> None:
        """The user's code runs: a commit of it is the last one."""
        self.is_notified = self.awaits_user

    def on_user_done(self) -> None:
        """The user's code has run, or has committed what it had to."""
        self.awaits_user = False

    @property
    def may_be_released(self) -> bool:
        """Whether neither a message in hand nor the user's code that must still run keeps it."""
        return not self.has_in_hand and (not self.awaits_user or self.is_notified)

    def _stop(self) -> None:
        self.is_stopped = True
        self.stop_hand_out()

    def answer(self, *, has_auto_commit: bool) -> int:
        """Nothing more is handed out or passed: the offset to commit with the release; NO_OFFSET: transactions do."""
        self.is_answered = True
        if self._has_given:
            return NO_OFFSET
        return self.passed_end if has_auto_commit else self.requested

    def mark_done(self, offset: int) -> bool:
        """The message at `offset` and all before it are done; False when it was not handed out by this reading."""
        if offset >= self.position:
            return False
        self._done = max(self._done, offset + 1)
        return True

    def mark_all_done(self) -> None:
        """Everything that was handed out is done; a message that another thread is taking was not."""
        if self.hand_out is not None:
            end = self.hand_out.returned_end
        elif self._aside is not None:
            end = min(self._position, self._aside.returned_end)
        else:
            end = self._position
        self._done = max(self._done, end)

    def take_offset(self) -> int | None:
        """What was passed, for a transaction; None when that is nothing new."""
        offset = self.passed_end
        if offset == self._taken:
            return None
        self._taken = offset
        self._has_given = True
        return offset

    def take_untaken(self) -> bool:
        """Whether messages were handed out that no transaction was given; they count as given from now on."""
        end = self.position
        has_untaken = end > self._taken
        self._taken = max(end, self._taken)
        return has_untaken

    def _leave_hand_out(self) -> None:
        self.stop_hand_out()
        self.hand_out = None

    def request(self, waiting: CommitOutcome | None = None, named: int | None = None) -> int | None:
        """The offset that a commit has to request now: what was passed, or the `named` one; None for nothing new.

        `waiting` gets the outcome, also that of a commit which is on its way already.
        """
        offset = self.passed_end if named is None else named
        if offset == NO_OFFSET or (offset == self.committed and not self._pending):
            return None
        is_on_its_way = bool(self._pending) and self._pending[-1].offset == offset
        if is_on_its_way and waiting is None:
            return None
        self.requested = offset
        if waiting is not None:
            waiting.expect()
        self._pending.append(_Pending(offset, waiting))
        return None if is_on_its_way else offset

    def request_with_release(self, named: int | None = None) -> None:
        """What is passed now, or the `named` offset, is committed with the release, also without automatic commits."""
        if self.is_answered:
            return
        if named is not None:
            self._position = named
            self._done = NO_OFFSET
            self._held = None
            self.hand_out = None
        self.requested = self.passed_end

    def await_release(self, waiting: CommitOutcome) -> None:
        """It is being given back: `waiting` learns whether what was passed was committed with that."""
        offset = self.passed_end
        if offset != NO_OFFSET and (offset != self.committed or self._pending):
            waiting.expect()
            self._pending.append(_Pending(offset, waiting))

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def on_committed(self, offset: int) -> None:
        self.committed = offset
        for pending in self._answered(offset):
            pending.settle(None)

    def on_refused(self, offset: int, error: Exception) -> None:
        for pending in self._answered(offset):
            pending.settle(error)
        if not self._pending:
            self.requested = self.committed

    def end(self, released: int, error: Exception) -> None:
        """The claim is over; the group has `released`, NO_OFFSET when that is not known."""
        self._stop()
        self.is_answered = True
        while self._pending:
            pending = self._pending.popleft()
            pending.settle(None if pending.offset <= released else error)

    def _answered(self, offset: int) -> list[_Pending]:
        """The commits that an answer about `offset` answers: later ones include those before them."""
        last = max((at for at, pending in enumerate(self._pending) if pending.offset == offset), default=-1)
        return [self._pending.popleft() for _ in range(last + 1)]


class CommitOutcome:
    """Of the commits of several partitions that a caller waits for.

    `deferred` are those that are committed with their release, for which the caller cannot wait.
    """

    __slots__ = ("_left_count", "deferred", "error")

    def __init__(self) -> None:
        self._left_count = 0
        self.error: Exception | None = None
        self.deferred: frozenset[TopicPartition] = frozenset()

    def defer(self, partition: TopicPartition) -> None:
        self.deferred |= {partition}

    def include(self, partition: TopicPartition) -> None:
        """The caller waits for its release after all."""
        self.deferred -= {partition}

    @property
    def is_known(self) -> bool:
        return self._left_count == 0

    def expect(self) -> None:
        self._left_count += 1

    def settle(self, error: Exception | None) -> None:
        self._left_count -= 1
        self.error = self.error or error


class _Pending(NamedTuple):
    offset: int
    waiting: CommitOutcome | None

    def settle(self, error: Exception | None) -> None:
        if self.waiting is not None:
            self.waiting.settle(error)

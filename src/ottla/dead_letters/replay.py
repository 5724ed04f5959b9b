"""Puts dead letters back into their topics, each once, even if any process is killed (see `claims`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.fetching.messages import messages_between
from ottla.client.fetching.offsets import log_ranges
from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.producing.errors import TransactionAbortable
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.producing.produce_machine import NO_IDENTITY, ProducerIdentity
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, UnknownTopic
from ottla.client.wire.metadata import TopicInfo
from ottla.dead_letters.claim_delivery import DELIVERY_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, delivered
from ottla.dead_letters.claims import ClaimedBatch, ClaimedLetter, ReplayClaim, State
from ottla.dead_letters.claims_log import CLAIMS_PARTITION, ClaimsLog
from ottla.dead_letters.letter import REPLAYED_FROM, DeadLetter, replay_key
from ottla.dead_letters.topics import StoredLetter, letter_or_none, letters_of
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.records.builder import BatchBuilder, record_size_bytes_max

# A claim has so many letters at most, so many bytes, and so many in the batch of one partition; or one letter.
CLAIM_LETTERS_MAX: Final = 500
CLAIM_BYTES_MAX: Final = 8 * MIB
BATCH_BYTES_MAX: Final = 512 * KIB
TRANSACTIONAL_ID_PREFIX: Final = "ottla-dead-letter-replay-"
_BATCH_HEADER_BYTES: Final = 61
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# Refusals that may be about one letter of the batch.
_OF_A_LETTER: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)
# Refusals of a transaction that are about letters or their topics; after any other the next replay continues.
_OF_A_BATCH: Final = _OF_A_LETTER | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

Place: TypeAlias = tuple[int, int]
Step: TypeAlias = Callable[[str], None]


@dataclass(slots=True)
class Replayed:
    """The outcome of a replay for the letters of a topic; every letter is counted once.

    put_back        now, or in a dry run what would be
    were_back       before: by an earlier replay, or this is another letter of a record that was put back
    left_out        not selected
    not_letters     records without an origin
    refused         letters that cannot be put back, by the reason
    """

    put_back: int = 0
    were_back: int = 0
    left_out: int = 0
    not_letters: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    @property
    def refused_count(self) -> int:
        return sum(self.refused.values())

    def refuse(self, reason: str, count: int) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + count


class _Returning(NamedTuple):
    """A letter on its way back."""

    place: Place
    letter: DeadLetter
    target: TopicPartition
    key: bytes


class _Pile:
    """The letters of the next claim.  `batch_bytes_max`: what a batch for a topic may have."""

    def __init__(self, batch_bytes_max: Callable[[str], int]) -> None:
        self._batch_bytes_max = batch_bytes_max
        self.letters: list[_Returning] = []
        self._sizes_bytes: dict[TopicPartition, int] = {}

    def add(self, letter: _Returning) -> bool:
        """False when it does not fit any more."""
        found = letter.letter
        size_bytes = record_size_bytes_max(found.key, found.value, found.replayed_headers)
        batch_bytes = self._sizes_bytes.get(letter.target, 0)
        if self.letters and (
            len(self.letters) >= CLAIM_LETTERS_MAX
            or sum(self._sizes_bytes.values()) + size_bytes > CLAIM_BYTES_MAX
            or (batch_bytes and batch_bytes + size_bytes > self._batch_bytes_max(letter.target.topic))
        ):
            return False
        self.letters.append(letter)
        self._sizes_bytes[letter.target] = batch_bytes + size_bytes
        return True


class _Withdrawn(Exception):
    """Another replay completed the claim, and its letters were refused: they are free."""


class Replay:
    """One run over a dead-letter topic.

        with Cluster("localhost:9092") as cluster:
            outcome = Replay(cluster, "orders.dead-letter").run()

    A letter goes to the topic and partition that it comes from, with its key, value, headers and time, and a header
    that names its origin; `to` is another topic for all (by partition number where it has it, else by key).  Letters
    of a topic that was deleted and recreated, or of another cluster, are refused unless `to` is given.
    `selects` says of each letter whether it is wanted.  `step` is called at each step by its name; `outcome` is how far
    it is.

    `is_transactional`: the letters of a claim, and the claim's end, are one transaction; `note` is called where the
    brokers have none.  Then readers of committed records get each letter once, after any kill and however much later it
    is completed, and a claim's letters at once; other readers see those of a killed attempt, too.
    """

    def __init__(
        self,
        cluster: Cluster,
        dead_letter_topic: str,
        *,
        to: str | None = None,
        selects: Callable[[StoredLetter], bool] | None = None,
        step: Step | None = None,
        is_transactional: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._cluster = cluster
        self._topic = dead_letter_topic
        self._to = to
        self._selects = selects or (lambda _: True)
        self._step: Step = step or (lambda _: None)
        self._is_transactional = is_transactional
        self._note = note
        # The caller wants them, and the brokers have them.
        self._has_transactions = False
        self._log = ClaimsLog(cluster)
        self.outcome: Final = Replayed()
        # The letters that an earlier replay started to put back: they are counted.
        self._completed: set[Place] = set()
        self._limits_bytes: dict[str, int] = {}

    def run(self, *, is_dry: bool = False) -> Replayed:
        """Put the letters back that are in the topic now; a dry run only counts them.

        First it completes an interrupted replay of this topic.  Raises the client's errors; the next run then
        continues.
        """
        source = self._cluster.topic(self._topic)
        if not is_dry:
            self._log.ensure(source)
        self._log.read()
        if not is_dry:
            if self._is_transactional:
                self._has_transactions = self._brokers_have_transactions()
            for void in self._log.claims.void:
                self._log.append(void.withdrawn())
            for claim in self._log.claims.begun:
                if claim.dead_letter_topic == self._topic:
                    self._complete(claim)
        seen: set[bytes] = set()
        pile = _Pile(self._batch_bytes_max)
        for stored in letters_of(self._cluster, self._topic):
            found = self._wanted(stored, seen)
            if found is None:
                continue
            seen.add(found.key)
            if is_dry:
                self.outcome.put_back += 1
                continue
            if not pile.add(found):
                self._put_back(pile.letters)
                pile = _Pile(self._batch_bytes_max)
                pile.add(found)
        self._put_back(pile.letters)
        return self.outcome

    def _wanted(self, stored: StoredLetter, seen: set[bytes]) -> _Returning | None:
        letter = stored.letter
        place = (stored.message.partition, stored.message.offset)
        if place in self._completed:
            return None
        if letter is None:
            self.outcome.not_letters += 1
            return None
        if not self._selects(stored):
            self.outcome.left_out += 1
            return None
        topic = self._to or letter.origin.topic
        key = replay_key(topic, letter.origin.identity)
        if key in seen or key in self._log.claims.taken:
            self.outcome.were_back += 1
            return None
        target = self._target(topic, letter)
        if isinstance(target, str):
            self.outcome.refuse(target, 1)
            return None
        return _Returning(place, letter, target, key)

    def _target(self, topic: str, letter: DeadLetter) -> TopicPartition | str:
        """Where the letter goes, or why it cannot."""
        try:
            found: TopicInfo = self._cluster.topic(topic)
        except UnknownTopic:
            return f"the topic {topic} does not exist: name another with --to"
        if self._to is None:
            origin = letter.origin
            if origin.cluster_id and origin.cluster_id != (self._cluster.info.cluster_id or origin.cluster_id):
                return f"it comes from the topic {topic} of another cluster: name a topic with --to"
            if ZERO_UUID not in (origin.topic_id, found.topic_id) and origin.topic_id != found.topic_id:
                return f"the topic {topic} was deleted and recreated since: name it, or another, with --to"
        number = letter.origin.partition
        count = len(found.partitions)
        if number >= count:
            number = number % count if letter.key is None else partition_of_key(letter.key, count)
        return TopicPartition(topic, number)

    def _batch_bytes_max(self, topic: str) -> int:
        """The leaders refuse a larger batch, though they would take its letters one by one."""
        if topic not in self._limits_bytes:
            self._limits_bytes[topic] = BATCH_BYTES_MAX
            try:
                found = Admin(self._cluster).describe_configs(
                    ConfigResource(ResourceType.TOPIC, topic), [_MAX_MESSAGE_BYTES]
                )
            except BrokerRefused:
                # Without the right to ask: what is too large is halved.
                found = {}
            entry = found.get(_MAX_MESSAGE_BYTES)
            if entry is not None and entry.value:
                self._limits_bytes[topic] = min(BATCH_BYTES_MAX, int(entry.value) - _BATCH_HEADER_BYTES)
        return self._limits_bytes[topic]

    def _put_back(self, pile: Sequence[_Returning]) -> None:
        piles = [pile]
        while piles:
            # The first half first, so that letters keep their order.
            piles += reversed(self._put_back_once(piles.pop()))

    def _put_back_once(self, pile: Sequence[_Returning]) -> list[list[_Returning]]:
        """The letters to try again, in halves: perhaps one letter is the reason why their batch was refused."""
        halves: tuple[list[_Returning], list[_Returning]] = ([], [])
        while pile:
            self._step("claiming")
            claim = self._claim(pile)
            self._log.append(claim)
            self._step("claimed")
            if self._log.claims.counts(claim.claim_id):
                letters = {each.place: each.letter for each in pile}
                if claim.transactional_id:
                    try:
                        refusal = self._deliver(claim, claim.batches, letters)
                    except _Withdrawn:
                        pile = self._free_of(pile)
                        continue
                    if refusal is None:
                        self.outcome.put_back += len(pile)
                        break
                    return self._divided(pile, refusal)
                acknowledged, refusals = self._send(claim, claim.batches, letters)
                self.outcome.put_back += sum(len(batch.letters) for batch in acknowledged)
                returning = {each.place: each for each in pile}
                for batch, error in refusals:
                    if len(batch.letters) == 1 or not _may_be_of_a_letter(error):
                        self.outcome.refuse(str(error), len(batch.letters))
                        continue
                    middle = len(batch.letters) // 2
                    halves[0].extend(returning[each.partition, each.offset] for each in batch.letters[:middle])
                    halves[1].extend(returning[each.partition, each.offset] for each in batch.letters[middle:])
                break
            # Another replay was faster with some of them.
            self._log.append(claim.withdrawn())
            pile = self._free_of(pile)
        return [half for half in halves if half]

    def _free_of(self, pile: Sequence[_Returning]) -> list[_Returning]:
        free = [each for each in pile if each.key not in self._log.claims.taken]
        self.outcome.were_back += len(pile) - len(free)
        return free

    def _divided(self, pile: Sequence[_Returning], refusal: OttlaError) -> list[list[_Returning]]:
        """A refusal ends the whole transaction: by topic and partition first, then in halves."""
        by_target: dict[TopicPartition, list[_Returning]] = {}
        for each in pile:
            by_target.setdefault(each.target, []).append(each)
        if len(by_target) > 1:
            return list(by_target.values())
        if len(pile) == 1 or not _may_be_of_a_letter(refusal):
            self.outcome.refuse(str(refusal), len(pile))
            return []
        middle = len(pile) // 2
        return [list(pile[:middle]), list(pile[middle:])]

    def _brokers_have_transactions(self) -> bool:
        connection = self._cluster.connect_any(self._cluster.retrying.deadline())
        if connection.supports(ApiKey.ADD_PARTITIONS_TO_TXN) and connection.supports(ApiKey.END_TXN):
            return True
        self._note("the brokers have no transactions: each letter is put back in the name of an idempotent producer")
        return False

    def _claim(self, pile: Sequence[_Returning]) -> ReplayClaim:
        claim_id, identity, transactional_id = str(uuid.uuid4()), NO_IDENTITY, ""
        if self._has_transactions:
            # Of this claim alone: another replay that completes it must not fence this one in its next claim.
            transactional_id = f"{TRANSACTIONAL_ID_PREFIX}{claim_id}"
        else:
            with RawProducer(self._cluster) as producer:
                identity = producer.identify()
        by_target: dict[TopicPartition, list[ClaimedLetter]] = {}
        for each in pile:
            by_target.setdefault(each.target, []).append(ClaimedLetter(*each.place, each.key))
        ends = {place: log.stop for place, log in log_ranges(self._cluster, by_target).items()}
        return ReplayClaim(
            claim_id,
            self._topic,
            State.BEGUN,
            self._cluster.clock.now_ms(),
            identity.producer_id,
            identity.producer_epoch,
            tuple(
                ClaimedBatch(place.topic, place.partition, ends[place], tuple(letters))
                for place, letters in by_target.items()
            ),
            transactional_id,
        )

    def _complete(self, claim: ReplayClaim) -> None:
        """Of a replay that was killed, or still runs: the same batches in the same name are stored once.

        Leaders may have forgotten that name after a day, so first it is looked for what is stored.  A transaction shows
        it by the claim's own last record.
        """
        stored = [] if claim.transactional_id else [batch for batch in claim.batches if self._is_stored(batch)]
        missing = [batch for batch in claim.batches if batch not in stored]
        letters = self._letters_at([letter for batch in missing for letter in batch.letters])
        # A batch whose letters were deleted cannot be sent any more.
        sendable = [
            batch for batch in missing if all((each.partition, each.offset) in letters for each in batch.letters)
        ]
        if claim.transactional_id:
            acknowledged = self._delivered(claim, sendable, letters)
        else:
            acknowledged, _ = self._send(claim, sendable, letters, stored)
        for batch in acknowledged:
            self.outcome.put_back += len(batch.letters)
            self._completed.update((each.partition, each.offset) for each in batch.letters)

    def _delivered(
        self, claim: ReplayClaim, batches: Sequence[ClaimedBatch], letters: Mapping[Place, DeadLetter]
    ) -> Sequence[ClaimedBatch]:
        try:
            return batches if self._deliver(claim, batches, letters) is None else ()
        except _Withdrawn:
            return ()

    def _deliver(
        self, claim: ReplayClaim, batches: Sequence[ClaimedBatch], letters: Mapping[Place, DeadLetter]
    ) -> OttlaError | None:
        """These batches and the end of their claim in one transaction, unless another replay did it; or why they were
        refused: then nothing of them is committed, and the claim is withdrawn.
        """
        return delivered(
            lambda: self._attempt(claim, batches, letters), lambda: self._is_completed(claim), self._cluster.retrying
        )

    def _is_completed(self, claim: ReplayClaim) -> bool:
        """Whether another replay has put its letters back, as of now.  Raises _Withdrawn when that withdrew it."""
        self._log.read()
        if self._log.claims.counts(claim.claim_id):
            return False
        if not self._log.claims.is_done(claim):
            raise _Withdrawn
        return True

    def _attempt(
        self, claim: ReplayClaim, batches: Sequence[ClaimedBatch], letters: Mapping[Place, DeadLetter]
    ) -> OttlaError | None:
        options = ProducerOptions(allow_auto_topic_creation=False, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        with BatchTransactions(self._cluster, claim.transactional_id, TRANSACTION_TIMEOUT_MS, options) as transactions:
            transactions.take_over()
            # Not earlier: a former owner of the id could end the claim after it was read.
            if self._is_completed(claim):
                return None
            try:
                transactions.begin()
                for batch in batches:
                    target = TopicPartition(batch.topic, batch.partition)
                    transactions.send(target, self._built(batch, letters, is_transactional=True))
                self._step("sending")
                self._end_claim(transactions, claim.done(batches))
            except TransactionAbortable as error:
                # Another replay may have the id: then this raises ProducerFenced.
                transactions.abort()
                if not isinstance(error.reason, BrokerRefused) or error.reason.code not in _OF_A_BATCH:
                    raise error.reason from error
                refusal = error.reason
            else:
                return None
            transactions.begin()
            self._end_claim(transactions, claim.withdrawn())
            return refusal

    def _end_claim(self, transactions: BatchTransactions, ended: ReplayClaim) -> None:
        transactions.send(CLAIMS_PARTITION, self._log.batch(ended))
        transactions.flush()
        self._step("sent")
        transactions.commit()
        self._log.read()
        self._step("done")

    def _send(
        self,
        claim: ReplayClaim,
        batches: Sequence[ClaimedBatch],
        letters: Mapping[Place, DeadLetter],
        stored: Sequence[ClaimedBatch] = (),
    ) -> tuple[list[ClaimedBatch], list[tuple[ClaimedBatch, OttlaError]]]:
        """Send these batches of a claim that counts, and say that it is done: what is stored, and what was refused."""
        identity = ProducerIdentity(claim.producer_id, claim.producer_epoch)
        options = ProducerOptions(allow_auto_topic_creation=False)
        acknowledged = list(stored)
        refusals: list[tuple[ClaimedBatch, OttlaError]] = []
        with RawProducer(self._cluster, options, identity=identity) as producer:
            for batch in batches:
                producer.send(TopicPartition(batch.topic, batch.partition), self._built(batch, letters), batch)
            self._step("sending")
            for result in producer.flush():
                assert isinstance(result.tag, ClaimedBatch)
                if result.status is DeliveryStatus.ACKNOWLEDGED:
                    acknowledged.append(result.tag)
                elif result.status is DeliveryStatus.REFUSED:
                    assert result.error is not None, "a refusal has an error"
                    refusals.append((result.tag, result.error))
                else:
                    assert result.error is not None, "a batch without an answer has an error"
                    raise result.error
        self._step("sent")
        self._log.append(claim.done(acknowledged))
        self._step("done")
        return acknowledged, refusals

    def _built(
        self, batch: ClaimedBatch, letters: Mapping[Place, DeadLetter], *, is_transactional: bool = False
    ) -> bytearray:
        builder = BatchBuilder()
        for each in batch.letters:
            letter = letters[each.partition, each.offset]
            stamp_ms = letter.origin.timestamp_ms
            # A record without a time gets that of now, as from any producer.
            stamp_ms = stamp_ms if stamp_ms >= 0 else self._cluster.clock.now_ms()
            builder.append(stamp_ms, letter.key, letter.value, letter.replayed_headers)
        return builder.build(is_transactional=is_transactional)

    def _is_stored(self, batch: ClaimedBatch) -> bool:
        """A batch is stored whole or not at all, so one of its letters is enough."""
        place = TopicPartition(batch.topic, batch.partition)
        keys = {letter.key for letter in batch.letters}
        try:
            log = log_ranges(self._cluster, [place])[place]
        except UnknownTopic:
            return False
        first = max(batch.end_offset, log.start)
        for message in messages_between(self._cluster, {place: first}, {place: log.stop}):
            identity = message.header(REPLAYED_FROM)
            if identity is not None and replay_key(batch.topic, identity.decode("utf-8", "replace")) in keys:
                return True
        return False

    def _letters_at(self, places: Sequence[ClaimedLetter]) -> dict[Place, DeadLetter]:
        """Those of these letters that are still there."""
        wanted: dict[TopicPartition, set[int]] = {}
        for each in places:
            wanted.setdefault(TopicPartition(self._topic, each.partition), set()).add(each.offset)
        logs = log_ranges(self._cluster, wanted) if wanted else {}
        first = {place: max(min(offsets), logs[place].start) for place, offsets in wanted.items()}
        ends = {place: min(max(offsets) + 1, logs[place].stop) for place, offsets in wanted.items()}
        found: dict[Place, DeadLetter] = {}
        for message in messages_between(self._cluster, first, ends):
            letter = letter_or_none(message)
            if letter is not None and message.offset in wanted[TopicPartition(self._topic, message.partition)]:
                found[message.partition, message.offset] = letter
        return found


def _may_be_of_a_letter(error: OttlaError) -> bool:
    return isinstance(error, BrokerRefused) and error.code in _OF_A_LETTER

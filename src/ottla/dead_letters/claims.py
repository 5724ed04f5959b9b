"""Which replay puts back which dead letters: a log of claims, of which the first wins.  Pure.

A replay claims letters before it sends any: it writes the claim to the topic of claims, and reads that topic up to its
own claim.  The claim counts when none of its letters is in an earlier one that counts; else the replay withdraws it.
It names the identity of the idempotent producer that sends them, one batch for each partition.  So who finds a claim
that is not done, its replay was killed or still runs, sends the same batches in the same name, and leaders store them
once.

A claim with a transactional id does not depend on the leaders' memory: its letters and its last record are one
transaction of this id.  A replay that finds it not done takes the id over, which decides a transaction that was open,
and reads the log again.  Only transactions of its id end such a claim: of two replays that complete it one is fenced.

A claim's last record says which of its letters were put back.  Those stay its own for ever; letters whose batch was
refused become free.  Compaction removes what a claim's later record replaces; so that this changes no answer, a replay
withdraws the claims that do not count before it claims anything itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.own_names import REPLAY_CLAIMS_TOPIC

_FORM: Final = 1
_TRANSACTIONAL_FORM: Final = 2


class UnreadableClaim(OttlaError):
    """A record of the topic of claims does not have this form: without it the letters that were put back are
    unknown."""

    hint = (
        f"nothing but `ottla dead-letter replay` may write to {REPLAY_CLAIMS_TOPIC}; a later version of ottla may have"
    )


class State(Enum):
    """BEGUN: perhaps sent.  DONE: its letters were sent, except for refused batches.  WITHDRAWN: nothing was sent."""

    BEGUN = "begun"
    DONE = "done"
    WITHDRAWN = "withdrawn"


class ClaimedLetter(NamedTuple):
    """`partition` and `offset` in the dead-letter topic; `key` of 16 bytes, see `letter.replay_key`."""

    partition: int
    offset: int
    key: bytes


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """The batch of one partition of the target.  `end_offset`: the partition's log ended there, before the claim."""

    topic: str
    partition: int
    end_offset: int
    letters: tuple[ClaimedLetter, ...]


@dataclass(frozen=True, slots=True)
class ReplayClaim:
    claim_id: str
    dead_letter_topic: str
    state: State
    claimed_ms: int
    producer_id: int
    producer_epoch: int
    batches: tuple[ClaimedBatch, ...]
    # Empty: the batches are sent in the name of the producer, outside of transactions.
    transactional_id: str = ""

    @property
    def keys(self) -> frozenset[bytes]:
        return frozenset(letter.key for batch in self.batches for letter in batch.letters)

    def done(self, stored: Iterable[ClaimedBatch]) -> ReplayClaim:
        return replace(self, state=State.DONE, batches=tuple(stored))

    def withdrawn(self) -> ReplayClaim:
        return replace(self, state=State.WITHDRAWN, batches=())


class Claims:
    """All claims so far.  `apply` takes the records of the topic of claims in their order."""

    def __init__(self) -> None:
        self._owners: dict[bytes, str] = {}
        # Those that count and are not done, in their order; and those that do not count.
        self._begun: dict[str, ReplayClaim] = {}
        self._void: dict[str, ReplayClaim] = {}

    @property
    def begun(self) -> list[ReplayClaim]:
        return list(self._begun.values())

    @property
    def void(self) -> list[ReplayClaim]:
        """Claims that do not count and are not withdrawn: their letters are not sent."""
        return list(self._void.values())

    @property
    def taken(self) -> Set[bytes]:
        """The keys of letters that were put back, or are about to be."""
        return self._owners.keys()

    def counts(self, claim_id: str) -> bool:
        """Whether a claim that is not done may be sent."""
        return claim_id in self._begun

    def is_done(self, claim: ReplayClaim) -> bool:
        """Whether some of its letters were put back; a claim that was withdrawn has none."""
        return claim.claim_id not in self._begun and any(self._owners.get(key) == claim.claim_id for key in claim.keys)

    def apply(self, claim: ReplayClaim) -> None:
        if claim.state is State.BEGUN:
            if claim.claim_id in self._begun:
                return  # a retried write
            if self._owners.keys().isdisjoint(claim.keys):
                self._begun[claim.claim_id] = claim
                self._owners.update(dict.fromkeys(claim.keys, claim.claim_id))
            else:
                self._void[claim.claim_id] = claim
            return
        self._void.pop(claim.claim_id, None)
        self._forget_begun(claim.claim_id)
        # One that came after this claim, which compaction has hidden: it was never sent.
        for key in claim.keys:
            other = self._begun.get(self._owners.get(key, ""))
            if other is not None:
                self._forget_begun(other.claim_id)
                self._void[other.claim_id] = other
        self._owners.update(dict.fromkeys(claim.keys, claim.claim_id))

    def _forget_begun(self, claim_id: str) -> None:
        begun = self._begun.pop(claim_id, None)
        if begun is not None:
            for key in begun.keys:
                del self._owners[key]


def to_json(claim: ReplayClaim) -> bytes:
    found: dict[str, object] = {
        # Versions that know no transactional claims must not complete one.
        "form": _TRANSACTIONAL_FORM if claim.transactional_id else _FORM,
        "claim": claim.claim_id,
        "dead_letter_topic": claim.dead_letter_topic,
        "state": claim.state.value,
        "claimed_ms": claim.claimed_ms,
        "producer_id": claim.producer_id,
        "producer_epoch": claim.producer_epoch,
        "batches": [
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "end_offset": batch.end_offset,
                "letters": [[each.partition, each.offset, each.key.hex()] for each in batch.letters],
            }
            for batch in claim.batches
        ],
    }
    if claim.transactional_id:
        found["transactional_id"] = claim.transactional_id
    return json.dumps(found, separators=(",", ":")).encode()


def from_json(data: bytes | None) -> ReplayClaim:
    """Raises `UnreadableClaim`."""
    try:
        found: Mapping[str, Any] = json.loads(data or b"null")
        if found["form"] not in (_FORM, _TRANSACTIONAL_FORM):
            raise ValueError(f"its form is {found['form']}, and not {_FORM} or {_TRANSACTIONAL_FORM}")
        return ReplayClaim(
            str(found["claim"]),
            str(found["dead_letter_topic"]),
            State(found["state"]),
            int(found["claimed_ms"]),
            int(found["producer_id"]),
            int(found["producer_epoch"]),
            tuple(
                ClaimedBatch(
                    str(batch["topic"]),
                    int(batch["partition"]),
                    int(batch["end_offset"]),
                    tuple(
                        ClaimedLetter(int(partition), int(offset), bytes.fromhex(key))
                        for partition, offset, key in batch["letters"]
                    ),
                )
                for batch in found["batches"]
            ),
            str(found["transactional_id"]) if found["form"] == _TRANSACTIONAL_FORM else "",
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableClaim(f"a record of {REPLAY_CLAIMS_TOPIC} cannot be read: {error!r}") from None

"""Transactional ids at their coordinator: versions, identities, states, and calls that it refuses."""

from __future__ import annotations

from typing import Final

from tests.interop.probes.kafka_request import KafkaRequest
from tests.interop.probes.talk import Talk
from tests.interop.probes.transactional_calls import (
    Identity,
    add_offsets,
    add_partitions,
    begin,
    describe,
    end,
    find,
    init,
    is_settled,
    produce,
)

# The first version of each API with KIP-890's protocol.
KIP_890_END: Final = 5
KIP_890_PRODUCE: Final = 12
SHORT_TIMEOUT_MS: Final = 1_000


def _first_producer(talk: Talk) -> None:
    """Take an id that is thrown away: the first one of a broker is 0, and is no sign of a random number."""
    begin(talk, "probe-txn-first")


def _add(talk: Talk, who: Identity, topic: str, *partitions: int) -> None:
    talk.wait_until(3, add_partitions(who, {topic: partitions or (0,)}), is_settled, on="main")


def _end(talk: Talk, who: Identity, *, commits: bool, version: int = KIP_890_END) -> None:
    talk.wait_until(version, end(who, commits=commits), is_settled, on="main")


def _completed(talk: Talk, label: str, transactional_id: str) -> None:
    """Keep the description of a transaction when its markers are written."""
    talk.ask_until(label, 0, describe(transactional_id), lambda answer: "Prepare" not in repr(answer))


def _continue(who: Identity) -> KafkaRequest:
    return init(who.transactional_id, producer_id=who.producer_id, epoch=who.epoch)


def probe_txn_coordinator(talk: Talk) -> None:
    _first_producer(talk)
    for version in range(1, 7):
        talk.ask_until(f"FindCoordinator v{version}", version, find("probe-txn-find"), is_settled)
    talk.ask_until("FindCoordinator of no id", 4, find(""), is_settled)
    talk.ask("FindCoordinator of an unknown type", 3, find("probe-txn-find", 7))
    two = KafkaRequest("FindCoordinator", key_type=1, coordinator_keys=["probe-txn-a", "probe-txn-b"])
    talk.ask_until("FindCoordinator of two ids", 4, two, is_settled)


def probe_txn_init(talk: Talk) -> None:
    _first_producer(talk)
    begin(talk, "probe-txn-init")
    for version in range(6):
        talk.ask(f"InitProducerId v{version}", version, init("probe-txn-init"))
        talk.ask(f"InitProducerId v{version} of a new id", version, init(f"probe-txn-init-{version}"))
        talk.ask(f"InitProducerId v{version} of no id", version, init(None))
        talk.ask(f"InitProducerId v{version} of an empty id", version, init(""))
        talk.ask(f"InitProducerId v{version} without a time-out", version, init("probe-txn-init", timeout_ms=0))
        talk.ask(f"InitProducerId v{version} of a long time-out", version, init("probe-txn-init", timeout_ms=900_001))
    talk.ask("InitProducerId of the longest time-out", 5, init("probe-txn-longest", timeout_ms=900_000))
    talk.ask("InitProducerId without an epoch", 5, init("probe-txn-init", producer_id=5))
    talk.ask("InitProducerId without a producer id", 5, init("probe-txn-init", epoch=3))
    talk.ask("InitProducerId v6", 6, init("probe-txn-init"))


def probe_txn_identities(talk: Talk) -> None:
    """KIP-360 and KIP-588: a producer continues with its identity, and one that was replaced does not."""
    _first_producer(talk)
    for version in (3, 4, 5):
        first = begin(talk, f"probe-txn-identity-{version}", version=version)
        talk.ask(f"v{version} continues", version, _continue(first))
        talk.ask(f"v{version} continues again: the answer was lost", version, _continue(first))
        talk.ask(f"v{version} continues with the next", version, _continue(first.later()))
        talk.ask(f"v{version} with an epoch of long ago", version, _continue(first))
        talk.ask(f"v{version} with an epoch to come", version, _continue(first.later(9)))
        talk.ask(f"v{version} with another id", version, _continue(first.of_another()))
        talk.ask(f"v{version} is taken over", version, init(first.transactional_id))
        talk.ask(f"v{version} after it was taken over", version, _continue(first.later(2)))
    unknown = init("probe-txn-identity-new", producer_id=987_654, epoch=4)
    talk.ask("an identity of an id that is not known", 5, unknown)


def probe_txn_add_partitions(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-add"
    talk.create_topic(topic, 2)
    for version in range(4):
        who = begin(talk, f"probe-txn-add-{version}", version=4)
        cases = {
            "another epoch": add_partitions(who.later(), {topic: [0]}),
            "an epoch of before": add_partitions(who.later(-1), {topic: [0]}),
            "another producer id": add_partitions(who.of_another(), {topic: [0]}),
            "an unknown id": add_partitions(who._replace(transactional_id="probe-txn-no"), {topic: [0]}),
            "an empty id": add_partitions(who._replace(transactional_id=""), {topic: [0]}),
            "an unknown partition": add_partitions(who, {topic: [0, 9]}),
            "an unknown topic": add_partitions(who, {topic: [0], "probe-nowhere": [0]}),
            "an internal topic": add_partitions(who, {"__transaction_state": [0]}),
            "nothing": add_partitions(who, {}),
            "a partition": add_partitions(who, {topic: [0]}),
            "it again": add_partitions(who, {topic: [0]}),
            "both": add_partitions(who, {topic: [0, 1]}),
        }
        for label, request in cases.items():
            talk.ask_until(f"AddPartitionsToTxn v{version} of {label}", version, request, is_settled)
        talk.ask(f"what v{version} added", 0, describe(who.transactional_id))
        _end(talk, who, commits=True, version=3)


def probe_txn_verify(talk: Talk) -> None:
    """Between brokers: does a transaction contain a partition?"""
    _first_producer(talk)
    topic = "probe-txn-verify"
    talk.create_topic(topic, 2)
    who = begin(talk, "probe-txn-verify", version=4)
    _add(talk, who, topic, 0)
    for version in (4, 5):
        cases = {
            "a partition": add_partitions(who, {topic: [0]}, verify_only=True),
            "another partition": add_partitions(who, {topic: [1]}, verify_only=True),
            "both": add_partitions(who, {topic: [0, 1]}, verify_only=True),
            "another epoch": add_partitions(who.later(), {topic: [0]}, verify_only=True),
            "another producer id": add_partitions(who.of_another(), {topic: [0]}, verify_only=True),
            "an unknown id": add_partitions(
                who._replace(transactional_id="probe-txn-no"), {topic: [0]}, verify_only=True
            ),
        }
        for label, request in cases.items():
            talk.ask(f"v{version} verifies {label}", version, request)
        talk.ask(f"v{version} adds", version, add_partitions(who, {topic: [version - 4]}))
    _end(talk, who, commits=False, version=4)


def probe_txn_add_offsets(talk: Talk) -> None:
    _first_producer(talk)
    for version in range(5):
        who = begin(talk, f"probe-txn-group-{version}", version=4)
        cases = {
            "another epoch": add_offsets(who.later(), "probe-txn-group"),
            "another producer id": add_offsets(who.of_another(), "probe-txn-group"),
            "an unknown id": add_offsets(who._replace(transactional_id="probe-txn-no"), "probe-txn-group"),
            "an empty id": add_offsets(who._replace(transactional_id=""), "probe-txn-group"),
            "no group": add_offsets(who, ""),
            "a group": add_offsets(who, "probe-txn-group"),
            "it again": add_offsets(who, "probe-txn-group"),
        }
        for label, request in cases.items():
            talk.ask_until(f"AddOffsetsToTxn v{version} of {label}", version, request, is_settled)
        talk.ask(f"what v{version} added", 0, describe(who.transactional_id))
        _end(talk, who, commits=True, version=3)


def probe_txn_end(talk: Talk) -> None:
    """The end that keeps the epoch (up to v4) and the one that advances it, refused and accepted."""
    _first_producer(talk)
    topic = "probe-txn-end"
    talk.create_topic(topic, 2)
    for version in range(6):
        for outcome, commits in (("commits", True), ("aborts", False)):
            who = begin(talk, f"probe-txn-end-{version}-{outcome}", version=5 if version == KIP_890_END else 4)
            opposite = "commits" if outcome == "aborts" else "aborts"
            name = f"v{version} {outcome}"
            if version < KIP_890_END:
                talk.ask(f"{name}: nothing was added", version, end(who, commits=commits))
            _add(talk, who, topic)
            cases = {
                "another epoch": end(who.later(), commits=commits),
                "an epoch of before": end(who.later(-1), commits=commits),
                "another producer id": end(who.of_another(), commits=commits),
                "an unknown id": end(who._replace(transactional_id="probe-txn-no"), commits=commits),
                "an empty id": end(who._replace(transactional_id=""), commits=commits),
            }
            for label, request in cases.items():
                talk.ask(f"{name}: {label}", version, request)
            talk.ask(f"{name}: the transaction", version, end(who, commits=commits))
            _completed(talk, f"{name}: what became of it", who.transactional_id)
            talk.ask(f"{name}: again", version, end(who, commits=commits))
            talk.ask(f"{name}: and then {opposite}", version, end(who, commits=not commits))
            talk.ask(f"{name}: at the end", 0, describe(who.transactional_id))


def probe_txn_empty_ends(talk: Talk) -> None:
    """Ends that advance the epoch, of transactions to which nothing was added."""
    _first_producer(talk)
    topic = "probe-txn-empty"
    talk.create_topic(topic)
    for start, commits in (("after a commit", True), ("after an abort", False)):
        who = begin(talk, f"probe-txn-{start}")
        talk.ask_until(f"{start}: produce", KIP_890_PRODUCE, produce(who, topic, 0), is_settled, on="main")
        _end(talk, who, commits=commits)
        _completed(talk, f"{start}: it is complete", who.transactional_id)
        talk.ask(f"{start}: commit of nothing", KIP_890_END, end(who.later(), commits=True))
        talk.ask(f"{start}: abort of nothing", KIP_890_END, end(who.later(), commits=False))
        _completed(talk, f"{start}: the abort is complete", who.transactional_id)
        talk.ask(f"{start}: abort of nothing again", KIP_890_END, end(who.later(), commits=False))
        talk.ask(f"{start}: commit of what was aborted", KIP_890_END, end(who.later(), commits=True))
        talk.ask(f"{start}: the next abort of nothing", KIP_890_END, end(who.later(2), commits=False))
    fresh = begin(talk, "probe-txn-fresh")
    talk.ask("at the start: commit of nothing", KIP_890_END, end(fresh, commits=True))
    talk.ask("at the start: abort of nothing", KIP_890_END, end(fresh, commits=False))
    _completed(talk, "at the start: it is complete", "probe-txn-fresh")


def probe_txn_taken_over(talk: Talk) -> None:
    """Another producer starts while a transaction is open: it is aborted, and the first producer fenced."""
    _first_producer(talk)
    topic = "probe-txn-over"
    talk.create_topic(topic)
    for version in (4, 5):
        name = f"probe-txn-over-{version}"
        first = begin(talk, name, version=version)
        _add(talk, first, topic)
        sent = 11 if version < 5 else KIP_890_PRODUCE
        talk.ask_until(f"v{version} produces", sent, produce(first, topic, 0), is_settled, on="main")
        second = begin(talk, name, version=version)
        talk.keep(f"v{version}: epochs of the next", {"epoch": second.epoch - first.epoch})
        talk.ask(f"v{version}: the aborted transaction", 0, describe(name))
        for ending in (1, 3, version):
            talk.ask(f"v{version}: end v{ending} of the first", ending, end(first, commits=True))
        talk.ask(f"v{version}: add of the first", 3, add_partitions(first, {topic: [0]}))
        talk.ask(f"v{version}: produce of the first", sent, produce(first, topic, 1))


def probe_txn_timed_out(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-late"
    talk.create_topic(topic)
    late = {}
    for version in (4, 5):
        late[version] = begin(talk, f"probe-txn-late-{version}", version=version, timeout_ms=SHORT_TIMEOUT_MS)
        _add(talk, late[version], topic)
    for version, who in late.items():
        talk.ask_until(
            f"v{version}: it was aborted",
            0,
            describe(who.transactional_id),
            lambda answer: "CompleteAbort" in repr(answer),
        )
        sent = 11 if version < 5 else KIP_890_PRODUCE
        talk.ask(f"v{version}: add", 3, add_partitions(who, {topic: [0]}))
        talk.ask(f"v{version}: add v1", 1, add_partitions(who, {topic: [0]}))
        talk.ask(f"v{version}: produce", sent, produce(who, topic, 0))
        for ending in (1, 3, 4):
            talk.ask(f"v{version}: commit v{ending}", ending, end(who, commits=True))
            talk.ask(f"v{version}: abort v{ending}", ending, end(who, commits=False))
        if version == KIP_890_END:
            talk.ask("v5: commit v5", 5, end(who, commits=True))
            talk.ask("v5: abort v5", 5, end(who, commits=False))
        talk.ask(f"v{version}: it continues", version, _continue(who))
        talk.ask(f"v{version}: it continues again", version, _continue(who))


def probe_txn_described(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-described"
    talk.create_topic(topic, 2)
    states = {}
    for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
        states[state] = who = begin(talk, f"probe-txn-state-{state}")
        if state != "Empty":
            _add(talk, who, topic, 1, 0)
        if state.startswith("Complete"):
            _end(talk, who, commits=state == "CompleteCommit")
            _completed(talk, f"{state} is complete", who.transactional_id)
    names = [who.transactional_id for who in states.values()]
    talk.ask("DescribeTransactions of all", 0, describe(*names))
    talk.ask("DescribeTransactions of an unknown id", 0, describe("probe-txn-no"))
    talk.ask("DescribeTransactions of an empty id", 0, describe(""))
    talk.ask("DescribeTransactions of nothing", 0, describe())
    for version in range(3):
        for name in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
            one = KafkaRequest("ListTransactions", state_filters=[name], producer_id_filters=[states[name].producer_id])
            talk.ask(f"ListTransactions v{version} {name}", version, one)
        wrong = KafkaRequest("ListTransactions", state_filters=["Bogus"])
        talk.ask(f"ListTransactions v{version} of an unknown state", version, wrong)
    long_ones = KafkaRequest("ListTransactions", duration_filter=3_600_000)
    talk.ask("ListTransactions of those that run for an hour", 1, long_ones)
    for label, pattern in {
        "a pattern": "probe-txn-state-Comp.*Commit",
        "a pattern of a part": "state-Comp",
        "a pattern of none": "probe-txn-no.*",
        "no right pattern": "([",
        "an empty pattern": "",
    }.items():
        states_named = ["CompleteCommit"] if pattern else ["Dead"]
        request = KafkaRequest("ListTransactions", transactional_id_pattern=pattern, state_filters=states_named)
        talk.ask(f"ListTransactions by {label}", 2, request)
    _end(talk, states["Ongoing"], commits=False)

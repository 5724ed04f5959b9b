"""Records and offsets of transactions: produce, fetch, markers, pending offsets, and producers that partitions know."""

from __future__ import annotations

from typing import Any, Final

from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest
from ottla.protocol.schemas.delete_topics import DeleteTopicsRequest
from tests.interop.probes.kafka_request import KafkaRequest
from tests.interop.probes.talk import Talk
from tests.interop.probes.transactional_calls import (
    Identity,
    add_offsets,
    add_partitions,
    begin,
    commit_offsets,
    describe,
    describe_producers,
    end,
    fetch,
    fetch_offsets,
    is_settled,
    keep_fetched,
    list_offsets,
    produce,
    write_marker,
)

KIP_890_END: Final = 5
KIP_890_PRODUCE: Final = 12
KIP_890_COMMIT: Final = 5


def _first_producer(talk: Talk) -> None:
    begin(talk, "probe-txn-first")


def _add(talk: Talk, who: Identity, topic: str, *partitions: int) -> None:
    talk.wait_until(3, add_partitions(who, {topic: partitions or (0,)}), is_settled, on="main")


def _produced(talk: Talk, label: str, who: Identity, topic: str, sequence: int, count: int = 1) -> None:
    request = produce(who, topic, sequence, count)
    talk.ask_until(label, KIP_890_PRODUCE, request, is_settled, on="main")


def _ended(talk: Talk, who: Identity, *, commits: bool, version: int = KIP_890_END) -> Identity:
    """Wait for the markers, too; return the next identity."""
    answer: Any = talk.wait_until(version, end(who, commits=commits), is_settled, on="main")
    assert answer.error_code.value == 0, answer
    talk.wait_until(0, describe(who.transactional_id), lambda found: "Prepare" not in repr(found))
    return who.later() if version >= KIP_890_END else who


def probe_txn_produce(talk: Talk) -> None:
    """Up to version 11 a partition must have been added; from 12 on the batch adds it."""
    _first_producer(talk)
    topic = "probe-txn-produce"
    talk.create_topic(topic, 2)
    for version in range(3, KIP_890_PRODUCE):
        who = begin(talk, f"probe-txn-produce-{version}", version=4)
        talk.ask(f"v{version}: a partition that was not added", version, produce(who, topic, 0, partition=1))
        _add(talk, who, topic)
        talk.ask(f"v{version}: without its id", version, produce(who, topic, 0, names_its_id=False))
        talk.ask_until(f"v{version}: the first batch", version, produce(who, topic, 0, 2), is_settled, on="main")
        talk.ask(f"v{version}: it again", version, produce(who, topic, 0, 2))
        talk.ask(f"v{version}: the next batch", version, produce(who, topic, 2))
        talk.ask(f"v{version}: a gap", version, produce(who, topic, 9))
        plain = produce(who, topic, 3, transactional=False, names_its_id=False)
        talk.ask(f"v{version}: a plain batch of the open transaction", version, plain)
        talk.ask(f"v{version}: an epoch of before", version, produce(who.later(-1), topic, 3))
        _ended(talk, who, commits=True, version=3)
        talk.ask(f"v{version}: after the end", version, produce(who, topic, 3))


def probe_txn_produce_adds(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-adds"
    talk.create_topic(topic, 2)
    who = begin(talk, "probe-txn-adds")
    cases = {
        "an unknown id": produce(who._replace(transactional_id="probe-txn-no"), topic, 0),
        "another producer id": produce(who.of_another(), topic, 0),
        "another epoch": produce(who.later(), topic, 0),
        "an unknown topic": produce(who, "probe-nowhere", 0),
        "an unknown partition": produce(who, topic, 0, partition=9),
        "without its id": produce(who, topic, 0, names_its_id=False),
    }
    for label, request in cases.items():
        talk.ask_until(f"v12: {label}", KIP_890_PRODUCE, request, is_settled)
    talk.ask("v12: nothing was added", 0, describe(who.transactional_id))
    _produced(talk, "v12: the first batch", who, topic, 0, 2)
    talk.ask("v12: it was added", 0, describe(who.transactional_id))
    _produced(talk, "v12: it again", who, topic, 0, 2)
    _produced(talk, "v12: the next batch", who, topic, 2)
    _produced(talk, "v12: a gap", who, topic, 9)
    plain = produce(who, topic, 3, transactional=False, names_its_id=False)
    talk.ask("v12: a plain batch of the open transaction", KIP_890_PRODUCE, plain)
    other = produce(who, topic, 0, partition=1)
    talk.ask("v11: a partition that was not added", 11, other)
    talk.ask_until("v12: another partition", KIP_890_PRODUCE, other, is_settled, on="main")
    following = _ended(talk, who, commits=True)
    talk.ask("v12: an epoch of before", KIP_890_PRODUCE, produce(who, topic, 3))
    _produced(talk, "v12: the next transaction", following, topic, 0)
    talk.ask("v12: the next transaction has it", 0, describe(who.transactional_id))
    _ended(talk, following, commits=False)
    gap = begin(talk, "probe-txn-gap")
    _produced(talk, "v12: the first batch of a new epoch, sequence 5", gap, topic, 5)
    talk.ask("v12: it added the partition", 0, describe("probe-txn-gap"))
    _ended(talk, gap, commits=False)


def probe_txn_at_once(talk: Talk) -> None:
    """Each transaction starts as soon as the end of the last one is answered, before its markers are written."""
    _first_producer(talk)
    topic, group = "probe-txn-at-once", "probe-txn-at-once"
    talk.create_topic(topic, retention_ms="-1")
    talk.settle_coordinator(group)
    who = begin(talk, "probe-txn-at-once")
    for number in range(20):
        _produced(talk, f"batch {number}", who, topic, 0)
        offsets = commit_offsets(who, group, topic, number)
        talk.ask_until(f"offset {number}", KIP_890_COMMIT, offsets, is_settled, on="main")
        talk.ask_until(f"end {number}", KIP_890_END, end(who, commits=number % 3 != 0), is_settled, on="main")
        who = who.later()


def probe_txn_read(talk: Talk) -> None:
    """Fetch and ListOffsets of both isolation levels beside a transaction that is open, committed, aborted."""
    _first_producer(talk)
    topic = "probe-txn-read"
    talk.create_topic(topic, retention_ms="-1")

    def read(state: str, offset: int) -> None:
        for isolation, reader in enumerate(("all", "committed")):
            for version in (4, 11, 12):
                label = f"{state}: Fetch v{version} of {reader} from {offset}"
                keep_fetched(talk, label, version, fetch(topic, offset, isolation=isolation))
            for version in range(2, 10):
                for name, timestamp in (("latest", -1), ("earliest", -2)):
                    request = list_offsets(topic, timestamp, isolation=isolation)
                    talk.ask(f"{state}: ListOffsets v{version} {name} of {reader} from {offset}", version, request)

    read("empty", 0)
    who = begin(talk, "probe-txn-read")
    _produced(talk, "the first transaction", who, topic, 0, 3)
    read("open", 0)
    who = _ended(talk, who, commits=True)
    read("committed", 0)
    _produced(talk, "the second transaction", who, topic, 0, 2)
    who = _ended(talk, who, commits=False)
    read("aborted", 0)
    read("aborted", 4)
    read("aborted", 6)
    other = begin(talk, "probe-txn-read-other")
    _produced(talk, "two are open: one", who, topic, 0)
    _produced(talk, "two are open: the other", other, topic, 0, 2)
    _ended(talk, other, commits=False)
    read("aborted above an open one", 0)
    _ended(talk, who, commits=False)
    read("all are aborted", 0)


def probe_txn_offsets(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-offsets"
    talk.create_topic(topic, retention_ms="-1")
    for version in range(KIP_890_COMMIT + 1):
        group = f"probe-txn-offsets-{version}"
        talk.settle_coordinator(group)
        protocol = 5 if version == KIP_890_COMMIT else 4
        who = begin(talk, f"probe-txn-offsets-{version}", version=protocol)
        if version < KIP_890_COMMIT:
            talk.ask(f"v{version}: the group was not added", version, commit_offsets(who, group, topic))
            talk.wait_until(3, add_offsets(who, group), is_settled, on="main")
        cases = {
            "another epoch": commit_offsets(who.later(), group, topic),
            "an epoch of before": commit_offsets(who.later(-1), group, topic),
            "another producer id": commit_offsets(who.of_another(), group, topic),
            "an unknown id": commit_offsets(who._replace(transactional_id="probe-txn-no"), group, topic),
            "no group": commit_offsets(who, "", topic),
            "an unknown topic": commit_offsets(who, group, "probe-nowhere"),
        }
        if version >= 3:
            cases |= {
                "a generation of no member": commit_offsets(who, group, topic, generation=5),
                "an unknown member": commit_offsets(who, group, topic, generation=5, member="stranger"),
                "an unknown member without a generation": commit_offsets(who, group, topic, member="stranger"),
                "an unknown instance": commit_offsets(who, group, topic, instance="stranger"),
            }
        for label, request in cases.items():
            talk.ask_until(f"v{version}: {label}", version, request, is_settled)
        talk.ask_until(f"v{version}: offsets", version, commit_offsets(who, group, topic), is_settled, on="main")
        for fetching in (6, 7, 9):
            for stable in (True, False):
                label = f"v{version}: pending, OffsetFetch v{fetching}{' of stable ones' if stable else ''}"
                talk.ask(label, fetching, fetch_offsets(group, topic, stable=stable and fetching >= 7))
        _ended(talk, who, commits=True, version=protocol)
        talk.ask_until(
            f"v{version}: committed", 7, fetch_offsets(group, topic), lambda found: "unstable" not in repr(found)
        )


def probe_txn_offsets_aborted(talk: Talk) -> None:
    _first_producer(talk)
    topic, group = "probe-txn-offsets-aborted", "probe-txn-offsets-aborted"
    talk.create_topic(topic, retention_ms="-1")
    talk.settle_coordinator(group)
    who = begin(talk, "probe-txn-offsets-aborted")

    def commit(label: str, offset: int) -> None:
        request = commit_offsets(who, group, topic, offset)
        talk.ask_until(label, KIP_890_COMMIT, request, is_settled, on="main")

    def read(label: str) -> None:
        talk.ask_until(label, 7, fetch_offsets(group, topic), lambda found: "unstable" not in repr(found))

    commit("offset 5", 5)
    who = _ended(talk, who, commits=True)
    read("committed 5")
    commit("offset 9", 9)
    who = _ended(talk, who, commits=False)
    read("aborted 9")
    commit("offset 11", 11)
    commit("offset 12 of the same transaction", 12)
    part = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}
    plain = KafkaRequest(
        "OffsetCommit",
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [part]}],
    )
    talk.ask("a plain commit of 3 beside it", 7, plain)
    talk.ask("while it is pending", 7, fetch_offsets(group, topic, stable=False))
    who = _ended(talk, who, commits=True)
    read("the plain commit is later")
    commit("offset 20", 20)
    talk.ask("DeleteGroups of a group with a pending offset", 2, DeleteGroupsRequest([group]))
    _ended(talk, who, commits=True)
    read("after the commit of a deleted group")


def probe_txn_markers(talk: Talk) -> None:
    """WriteTxnMarkers, as a coordinator or an administrator sends it."""
    _first_producer(talk)
    topic = "probe-txn-markers"
    talk.create_topic(topic, retention_ms="-1")
    who = begin(talk, "probe-txn-markers", version=4)
    _add(talk, who, topic)
    talk.ask_until("a batch", 11, produce(who, topic, 0), is_settled, on="main")
    talk.ask("its producer", 0, describe_producers(topic))

    def write(
        label: str,
        producer_id: int,
        epoch: int,
        *,
        coordinator_epoch: int = 0,
        commits: bool = False,
        topic: str = topic,
    ) -> None:
        request = write_marker(producer_id, epoch, topic, commits=commits, coordinator_epoch=coordinator_epoch)
        talk.ask(label, 1, request)

    write("an epoch of before", who.producer_id, who.epoch - 1)
    write("an unknown topic", who.producer_id, who.epoch, topic="probe-nowhere")
    write("an abort by hand", who.producer_id, who.epoch)
    talk.ask("nothing is open", 0, describe_producers(topic))
    write("a producer that is not known", 987_654, 0, coordinator_epoch=5)
    write("an older coordinator", 987_654, 0, coordinator_epoch=4)
    write("a repeat", 987_654, 0, coordinator_epoch=5, commits=True)
    keep_fetched(talk, "what was written", 12, fetch(topic, 0, isolation=0))
    keep_fetched(talk, "what is shown", 12, fetch(topic, 0))


def probe_txn_producers(talk: Talk) -> None:
    _first_producer(talk)
    topic = "probe-txn-producers"
    talk.create_topic(topic, retention_ms="-1")
    talk.ask("DescribeProducers of none", 0, describe_producers(topic))
    talk.ask("DescribeProducers of an unknown topic", 0, describe_producers("probe-nowhere"))
    talk.ask("DescribeProducers of an unknown partition", 0, describe_producers(topic, 9))
    who = begin(talk, "probe-txn-producers")
    _produced(talk, "a batch of 3", who, topic, 0, 3)
    talk.ask("DescribeProducers with an open transaction", 0, describe_producers(topic))
    who = _ended(talk, who, commits=True)
    talk.ask("DescribeProducers after its end", 0, describe_producers(topic))
    plain = produce(who, topic, 0, transactional=False, names_its_id=False)
    talk.ask("a plain batch of the next epoch", 11, plain)
    talk.ask("DescribeProducers after a plain batch", 0, describe_producers(topic))


def probe_txn_deleted_topic(talk: Talk) -> None:
    _first_producer(talk)
    talk.create_topic("probe-txn-deleted")
    who = begin(talk, "probe-txn-deleted")
    _produced(talk, "a batch", who, "probe-txn-deleted", 0)
    talk.ask("the topic is deleted", 5, DeleteTopicsRequest(topic_names=["probe-txn-deleted"], timeout_ms=5_000))
    talk.ask_until("the end", KIP_890_END, end(who, commits=True), is_settled, on="main")
    talk.ask_until("it is complete", 0, describe(who.transactional_id), lambda answer: "CompleteCommit" in repr(answer))

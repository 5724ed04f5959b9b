"""Dead letters are put back exactly once through kills, repeated runs and concurrent replays."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.fetching.messages import Message, messages_between
from ottla.client.fetching.offsets import IsolationLevel, log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import UnknownTopic
from ottla.dead_letters import DeadLetters, Replay, Replayed
from ottla.dead_letters import replay as replays
from ottla.dead_letters.claims import ClaimedBatch, ClaimedLetter, ReplayClaim, State, from_json
from ottla.dead_letters.claims_log import ClaimsLog
from ottla.dead_letters.letter import REPLAYED_FROM, replay_key
from ottla.dead_letters.topics import letters_of
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import REPLAY_CLAIMS_TOPIC
from ottla.testing import Namespace, Record, Topic, consume_all, produce
from ottla.testing.broker import RunningBroker

STEPS = ("claiming", "claimed", "sending", "sent", "done")


def failed(namespace: Namespace, count: int, partitions: int = 3, name: str = "orders") -> tuple[Topic, Topic]:
    """A topic whose every message is a dead letter, and its dead-letter topic."""
    # The records are from 1970.
    topic = namespace.topic(name, partitions=partitions, configs={"retention.ms": "-1"})
    produce(
        topic,
        [
            Record(
                b"%d" % number, key=b"k%d" % (number % 11), headers={"own": b"%d" % number}, timestamp_ms=1000 + number
            )
            for number in range(count)
        ],
    )
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put_all((message, ValueError("no")) for message in consume_all(topic, count=count))
    return topic, namespace.name(f"{name}.dead-letter")


def put_back(topic: Topic) -> list[Message]:
    return [message for message in consume_all(topic) if message.header(REPLAYED_FROM) is not None]


def put_back_committed(cluster: Cluster, topic: Topic) -> list[Message]:
    places = [TopicPartition(str(topic), number) for number in cluster.partitions(str(topic))]
    logs = log_ranges(cluster, places)
    starts, ends = ({place: log.start for place, log in logs.items()}, {place: log.stop for place, log in logs.items()})
    found = messages_between(cluster, starts, ends, isolation=IsolationLevel.READ_COMMITTED)
    return [message for message in found if message.header(REPLAYED_FROM) is not None]


def values(messages: list[Message]) -> Counter[bytes | None]:
    return Counter(message.value for message in messages)


def test_letters_are_put_back_unchanged_and_only_once(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 30)
    assert Replay(cluster, letters).run() == Replayed(put_back=30)
    before = {message.value: message for message in consume_all(topic) if message.header(REPLAYED_FROM) is None}
    for message in put_back(topic):
        first = before[message.value]
        assert (message.partition, message.key, message.timestamp_ms) == (
            first.partition,
            first.key,
            first.timestamp_ms,
        )
        assert message.header("own") == first.header("own")
        assert len(message.headers) == 2
    assert values(put_back(topic)) == Counter({b"%d" % number: 1 for number in range(30)})

    assert Replay(cluster, letters).run() == Replayed(were_back=30)
    assert len(put_back(topic)) == 30


def test_two_letters_of_one_record_put_it_back_once(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 5)
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put_all((message, "again") for message in consume_all(topic))
    assert Replay(cluster, letters).run() == Replayed(put_back=5, were_back=5)
    assert values(put_back(topic)) == Counter({b"%d" % number: 1 for number in range(5)})


def test_record_that_fails_again_is_another_letter(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 1)
    Replay(cluster, letters).run()
    [returned] = put_back(topic)
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put(returned, ValueError("still"))
    assert Replay(cluster, letters).run() == Replayed(put_back=1, were_back=1)
    assert len(put_back(topic)) == 2


def test_dry_run_counts_and_writes_nothing(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 5)
    assert Replay(cluster, letters, selects=lambda each: each.message.partition == 0).run(is_dry=True).put_back > 0
    assert Replay(cluster, letters).run(is_dry=True) == Replayed(put_back=5)
    assert put_back(topic) == []


def test_only_selected_letters_are_put_back(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 6)
    outcome = Replay(cluster, letters, selects=lambda each: each.message.value in (b"1", b"4")).run()
    assert outcome == Replayed(put_back=2, left_out=4)
    assert values(put_back(topic)) == Counter([b"1", b"4"])
    assert Replay(cluster, letters).run() == Replayed(put_back=4, were_back=2)


def test_recreated_topic_gets_letters_of_the_deleted_topic_only_when_they_are_selected(
    namespace: Namespace, cluster: Cluster
) -> None:
    topic, letters = failed(namespace, 4)
    Admin(cluster).delete_topics([topic])
    namespace.topic("orders", partitions=1)
    cluster.forget([topic])
    outcome = Replay(cluster, letters).run()
    assert outcome.put_back == 0
    assert outcome.refused == {f"the topic {topic} was deleted and recreated since: name it, or another, with --to": 4}
    assert Replay(cluster, letters, to=topic).run() == Replayed(put_back=4)
    assert len(put_back(topic)) == 4


def test_new_letter_belongs_to_the_new_topic_when_its_topic_was_recreated(
    namespace: Namespace, cluster: Cluster
) -> None:
    topic = namespace.topic("orders")
    produce(topic, ["one"])
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put(consume_all(topic)[0], "no")
        Admin(cluster).delete_topics([topic])
        namespace.topic("orders")
        cluster.forget([topic])
        produce(topic, ["two"])
        dead_letters.put(consume_all(topic)[0], "no")
    outcome = Replay(cluster, namespace.name("orders.dead-letter")).run()
    assert (outcome.put_back, outcome.refused_count) == (1, 1)
    assert values(put_back(topic)) == Counter([b"two"])


def test_letters_that_the_topic_refuses_are_counted_and_remain_letters(namespace: Namespace, cluster: Cluster) -> None:
    small = namespace.topic("small", configs={"max.message.bytes": "600"})
    topic = namespace.topic("large")
    produce(topic, [Record(b"x" * 1000), Record(b"y")])
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put_all((message, "no") for message in consume_all(topic, count=2))
    letters = namespace.name("large.dead-letter")
    outcome = Replay(cluster, letters, to=small).run()
    # The small record fits with the header that names its origin, and the large one does not block it.
    assert (outcome.put_back, outcome.refused_count) == (1, 1)
    assert "MESSAGE_TOO_LARGE" in next(iter(outcome.refused))
    assert Replay(cluster, letters, to=small).run() == Replayed(were_back=1, refused=outcome.refused)
    # They are not claimed: another replay with a larger limit puts them back.
    other = namespace.topic("other")
    assert Replay(cluster, letters, to=other).run() == Replayed(put_back=2)


def test_letters_that_fit_one_by_one_are_put_back_in_batches_that_fit(namespace: Namespace, cluster: Cluster) -> None:
    _, letters = failed(namespace, 40, partitions=1)
    small = namespace.topic("small", configs={"max.message.bytes": "600", "retention.ms": "-1"})
    claims = log_ranges_end(cluster)
    assert Replay(cluster, letters, to=small).run() == Replayed(put_back=40)
    assert len(consume_all(small)) == 40
    # No batch was refused and halved: a claim is one batch of several letters and two records.
    assert log_ranges_end(cluster) - claims <= 2 * 40


def log_ranges_end(cluster: Cluster) -> int:
    place = TopicPartition(REPLAY_CLAIMS_TOPIC, 0)
    try:
        return log_ranges(cluster, [place])[place].stop
    except UnknownTopic:
        return 0


def test_refused_letters_do_not_block_others_of_their_batch(namespace: Namespace, cluster: Cluster) -> None:
    compacted = namespace.topic("compacted", configs={"cleanup.policy": "compact"})
    topic = namespace.topic("orders")
    produce(topic, [Record(b"%d" % number, key=None if number in (3, 17) else b"k%d" % number) for number in range(20)])
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put_all((message, "no") for message in consume_all(topic, count=20))
    outcome = Replay(cluster, namespace.name("orders.dead-letter"), to=compacted).run()
    assert (outcome.put_back, outcome.refused_count) == (18, 2)
    assert values(put_back(compacted)) == Counter({b"%d" % each: 1 for each in range(20) if each not in (3, 17)})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [1, 3])
def test_replay_that_was_killed_is_completed_by_the_next(
    broker: RunningBroker, namespace: Namespace, cluster: Cluster, step: str, count: int
) -> None:
    topic, letters = failed(namespace, 30)
    program = [sys.executable, "-m", "tests.integration.dead_letters.replay_program"]
    killed = subprocess.run([*program, broker.bootstrap, letters, step, str(count)], check=False)
    assert killed.returncode == -signal.SIGKILL, "the replay was not killed where it should be"
    assert len(put_back(topic)) < 30

    outcome = Replay(cluster, letters).run()
    assert outcome.put_back + outcome.were_back == 30
    assert outcome.refused == {}
    assert values(put_back(topic)) == Counter({b"%d" % number: 1 for number in range(30)})


@pytest.mark.parametrize("step", STEPS)
def test_transactional_replay_that_was_killed_is_completed_by_the_next(
    broker: RunningBroker, namespace: Namespace, cluster: Cluster, step: str
) -> None:
    topic, letters = failed(namespace, 30)
    program = [sys.executable, "-m", "tests.integration.dead_letters.replay_program"]
    killed = subprocess.run([*program, broker.bootstrap, letters, step, "3", "transactional"], check=False)
    assert killed.returncode == -signal.SIGKILL, "the replay was not killed where it should be"
    # The next replay completes the claim as it was made, in either mode.
    outcome = Replay(cluster, letters).run()
    assert outcome.put_back + outcome.were_back == 30
    assert outcome.refused == {}
    expected = Counter({b"%d" % number: 1 for number in range(30)})
    assert values(put_back_committed(cluster, topic)) == expected
    if step == "sent":
        # The price: what was stored, and not committed, is shown to readers of uncommitted records.
        assert values(put_back(topic)) > expected


def test_transactional_replay_puts_back_what_can_be_put_back_and_withdraws_the_rest(
    namespace: Namespace, cluster: Cluster
) -> None:
    small = namespace.topic("small", configs={"max.message.bytes": "600"})
    topic = namespace.topic("large")
    produce(topic, [Record(b"y"), Record(b"x" * 1000), Record(b"z")])
    with DeadLetters(namespace.bootstrap) as dead_letters:
        dead_letters.put_all((message, "no") for message in consume_all(topic, count=3))
    letters = namespace.name("large.dead-letter")
    outcome = Replay(cluster, letters, to=small, is_transactional=True).run()
    assert (outcome.put_back, outcome.refused_count) == (2, 1)
    assert values(put_back_committed(cluster, small)) == Counter([b"y", b"z"])
    # Each has its own id: a replay that completes one of them does not fence the next.
    records = [from_json(each.value) for each in consume_all(REPLAY_CLAIMS_TOPIC, bootstrap=namespace.bootstrap)]
    ids = {claim.claim_id: claim.transactional_id for claim in records if claim.dead_letter_topic == letters}
    assert len(set(ids.values())) == len(ids) > 1
    # What was withdrawn is free: a replay without transactions puts it back elsewhere.
    other = namespace.topic("other")
    assert Replay(cluster, letters, to=other).run() == Replayed(put_back=3)


def test_replay_says_so_and_puts_back_once_where_brokers_have_no_transactions(
    namespace: Namespace, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, letters = failed(namespace, 5)
    monkeypatch.setattr(Connection, "supports", lambda *_: False)
    notes: list[str] = []
    outcome = Replay(cluster, letters, is_transactional=True, note=notes.append).run()
    assert outcome == Replayed(put_back=5)
    assert ["have no transactions" in note for note in notes] == [True]
    assert values(put_back(topic)) == Counter({b"%d" % number: 1 for number in range(5)})


def test_claim_that_was_sent_is_recognised_when_leaders_have_forgotten_its_producer(
    namespace: Namespace, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a day: the producer id has expired, only the log shows what was sent."""
    topic, letters = failed(namespace, 4, partitions=1)

    def stop(step: str) -> None:
        if step == "sent":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replay(cluster, letters, step=stop).run()
    assert len(put_back(topic)) == 4
    # The leaders do not know this producer id.
    monkeypatch.setattr(replays, "ProducerIdentity", lambda *_: (987_654, 0))
    assert Replay(cluster, letters).run() == Replayed(put_back=4)
    assert len(put_back(topic)) == 4


@pytest.mark.parametrize("is_transactional", [False, True])
def test_several_replays_at_the_same_time_put_each_letter_back_once(
    broker: RunningBroker,
    namespace: Namespace,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    is_transactional: bool,
) -> None:
    monkeypatch.setattr(replays, "CLAIM_LETTERS_MAX", 5)
    topic, letters = failed(namespace, 60)
    together = threading.Barrier(3)
    outcomes: list[Replayed] = []

    def replay() -> None:
        with Cluster(broker.bootstrap) as own:
            together.wait()
            outcomes.append(Replay(own, letters, is_transactional=is_transactional).run())

    threads = [threading.Thread(target=replay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    assert values(put_back_committed(cluster, topic)) == Counter({b"%d" % number: 1 for number in range(60)})


def test_lost_claim_is_withdrawn_before_the_next_claim(namespace: Namespace, cluster: Cluster) -> None:
    topic, letters = failed(namespace, 2, partitions=1)
    Replay(cluster, letters).run()
    [first, _] = list(letters_of(cluster, letters))
    assert first.letter is not None
    key = replay_key(topic, first.letter.origin.identity)
    lost = ReplayClaim(
        "lost",
        letters,
        State.BEGUN,
        0,
        1,
        0,
        (ClaimedBatch(topic, 0, 0, (ClaimedLetter(0, first.message.offset, key),)),),
    )
    ClaimsLog(cluster).append(lost)
    Replay(cluster, letters).run()
    place = TopicPartition(REPLAY_CLAIMS_TOPIC, 0)
    assert log_ranges(cluster, [place])[place].stop > 0
    last = [from_json(each.value) for each in consume_all(REPLAY_CLAIMS_TOPIC, bootstrap=namespace.bootstrap)][-1]
    assert (last.claim_id, last.state) == ("lost", State.WITHDRAWN)
    assert len(put_back(topic)) == 2

"""`ottla topic`, `produce` and `consume` against both brokers; in pipes, and up to a signal, as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence

import pytest

from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker import RunningBroker
from tests.command_line import Done, ottla_process
from tests.command_line import ottla as run_verb
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName

TIMEOUT_S = 120
# Much less than the minute for which clients retry.
TOLD_WITHIN_S = 30


def ottla(bootstrap: str, *arguments: str, stdin: str | bytes = b"", status: int = 0) -> Done:
    """Run a verb to its end; its exit status must be `status`."""
    return run_verb(*arguments, "--bootstrap-server", bootstrap, stdin=stdin, status=status)


def command(bootstrap: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "ottla", *arguments, "--bootstrap-server", bootstrap]


def consume(bootstrap: str, topic: str, *arguments: str) -> str:
    return ottla(bootstrap, "consume", topic, "--from-beginning", "--until-end", *arguments).stdout.decode()


def test_topic_verbs_create_list_describe_alter_and_delete(bootstrap: str) -> None:
    topic = f"cli-{uuid.uuid4().hex[:8]}"
    created = ottla(bootstrap, "topic", "create", topic, "--partitions", "3", "--config", "retention.ms=1000000")
    assert created.stdout.decode() == f"created topic {topic} with partitions=3 replication-factor=1\n"
    eventually(lambda: topic in ottla(bootstrap, "topic", "list").stdout.decode().split())
    described = ottla(bootstrap, "topic", "describe", "--topic", topic, "--kafka").stdout.decode()
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=1000000" in described
    assert described.count("\n\tTopic: ") == 3
    shown = ottla(bootstrap, "topic", "describe", topic).stdout.decode().splitlines()
    assert shown[0] == f"topic {topic}"
    assert shown[2:4] == ["  3 partitions with 1 replica each", "  retention.ms=1000000"]
    assert shown[4].split() == ["PARTITION", "LEADER", "REPLICAS", "IN-SYNC"]
    assert [line.split()[0] for line in shown[5:]] == ["0", "1", "2"]
    ottla(bootstrap, "topic", "alter", topic, "--config", "segment.bytes=2000000", "--delete-config", "retention.ms")
    found = json.loads(ottla(bootstrap, "topic", "describe", topic, "--json").stdout)
    assert found["configs"] == {"segment.bytes": "2000000"}
    assert [row["partition"] for row in found["partitions"]] == [0, 1, 2]
    assert ottla(bootstrap, "topic", "delete", topic).stdout.decode() == f"deleted topic {topic}\n"
    eventually(lambda: topic not in ottla(bootstrap, "topic", "list").stdout.decode().split())


def test_topic_verbs_report_an_error_in_two_lines(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    for arguments, error in (
        (["topic", "create", topic], "exists"),
        (["topic", "create", "no good"], "no good"),
        (["topic", "create", f"{topic}-x", "--config", "no.such.setting=1"], "no.such.setting"),
        (["topic", "create", f"{topic}-x", "--replication-factor", "7"], "7"),
        (["topic", "describe", "no-such-topic"], "no-such-topic does not exist"),
        (["topic", "delete", "no-such-topic"], "no-such-topic"),
        (["topic", "alter", topic, "--config", "retention.ms=often"], "often"),
        (["topic", "alter", topic, "--delete-config", "retention.sm"], "topics have no setting 'retention.sm'"),
        (["consume", "no-such-topic"], "no-such-topic does not exist"),
        (["consume", topic, "--partition", "9"], "no partition 9"),
        (["consume", topic, "--offset", "77"], "offset 77"),
        (["produce", topic, "--partition", "9"], "no partition 9"),
    ):
        lines = ottla(bootstrap, *arguments, stdin="x\n", status=1).stderr.decode().splitlines()
        assert lines[0].startswith("error: "), lines
        assert error in lines[0]
        assert len(lines) <= 2
    ottla(bootstrap, "topic", "create", topic, "--if-not-exists")
    ottla(bootstrap, "topic", "delete", "no-such-topic", "--if-exists")


def test_topic_verbs_warn_when_no_produce_could_be_acknowledged(bootstrap: str, new_topic: NewTopicName) -> None:
    created, altered = f"cli-{uuid.uuid4().hex[:8]}", new_topic()
    warning = "has 1 replica and min.insync.replicas=2: Ottla then refuses produces with acks=all"
    for verb, topic in (("create", created), ("alter", altered)):
        done = ottla(bootstrap, "topic", verb, topic, "--config", "min.insync.replicas=2")
        assert done.stderr.decode() == f"warning: topic {topic} {warning} (Apache Kafka 4.1 accepts them)\n"
    assert ottla(bootstrap, "topic", "alter", altered, "--config", "min.insync.replicas=1").stderr == b""


def test_hints_of_topic_verbs_fit_the_request(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(3)
    for count in ("2", "3"):
        lines = ottla(bootstrap, "topic", "alter", topic, "--partitions", count, status=1).stderr.decode().splitlines()
        assert lines[1].startswith("hint: give more than it has")


def test_internal_topic_that_cannot_be_deleted_has_a_hint_that_fits(ottla_broker: RunningBroker) -> None:
    with Cluster(ottla_broker.bootstrap) as cluster:
        GroupAdmin(cluster).committed("any-group")  # its first group makes the topic
        eventually(lambda: not cluster.refresh([OFFSETS_TOPIC])[0].error_code)
    done = ottla(ottla_broker.bootstrap, "topic", "delete", OFFSETS_TOPIC, status=1)
    assert b"hint: `ottla group delete GROUP` deletes a group with its offsets" in done.stderr


def test_verbs_report_at_once_that_no_broker_listens() -> None:
    started_s = time.monotonic()
    done = ottla_process("topic", "list", "-b", "127.0.0.1:1", status=1)
    assert b"error: cannot connect to 127.0.0.1:1" in done.stderr
    assert b"hint: " in done.stderr
    assert time.monotonic() - started_s < TOLD_WITHIN_S


def test_consume_prints_the_lines_that_were_produced(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    produced = ottla_process("produce", topic, "-b", bootstrap, stdin=b"one\ntwo\r\n\nlast without an end")
    consumed = ottla_process("consume", topic, "-b", bootstrap, "--from-beginning", "--until-end")
    assert consumed.stdout == b"one\ntwo\n\nlast without an end\n"
    assert produced.stdout == produced.stderr == consumed.stderr == b""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_consume_prints_the_keys_headers_and_times_that_were_produced(
    bootstrap: str, new_topic: NewTopicName, codec: str
) -> None:
    topic = new_topic()
    ottla(
        bootstrap,
        "produce",
        topic,
        "--key-separator",
        ":",
        "--header",
        "trace=7",
        "--timestamp",
        "1234567",
        "--compression-codec",
        codec,
        stdin="user-1:a\nuser-2:b:c\n",
    )
    shown = consume(bootstrap, topic, "--show", "timestamp,partition,offset,headers,key,value", "--key-separator", "|")
    assert shown.splitlines() == [
        "CreateTime:1234567|Partition:0|Offset:0|trace:7|user-1|a",
        "CreateTime:1234567|Partition:0|Offset:1|trace:7|user-2|b:c",
    ]


def test_properties_of_kafkas_tools_are_understood(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    ottla(
        bootstrap,
        "produce",
        "--topic",
        topic,
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=,",
        "--property",
        "parse.headers=true",
        "--property",
        "null.marker=NULL",
        stdin="h1:x,h2:y\tk,v\n\tNULL,NULL\n",
    )
    shown = consume(
        bootstrap,
        topic,
        "--property",
        "print.key=true",
        "--property",
        "print.headers=true",
        "--property",
        "key.separator=/",
        "--property",
        "null.literal=nil",
    )
    assert shown.splitlines() == ["h1:x,h2:y/k/v", "NO_HEADERS/nil/nil"]


def test_produce_reads_the_json_that_consume_writes(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    topic, copy = new_topic(2), new_topic(2)
    records = [
        Record(0, 5000, b"k", "äöü\n".encode(), (("h", b"1"), ("raw", b"\xff"), ("none", None))),
        Record(0, 6000, None, b"\x00\xff"),
        Record(0, 7000, b"", None),
    ]
    with RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, 1), build_batch(records))
        producer.flush()
    lines = consume(bootstrap, topic, "--json")
    ottla(bootstrap, "produce", copy, "--json", stdin=lines)
    assert consume(bootstrap, copy, "--json") == lines.replace(topic, copy)
    first, second, third = (json.loads(line) for line in lines.splitlines())
    assert first["value"] == "äöü\n"
    assert first["headers"][1:] == [{"name": "raw", "value_base64": "/w=="}, {"name": "none", "value": None}]
    assert (second["key"], second["value_base64"]) == (None, "AP8=")
    assert (third["key"], third["value"], third["partition"], third["offset"]) == ("", None, 1, 2)


def test_consume_starts_and_ends_at_the_given_offsets(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    ottla(bootstrap, "produce", topic, stdin="".join(f"{number}\n" for number in range(100)))
    assert consume(bootstrap, topic, "--max-messages", "3").split() == ["0", "1", "2"]
    at_95 = ottla(bootstrap, "consume", topic, "--partition", "0", "--offset", "95", "--until-end").stdout
    assert at_95.split() == [b"95", b"96", b"97", b"98", b"99"]
    assert ottla(bootstrap, "consume", topic, "--offset", "latest", "--timeout-ms", "300").stdout == b""
    assert ottla(bootstrap, "consume", topic, "--from-beginning", "--max-messages", "0").stdout == b""


def test_produce_spreads_keys_and_verbose_prints_their_offsets(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(3)
    lines = "".join(f"key-{number}:{number}\n" for number in range(50))
    told = ottla(bootstrap, "produce", topic, "--key-separator", ":", "--verbose", stdin=lines).stderr.decode()
    assert sorted(line.split(":")[0] for line in told.splitlines()) == [f"{topic}-{number}" for number in range(3)]
    assert sorted(map(int, consume(bootstrap, topic).split())) == list(range(50))


def test_produce_names_the_line_that_is_wrong_and_sends_those_before_it(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    done = ottla(bootstrap, "produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nno key\n", status=1)
    assert b"error: input line 3" in done.stderr
    assert consume(bootstrap, topic) == "1\n2\n"


def test_produce_writes_its_whole_input_in_one_transaction_or_nothing_of_it(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(2, max_message_bytes="1000")
    transaction = ("produce", topic, "--transactional-id", topic, "--key-separator", ":")
    committed = ("--isolation-level", "read_committed")
    wrong = ottla(bootstrap, *transaction, "--batch-size", "1", stdin="a:1\nb:2\nno key\n", status=1)
    assert b"error: input line 3" in wrong.stderr
    assert b"nothing of the input is committed" in wrong.stderr
    refused = ottla(bootstrap, *transaction, stdin="a:1\nb:" + "x" * 2000 + "\n", status=1)
    assert b"error: nothing of the input is committed" in refused.stderr
    assert consume(bootstrap, topic, *committed) == ""
    # Batches that the topic does not take as a whole are divided, in the transaction, too.
    lines = "".join(f"key-{number}:{number}\n" for number in range(200))
    shown = ottla(bootstrap, *transaction, "--verbose", stdin=lines).stderr.decode()
    assert {line.split(":")[0] for line in shown.splitlines()} == {f"{topic}-0", f"{topic}-1"}
    # A coordinator answers before its markers are in all partitions.
    eventually(
        lambda: sorted(map(int, consume(bootstrap, topic, *committed).split())),
        lambda found: found == list(range(200)),
    )


def test_produce_that_is_killed_leaves_nothing_that_is_committed_and_the_next_one_writes_its_input(
    bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic()
    transaction = ["produce", topic, "--transactional-id", topic]
    writer = subprocess.Popen(command(bootstrap, transaction), stdin=subprocess.PIPE)
    assert writer.stdin is not None
    try:
        writer.stdin.write(b"killed\n")
        writer.stdin.flush()
        shown = ottla(bootstrap, "consume", topic, "--from-beginning", "--max-messages", "1")
        assert shown.stdout == b"killed\n"
    finally:
        writer.kill()
        writer.communicate()
    ottla(bootstrap, *transaction, stdin="whole\ninput\n")
    eventually(
        lambda: consume(bootstrap, topic, "--isolation-level", "read_committed"),
        lambda found: found == "whole\ninput\n",
    )


def test_produce_reports_a_record_that_is_too_large(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(max_message_bytes="1000")
    done = ottla(bootstrap, "produce", topic, stdin="x" * 2000, status=1)
    assert b"MESSAGE_TOO_LARGE" in done.stderr or b"large" in done.stderr
    assert b"hint: " in done.stderr


def test_consume_follows_the_tail_and_ends_quietly_at_ctrl_c(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(2)
    reader = subprocess.Popen(
        command(bootstrap, ["consume", topic, "--from-beginning"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    try:
        for text in (b"first\n", b"second\n"):
            ottla(bootstrap, "produce", topic, stdin=text)
            assert reader.stdout.readline() == text
        reader.send_signal(signal.SIGINT)
        rest, errors = reader.communicate(timeout=TIMEOUT_S)
    finally:
        reader.kill()
        reader.communicate()
    assert (reader.returncode, rest, errors) == (0, b"", b"")


def test_consume_ends_quietly_when_its_pipe_is_closed(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    ottla(bootstrap, "produce", topic, stdin="line of some length\n" * 50_000)
    reader = subprocess.Popen(
        command(bootstrap, ["consume", topic, "--from-beginning"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"line of some length\n"
    reader.stdout.close()
    errors = reader.stderr.read()
    reader.stderr.close()
    assert reader.wait(TIMEOUT_S) != 0
    assert errors == b""


def test_produce_sends_typed_lines_before_the_input_ends(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    writer = subprocess.Popen(command(bootstrap, ["produce", topic]), stdin=subprocess.PIPE)
    assert writer.stdin is not None
    try:
        writer.stdin.write(b"typed\n")
        writer.stdin.flush()
        shown = ottla(bootstrap, "consume", topic, "--from-beginning", "--max-messages", "1")
        assert shown.stdout == b"typed\n"
        writer.stdin.close()
        assert writer.wait(TIMEOUT_S) == 0
    finally:
        writer.kill()
        writer.wait()


def test_consume_of_a_group_continues_after_what_it_has_written(bootstrap: str, new_topic: NewTopicName) -> None:
    topic, other = new_topic(), new_topic()
    group = f"group-of-{topic}"
    ottla(bootstrap, "produce", topic, stdin="1\n2\n3\n")
    read = ("consume", topic, other, "--group", group, "--from-beginning", "--max-messages")
    assert ottla(bootstrap, *read, "2").stdout == b"1\n2\n"
    ottla(bootstrap, "produce", other, stdin="4\n")
    assert sorted(ottla(bootstrap, *read, "2", "--show", "topic,value").stdout.decode().splitlines()) == sorted(
        [f"Topic:{topic}\t3", f"Topic:{other}\t4"]
    )


def test_records_are_deleted_up_to_an_offset(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    ottla(bootstrap, "produce", topic, stdin="1\n2\n3\n")
    deletion = ("topic", "delete-records", topic, "--before-offset", "2")
    assert b"nothing was changed" in ottla(bootstrap, *deletion).stderr
    assert consume(bootstrap, topic) == "1\n2\n3\n"
    ottla(bootstrap, *deletion, "--execute")
    assert consume(bootstrap, topic) == "3\n"
    shown = json.loads(ottla(bootstrap, "topic", "offsets", topic, "--json").stdout)
    assert (shown["start_offset"], shown["end_offset"], shown["records"]) == (2, 3, 1)


def test_settings_of_a_topic_are_set_shown_and_deleted(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    config = ("config", "show", "--topic", topic)
    assert ottla(bootstrap, "config", "set", "--topic", topic, "retention.ms=5000").stdout.decode() == (
        f"set retention.ms of topic {topic}\n"
    )
    shown = json.loads(ottla(bootstrap, *config, "retention.ms", "--json").stdout)
    assert (shown["key"], shown["value"], shown["source"]) == ("retention.ms", "5000", "dynamic_topic")
    ottla(bootstrap, "config", "delete", "--topic", topic, "retention.ms")
    assert b"retention.ms" not in ottla(bootstrap, *config).stdout
    assert b"retention.ms" in ottla(bootstrap, *config, "--all").stdout
    refused = ottla(bootstrap, "config", "delete", "--topic", topic, "retention.sm", status=1)
    assert b"has no setting 'retention.sm'\nhint: did you mean retention.ms?" in refused.stderr


def test_top_shows_the_topics_and_the_lag_of_groups(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    group = f"group-of-{topic}"
    ottla(bootstrap, "produce", topic, stdin="1\n2\n3\n")
    ottla(bootstrap, "consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    shown = json.loads(ottla(bootstrap, "top", "--count", "1", "--every", "100ms", "--json").stdout)
    assert {"topic": topic, "partitions_count": 1, "records_s": 0.0} in shown["topics"]
    assert {"group": group, "topic": topic, "records_s": 0.0, "lag_records": 2} in shown["groups"]

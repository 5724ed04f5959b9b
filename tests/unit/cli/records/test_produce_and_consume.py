"""The verbs with click's runner, against brokers in memory; as processes they are tested in tests/integration."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.records import consume, produce
from ottla.cli.topic import verb as topic
from ottla.client.fetching.fetch_requests import FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import CONTROL_BIT, HEADER, LENGTH_AT, read_header
from ottla.records.record import Record, decode_batch
from tests.malformed_batches import SHAPES, malformed_batch
from tests.unit.client.fake_cluster import FakeCluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    fake.add_topic("t", 1, 1)

    def open_cluster(bootstrap: str, client_id: str, waiting: object = None) -> Cluster:
        return fake.client()

    monkeypatch.setattr(produce, "open_cluster", open_cluster)
    monkeypatch.setattr(consume, "open_cluster", open_cluster)
    return fake


def run_produce(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(produce.command, list(arguments), input=stdin)


def run_consume(*arguments: str) -> Result:
    return CliRunner().invoke(consume.command, list(arguments))


def test_produce_puts_lines_into_the_partition_that_is_named(fake: FakeCluster) -> None:
    done = run_produce("t", "--partition", "1", "--key", "k", "--timestamp", "5", "--header", "a=b=c", stdin="x\ny\n")
    assert done.exit_code == 0, done.output
    assert fake.partitions[P1].records() == [
        Record(0, 5, b"k", b"x", (("a", b"b=c"),)),
        Record(1, 5, b"k", b"y", (("a", b"b=c"),)),
    ]


def test_produce_takes_what_a_json_line_says(fake: FakeCluster) -> None:
    line = {"key": "k", "value": None, "timestamp_ms": 9, "partition": 1, "headers": [{"name": "h", "value": "v"}]}
    assert run_produce("t", "--json", stdin=json.dumps(line) + "\n").exit_code == 0
    assert fake.partitions[P1].records() == [Record(0, 9, b"k", None, (("h", b"v"),))]


def test_produce_tells_on_the_error_stream_where_batches_are(fake: FakeCluster) -> None:
    done = run_produce("t", "--partition", "0", "-v", "--batch-size", "1", stdin="a\nb\n")
    assert done.stderr.splitlines() == [
        "t-0: acknowledged 1 record offsets 0 to 0",
        "t-0: acknowledged 1 record offsets 1 to 1",
    ]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "Name a topic"),
        (["t", "--topic", "u"], "Two topics"),
        (["t", "--acks", "2"], "--acks"),
        (["t", "--property", "parse.kye=true"], "Did you mean parse.key"),
        (["t", "--property", "parse.key=maybe"], "true or false"),
        (["t", "--property", "parse.key"], "KEY=VALUE"),
        (["t", "--header", "name"], "KEY=VALUE"),
        (["t", "--timestamp", str(1 << 63)], "--timestamp"),
        (["t", "--key-separator", ""], "empty"),
        (["t", "--json", "--key-separator", ":"], "--json"),
    ],
)
def test_produce_refuses_flags_that_cannot_be(arguments: list[str], what: str) -> None:
    done = run_produce(*arguments)
    assert done.exit_code == 2
    assert what in done.output


def test_produce_with_an_empty_transactional_id_writes_nothing(fake: FakeCluster) -> None:
    done = run_produce("t", "--transactional-id", "", stdin="x\n")
    assert done.exit_code == 2
    assert "--transactional-id is empty" in done.output
    assert not fake.partitions[P0].records()


def fill(fake: FakeCluster, partition: TopicPartition, *values: bytes) -> None:
    fake.partitions[partition].append(build_batch([Record(0, 1000, b"k", value) for value in values]))


def test_consume_shows_the_records_of_all_partitions(fake: FakeCluster) -> None:
    fill(fake, P0, b"a", b"b")
    fill(fake, P1, b"c")
    done = run_consume("t", "--offset", "0", "--max-messages", "3", "--show", "partition,offset,value")
    assert sorted(done.stdout.splitlines()) == [
        "Partition:0\tOffset:0\ta",
        "Partition:0\tOffset:1\tb",
        "Partition:1\tOffset:0\tc",
    ]


def test_consume_begins_inside_a_batch_and_ends_after_so_many(fake: FakeCluster) -> None:
    fill(fake, P0, b"a", b"b", b"c", b"d")
    done = run_consume("t", "--partition", "0", "--offset", "1", "--max-messages", "2")
    assert done.stdout == "b\nc\n"


def test_consume_ends_when_nothing_has_come_for_so_long(fake: FakeCluster) -> None:
    fill(fake, P0, b"a")
    started_ms = fake.clock.monotonic_ms()
    done = run_consume("t", "--partition", "0", "--offset", "0", "--timeout-ms", "5000")
    assert (done.exit_code, done.stdout) == (0, "a\n")
    assert 5000 <= fake.clock.monotonic_ms() - started_ms < 7000


def test_consume_starts_at_a_time_or_so_many_before_the_end(fake: FakeCluster) -> None:
    for time_ms in (1000, 2000, 3000):
        fake.partitions[P0].append(build_batch([Record(0, time_ms, b"k", str(time_ms).encode())]))
    read = ("t", "--partition", "0", "--until-end", "--offset")
    assert run_consume(*read, "@1970-01-01T00:00:02").stdout == "2000\n3000\n"
    assert run_consume(*read, "@2000").stdout == "2000\n3000\n"
    assert run_consume(*read, "@3001").stdout == ""
    assert run_consume(*read, "-1").stdout == "3000\n"
    assert run_consume(*read, "-99").stdout == "1000\n2000\n3000\n"


def test_consume_reads_several_topics_and_those_of_a_pattern(fake: FakeCluster) -> None:
    fake.add_topic("u", 1)
    fake.add_topic("v", 1)
    for topic_name in "tuv":
        fill(fake, TopicPartition(topic_name, 0), topic_name.encode())
    read = ("--from-beginning", "--until-end", "--show", "topic,value")
    assert sorted(run_consume("t", "u", *read).stdout.splitlines()) == ["Topic:t\tt", "Topic:u\tu"]
    assert sorted(run_consume("--pattern", "[uv]", *read).stdout.splitlines()) == ["Topic:u\tu", "Topic:v\tv"]
    assert run_consume("--pattern", "none", *read).stdout == ""


def test_consume_writes_the_records_of_its_filters_and_counts_only_these(fake: FakeCluster) -> None:
    fill(fake, P0, b"/jobs/1", b"/in/bob", b"/jobs/2", b"/jobs/3")
    read = ("t", "--partition", "0", "--offset", "0", "--until-end", "--filter", "value=^/jobs")
    assert run_consume(*read, "--max-messages", "2").stdout == "/jobs/1\n/jobs/2\n"
    assert run_consume(*read, "--filter", "value=[23]$").stdout == "/jobs/2\n/jobs/3\n"
    assert run_consume(*read, "--filter", "key=^x").stdout == ""


def test_consume_writes_records_in_the_format_of_kcat(fake: FakeCluster) -> None:
    fake.partitions[P1].append(build_batch([Record(0, 7, None, b"v", (("h", b"x"), ("n", None)))]))
    read = ("t", "--partition", "1", "--offset", "0", "--until-end", "--format")
    assert run_consume(*read, r"%t[%p]@%o %T %K:%k %S:%s %h 100%%\n").stdout == "t[1]@0 7 -1: 1:v h=x,n= 100%\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["t", "--pattern", "u"], "not both"),
        (["--pattern", "("], "--pattern"),
        (["t", "u", "--partition", "0"], "--partition is of one topic"),
        (["t", "--offset", "soon"], "--offset is earliest"),
        (["t", "--offset", "@soon"], "a moment like"),
        (["t", "--offset", "@-soon"], "a duration like"),
        (["t", "--filter", "value"], "--filter takes"),
        (["t", "--filter", "header.=x"], "--filter takes"),
        (["t", "--filter", "value=("], "--filter"),
        (["t", "--format", "%q"], "--format does not know '%q'"),
        (["t", "--format", "%"], "--format does not know '%'"),
        (["t", "--format", "%s", "--show", "key"], "--format has its own"),
        (["t", "--group", "g", "--offset", "5"], "earliest or latest"),
        (["t", "--group", "g", "--until-end"], "--group excludes"),
    ],
)
def test_consume_refuses_flags_that_contradict_each_other(arguments: list[str], what: str) -> None:
    done = run_consume(*arguments)
    assert done.exit_code == 2
    assert what in done.output


def test_consume_does_not_show_control_records(fake: FakeCluster) -> None:
    fake.partitions[P0].append(build_batch([Record(0, 1, b"\0\0\0\1", b"\0\0")], is_control=True))
    fill(fake, P0, b"data")
    assert fake.partitions[P0].batches[0][22] & CONTROL_BIT
    done = run_consume("t", "--partition", "0", "--offset", "0", "--max-messages", "1")
    assert done.stdout == "data\n"


def test_consume_shows_keys_with_their_separator_and_json(fake: FakeCluster) -> None:
    fill(fake, P0, b"v")
    begin = ["t", "--partition", "0", "--offset", "0", "--max-messages", "1"]
    assert run_consume(*begin, "--key-separator", "=").stdout == "k=v\n"
    assert json.loads(run_consume(*begin, "--json").stdout) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 1000,
        "key": "k",
        "value": "v",
        "headers": [],
    }


def test_consume_ends_quietly_when_it_is_interrupted(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(fake, P0, b"v")

    def interrupted(*arguments: object) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.client.fetching.fetcher.Fetcher.poll_each", interrupted)
    done = run_consume("t", "--offset", "0")
    assert (done.exit_code, done.output) == (0, "")


def test_consume_tells_a_damaged_batch(fake: FakeCluster) -> None:
    fill(fake, P0, b"v")
    damaged = bytearray(fake.partitions[P0].batches[0])
    damaged[-2] ^= 0xFF
    fake.partitions[P0].batches = [bytes(damaged)]
    done = run_consume("t", "--partition", "0", "--offset", "0")
    assert isinstance(done.exception, OttlaError)
    assert (
        str(done.exception) == "t-0, offset 0: the batch cannot be read: the checksum of the batch at offset 0 is wrong"
    )
    assert done.exception.hint is not None
    assert "ottla log verify --deep" in done.exception.hint
    assert "ottla log repair" in done.exception.hint
    # A head that cannot be is found before the records are looked at.
    damaged[11] = 0
    fake.partitions[P0].batches = [bytes(damaged)]
    done = run_consume("t", "--partition", "0", "--offset", "0")
    assert isinstance(done.exception, OttlaError)
    assert "ottla log repair" in (done.exception.hint or "")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "Name a topic"),
        (["t", "--from-beginning", "--offset", "3"], "exclude each other"),
        (["t", "--offset", "soon"], "--offset is"),
        (["t", "--offset", str(1 << 63)], "--offset is"),
        (["t", "--show", "key,valve"], "Did you mean value"),
        (["t", "--property", "print.kez=true"], "Did you mean print.key"),
        (["t", "--max-messages", "-1"], "--max-messages"),
    ],
)
def test_consume_refuses_flags_that_cannot_be(arguments: list[str], what: str) -> None:
    done = run_consume(*arguments)
    assert done.exit_code == 2
    assert what in done.output


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["create"], "at least one topic"),
        (["create", "t", "--partitions", "0"], "--partitions"),
        (["create", "t", "--config", "retention.ms"], "KEY=VALUE"),
        (["alter", "t"], "Give a change"),
        (["delete"], "at least one topic"),
    ],
)
def test_topic_refuses_flags_that_cannot_be(arguments: list[str], what: str) -> None:
    done = CliRunner().invoke(topic.command, arguments)
    assert done.exit_code == 2
    assert what in done.output


def test_consume_reads_added_partitions_from_their_start_and_goes_on_in_the_others(fake: FakeCluster) -> None:
    with fake.client() as cluster, Fetcher(cluster, {P0: 7}) as fetcher:
        known, wanted = {P0: 7}, [P0]
        consume._seek_added(cluster, fetcher, ["t"], wanted, known)
        assert dict(fetcher.positions) == {P0: 7}, "the topic is not waited for"
        cluster.refresh(["t"])
        for _ in range(2):
            consume._seek_added(cluster, fetcher, ["t"], wanted, known)
            assert dict(fetcher.positions) == {P0: 7, P1: 0}
            fetcher.seek(P1, 0)


@pytest.mark.parametrize("area", SHAPES.values(), ids=SHAPES)
def test_consume_leaves_out_a_batch_that_cannot_be_read_when_it_is_told_to(fake: FakeCluster, area: bytes) -> None:
    for batch in (build_batch([Record(0, 5, None, b"before")]), malformed_batch(area)):
        fake.partitions[P0].append(batch)
    fake.partitions[P0].append(build_batch([Record(0, 5, None, b"after")]))
    stopped = run_consume("t", "--from-beginning", "--until-end")
    assert isinstance(stopped.exception, OttlaError)
    assert str(stopped.exception).startswith("t-0, offsets 1 to 3: the batch cannot be read: ")
    assert "--skip-unreadable" in (stopped.exception.hint or "")
    done = run_consume("t", "--from-beginning", "--until-end", "--skip-unreadable")
    assert done.exit_code == 0, done.output
    assert done.stdout == "before\nafter\n"
    assert done.stderr.startswith("note: t-0, offsets 1 to 3: the batch cannot be read and is left out: ")


def test_consume_leaves_out_a_batch_that_decompresses_to_too_much(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.records.record.decode_batch", partial(decode_batch, size_bytes_max=1_000))
    for value in (b"before", b"x" * 10_000, b"after"):
        fake.partitions[P0].append(build_batch([Record(0, 5, None, value)], codec=Codec.ZSTD))
    stopped = run_consume("t", "--from-beginning", "--until-end")
    assert isinstance(stopped.exception, OttlaError)
    assert "--skip-unreadable" in (stopped.exception.hint or "")
    done = run_consume("t", "--from-beginning", "--until-end", "--skip-unreadable")
    assert (done.exit_code, done.stdout) == (0, "before\nafter\n")
    assert done.stderr.startswith("note: t-0, offset 1: the batch cannot be read and is left out: ")


def test_consume_hints_at_no_flag_that_does_not_get_behind_the_damage(fake: FakeCluster) -> None:
    batch = build_batch([Record(0, 5, None, b"v")])
    batch[LENGTH_AT : LENGTH_AT + 4] = bytes(4)
    fake.partitions[P0].batches = [bytes(batch)]
    done = run_consume("t", "--partition", "0", "--offset", "0", "--skip-unreadable")
    assert isinstance(done.exception, OttlaError)
    assert "log repair" in (done.exception.hint or "")
    assert "--skip-unreadable" not in (done.exception.hint or "")


def with_claim(batch: bytes, last_offset_delta: int) -> bytes:
    """As damage on a disk has it: the checksum is of what was written."""
    header = read_header(memoryview(batch))._replace(last_offset_delta=last_offset_delta)
    return HEADER.pack(*header) + batch[HEADER.size :]


def test_consume_follows_no_damaged_batch_out_of_the_log(fake: FakeCluster) -> None:
    fill(fake, P0, b"first")
    fill(fake, P0, b"damaged")
    batches = fake.partitions[P0].batches
    batches[1] = with_claim(batches[1], 100_000)
    done = run_consume("t", "--from-beginning", "--skip-unreadable", "--max-messages", "5")
    assert isinstance(done.exception, OttlaError), "it began again at the oldest record, and again"
    assert "offsets 1 to 100001: the batch cannot be read, and the log ends at offset 2" in str(done.exception)
    assert done.stdout == "first\n"


def test_consume_leaves_out_no_readable_record_with_a_damaged_batch(fake: FakeCluster) -> None:
    # The next batch comes with the next fetch.
    fill(fake, P0, b"x" * (FetchLimits().partition_max_bytes - 100))
    fill(fake, P0, b"second", b"third")
    batches = fake.partitions[P0].batches
    batches[0] = with_claim(batches[0], 1)
    done = run_consume("t", "--from-beginning", "--skip-unreadable", "--timeout-ms", "1000")
    assert isinstance(done.exception, OttlaError)
    assert "does not end at offset 1: 1 is in the next one" in str(done.exception)
    assert "start after the damage with --offset" in (done.exception.hint or "")


def test_consume_outlasts_a_broker_that_is_away_for_minutes(fake: FakeCluster) -> None:
    fill(fake, P0, b"first")
    broker, back_ms = fake.brokers[1], fake.clock.monotonic_ms() + 300_000

    def sleep(seconds: float) -> None:
        fake.clock.advance(max(1, round(seconds * 1000)))
        if broker.is_down and fake.clock.monotonic_ms() > back_ms:
            broker.is_down = False
            fill(fake, P0, b"second")

    def goes_away(api: ApiKey) -> None:
        if api is ApiKey.FETCH and fake.clock.monotonic_ms() < back_ms and fetches.pop():
            broker.stop()

    fetches = [True, False]
    broker.fault_of = goes_away
    fake.sleep = sleep  # type: ignore[method-assign]
    done = run_consume("t", "--from-beginning", "--max-messages", "2")
    assert (done.exit_code, done.stdout) == (0, "first\nsecond\n"), done.exception
    assert fake.clock.monotonic_ms() > back_ms


def test_consume_says_that_an_offset_behind_the_end_is_not_there(fake: FakeCluster) -> None:
    fill(fake, P0, b"v")
    done = run_consume("t", "--offset", "99999", "--until-end")
    assert isinstance(done.exception, OffsetOutOfRange)
    assert "offset 99999 is not in the log" in str(done.exception)
    done = run_consume("t", "--offset", "1", "--until-end")
    assert done.exit_code == 0, "nothing follows, and that is the end"
    assert "note: t-1: offset 1 is not in the log, which ends at 0" in done.stderr


def test_consume_goes_on_in_other_partitions_while_one_is_refused(fake: FakeCluster) -> None:
    fill(fake, P0, b"first")
    fill(fake, P1, b"second")
    refusals = iter([ErrorCode.KAFKA_STORAGE_ERROR] * 40)
    fake.brokers[1].error_of = lambda _, partition: next(refusals, None) if partition == P1 else None
    done = run_consume("t", "--from-beginning", "--max-messages", "2")
    assert (done.exit_code, done.stdout) == (0, "first\nsecond\n")
    assert next(refusals, None) is None, "it waited for the refused partition"


def test_produce_reads_a_file_and_shows_how_far_it_is(fake: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\nlast")
    done = run_produce("t", "--partition", "0", "--file", str(path))
    assert done.exit_code == 0, done.output
    assert [record.value for record in fake.partitions[P0].records()] == [b"a", b"b", b"last"]
    assert done.stdout == ""
    missing = run_produce("t", "--file", str(tmp_path / "gone"))
    assert isinstance(missing.exception, FileNotFoundError)


def test_progress_of_a_file_has_a_share_where_its_size_is_known() -> None:
    assert produce.file_progress(1, 1 << 20, 4 << 20) == "1 record, 1.0 MiB, 25 %"
    assert produce.file_progress(2_000, 5 << 20, 4 << 20) == "2,000 records, 5.0 MiB"

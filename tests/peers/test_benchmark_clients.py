"""The study of Python's clients: its checksums, its table, and that every client sends and reads the same messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.client.contenders.confluent import open_consumer
from bench.client.contenders.loads import Latencies, NotWhole, check_whole
from bench.client.contenders.names import CONFLUENT, CONSUME, FILL, LATENCY, PACE, PRODUCE, WAYS, Way
from bench.client.job import PLAIN, Job, run_job
from bench.client.matrix import FULL, OTHER_WAYS, Shape
from bench.client.table import Ratio, client_table, ratio
from bench.client.values import VALUES_COUNT, checksum_of, values_of
from bench.peers.ottla import OttlaPeer, start_ottla
from bench.raw_client.load import LoadFailed
from bench.scenarios.topics import count_records, create_topic
from bench.study import ROUND, Observed


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaPeer]:
    with start_ottla("os", tmp_path_factory.mktemp("clients"), {"group.initial.rebalance.delay.ms": "0"}) as peer:
        yield peer


def job(
    way: Way,
    topic: str,
    *,
    port: int = 1,
    codec: str = PLAIN,
    partitions: int = 1,
    seconds: float = 0,
    messages: int = 0,
) -> Job:
    return Job(
        contender=way.module.rpartition(".")[2],
        module=way.module,
        function=way.function,
        bootstrap=f"127.0.0.1:{port}",
        topic=topic,
        value_bytes=100,
        codec=codec,
        partitions=partitions,
        seconds=seconds,
        messages=messages,
    )


def read_values(broker: OttlaPeer, topic: str, count: int) -> list[bytes]:
    consumer = open_consumer(job(WAYS[CONSUME][CONFLUENT], topic, port=broker.port))
    values = [message.value() for message in consumer.consume(count, 60)]
    consumer.close()
    return sorted(values)


def observed_rates(**rates: list[float]) -> Observed:
    observed = Observed({})
    for contender, values in rates.items():
        for index, value in enumerate(values):
            figures = {"messages_per_s": value, "cpu_us_per_message": 1.0, "peak_mb": 30.0, ROUND: index}
            observed.add("produce-200-plain-p1", contender.replace("_", "-"), figures)
    return observed


def test_checksum_covers_the_values_in_order_and_repeated() -> None:
    values = values_of(100)
    sent = VALUES_COUNT + 3
    assert checksum_of(100, sent) == sum(values[index % VALUES_COUNT][-1] for index in range(sent))
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == VALUES_COUNT


def test_consumer_that_missed_a_message_or_read_another_value_is_refused() -> None:
    read = job(WAYS[CONSUME][CONFLUENT], "whole", messages=10)
    checksum = checksum_of(100, 10)
    check_whole(read, 10, checksum)
    for seen, wrong in ((9, checksum), (11, checksum), (10, checksum + 1)):
        with pytest.raises(NotWhole, match="10 with"):
            check_whole(read, seen, wrong)


def test_latencies_count_only_messages_sent_after_the_consumer_had_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr("bench.client.contenders.loads.time.monotonic_ns", lambda: now_ns)
    latencies = Latencies(job(WAYS[LATENCY][CONFLUENT], "late", seconds=1, messages=3))
    sent = []
    for sent_ms, received_ms in ((0, 500), (600, 1400), (1500, 1502)):
        now_ns = sent_ms * 1_000_000
        stamp = Latencies.stamp()
        now_ns = received_ms * 1_000_000
        sent.append(latencies.note(stamp + bytes(92)))
    assert sent == [False, False, True]
    figures = latencies.figures()
    assert (figures["messages"], figures["p50_ms"], figures["p99_ms"]) == (1, 2.0, 2.0)


def test_ratio_is_the_median_of_the_rounds_that_both_have() -> None:
    observed = observed_rates(ottla=[100.0, 300.0, 900.0], confluent_kafka=[100.0, 100.0])
    assert ratio(observed, "produce-200-plain-p1", Ratio("ottla", "confluent-kafka", 1.0)) == 2.0
    assert ratio(observed, "produce-200-plain-p1", Ratio("ottla", "aiokafka", 1.0)) is None


def test_table_shows_ratios_and_marks_those_that_miss_their_aim() -> None:
    observed = observed_rates(ottla=[150.0, 150.0], confluent_kafka=[100.0, 100.0], aiokafka=[60.0, 75.0])
    row = next(line for line in client_table(observed).splitlines() if line.startswith("| 200 B, plain, 1 partition"))
    assert row == "| 200 B, plain, 1 partition | 150 | - | 100 | - | 67.5 (60..75) | 1.50x | - | - | **2.25x** |"


def test_table_has_the_papers_own_figures() -> None:
    lines = client_table(observed_rates(ottla=[1.0])).splitlines()
    assert any(line.startswith("| the paper, 200 B | 50,000 | 400,000 |") for line in lines)


def test_other_ways_are_measured_at_the_papers_size_only() -> None:
    usual, other = Shape(200, PLAIN, 1), Shape(200, PLAIN, 8)
    for mode in (PRODUCE, CONSUME):
        assert usual.contenders(mode) == list(WAYS[mode])
        assert not OTHER_WAYS & set(other.contenders(mode))
    assert usual in set(FULL.shapes())


@pytest.mark.parametrize("codec", [PLAIN, "lz4", "zstd"])
@pytest.mark.parametrize("name", sorted(WAYS[PRODUCE]))
def test_each_client_sends_the_values_in_turn(name: str, codec: str, broker: OttlaPeer) -> None:
    topic = f"sent-{name}-{codec}"
    create_topic(broker, topic, 2)
    sending = job(WAYS[PRODUCE][name], topic, port=broker.port, codec=codec, partitions=2, seconds=0.01)
    sent = round(run_job(sending)["messages"])
    values = values_of(100)
    assert sent > 0
    assert read_values(broker, topic, sent + 1) == sorted(
        [values[0], *(values[index % VALUES_COUNT] for index in range(sent))]
    )
    assert count_records(broker, topic, 2) == sent + 1


@pytest.mark.parametrize("name", sorted(WAYS[CONSUME]))
def test_each_client_reads_a_topic_whole(name: str, broker: OttlaPeer) -> None:
    topic, messages = f"read-{name}", 3000
    create_topic(broker, topic, 2)
    run_job(job(FILL, topic, port=broker.port, codec="zstd", partitions=2, messages=messages))
    read = job(WAYS[CONSUME][name], topic, port=broker.port, codec="zstd", partitions=2, messages=messages)
    assert run_job(read)["messages"] == messages


def test_failing_client_reports_the_reason(broker: OttlaPeer) -> None:
    with pytest.raises(LoadFailed, match="no_such_function"):
        run_job(job(Way("bench.client.contenders.confluent", "no_such_function"), "t", port=broker.port))


def test_paced_producer_stamps_each_message(broker: OttlaPeer) -> None:
    create_topic(broker, "paced", 1)
    run_job(job(PACE, "paced", port=broker.port, seconds=0.2, messages=500))
    assert count_records(broker, "paced", 1) == 100

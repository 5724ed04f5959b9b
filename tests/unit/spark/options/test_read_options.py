from __future__ import annotations

import pytest

from ottla.client.fetching.offsets import IsolationLevel
from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import COMMON_WITHOUT_EFFECT
from ottla.spark.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    from_dict,
    to_dict,
)
from ottla.spark.options.read_options import (
    READS_WITHOUT_EFFECT,
    Assigned,
    OnLoss,
    TopicPattern,
    Topics,
    TriggerLimits,
    parse_read_options,
)

READ_COMMITTED = IsolationLevel.READ_COMMITTED
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}


def problem(options: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(SparkOptionError) as caught:
        parse_read_options(options, is_stream=is_stream)
    return str(caught.value)


def test_batch_reads_everything_that_is_there_by_default() -> None:
    options = parse_read_options(BASE, is_stream=False)
    assert options.starting == AtOffset(EARLIEST)
    assert options.ending == AtOffset(LATEST)
    assert options.fails_on_data_loss


def test_stream_starts_at_the_latest_offset_by_default() -> None:
    assert parse_read_options(BASE, is_stream=True).starting == AtOffset(LATEST)


@pytest.mark.parametrize(
    "name", ["kafka.bootstrap.servers", "bootstrap.servers", "bootstrapServers", "BOOTSTRAPSERVERS"]
)
def test_bootstrap_has_three_names_in_any_case(name: str) -> None:
    options = parse_read_options({name: "a:1, b:2", "subscribe": "clicks"}, is_stream=False)
    assert options.connection.bootstrap == "a:1, b:2"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscrbe": "clicks"}, "the option 'subscrbe' is unknown here; did you mean 'subscribe'?"),
        ({"subscribePatern": "c.*"}, "the option 'subscribepatern' is unknown here; did you mean 'subscribePattern'?"),
        ({"topic": "clicks"}, "none of the options 'subscribe', 'subscribePattern' and 'assign' is given"),
        (
            {"bootstrapServer": "a:1"},
            "the option 'bootstrapserver' is unknown here; did you mean 'bootstrapServers'?",
        ),
        ({"kafka.ssl.truststore.location": "ca.pem"}, "the option 'kafka.bootstrap.servers' is missing"),
    ],
)
def test_misspelt_name_of_a_required_option_is_reported_with_the_right_one(
    options: dict[str, str], expected: str
) -> None:
    has_address = not any(name.startswith(("bootstrap", "kafka.")) for name in options)
    address = {"kafka.bootstrap.servers": "a:1"} if has_address else {"subscribe": "clicks"}
    assert problem({**address, **options}).startswith(expected)


def test_subscriptions_take_topics_a_pattern_or_partitions() -> None:
    server = {"kafka.bootstrap.servers": "localhost:9092"}
    assert parse_read_options(server | {"subscribe": "b, a,b"}, is_stream=False).subscription == Topics(("b", "a"))
    assert parse_read_options(server | {"subscribePattern": "click.*"}, is_stream=False).subscription == TopicPattern(
        "click.*"
    )
    assert parse_read_options(server | {"assign": '{"t": [1, 0]}'}, is_stream=False).subscription == Assigned(
        (TopicPartition("t", 0), TopicPartition("t", 1))
    )


def test_offsets_come_as_words_json_or_timestamps() -> None:
    def starting(name: str, value: str) -> object:
        return parse_read_options(BASE | {name: value}, is_stream=False).starting

    assert starting("startingOffsets", "Earliest") == AtOffset(EARLIEST)
    assert starting("startingOffsets", '{"clicks": {"0": 5, "1": -2}}') == AtOffsets(
        "startingOffsets", {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): EARLIEST}
    )
    assert starting("startingTimestamp", "1000") == AtTimestamp("startingTimestamp", 1000)
    assert starting("startingOffsetsByTimestamp", '{"clicks": {"0": 7}}') == AtTimestamps(
        "startingOffsetsByTimestamp", {TopicPartition("clicks", 0): 7}
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "'subscribe'"),
        (BASE | {"bootstrap.servers": "b:1"}, "'bootstrap.servers' contradict"),
        ({"kafka.bootstrap.servers": "localhost:port", "subscribe": "t"}, "'kafka.bootstrap.servers'"),
        (BASE | {"assign": '{"t": [0]}'}, "'subscribe' and 'assign' contradict"),
        (BASE | {"subscribe": "bad/name"}, "bad/name"),
        (BASE | {"subscribe": " , "}, "'subscribe' names no topic"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "'subscribePattern'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t": 0}'}, "'assign'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"t": [-1]}'}, "'assign'"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "t"}, "'assign'"),
        (BASE | {"startingOffsets": "latest"}, "'startingOffsets' cannot be latest"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -1}}'}, "'startingOffsets' cannot have -1"),
        (BASE | {"startingOffsets": '{"clicks": {"0": -3}}'}, "-3"),
        (BASE | {"startingOffsets": '{"clicks": {"0": true}}'}, "True"),
        (BASE | {"startingOffsets": '{"clicks": {"x": 1}}'}, "'x'"),
        (BASE | {"startingOffsets": '{"clicks": 1}'}, "'clicks' holds no partitions"),
        (BASE | {"startingOffsets": "{"}, "not JSON"),
        (BASE | {"startingOffsets": "newest"}, "'newest'"),
        (BASE | {"startingOffsets": "earliest", "startingTimestamp": "5"}, "'startingOffsets' and 'startingTimestamp'"),
        (BASE | {"startingTimestamp": "yesterday"}, "'startingTimestamp'"),
        (BASE | {"endingOffsets": "earliest"}, "'endingOffsets' cannot be earliest"),
        (BASE | {"endingOffsets": '{"clicks": {"0": -2}}'}, "'endingOffsets' cannot have -2"),
        (BASE | {"minPartitions": "0"}, "'minPartitions' is 0"),
        (BASE | {"minPartitions": "many"}, "'minPartitions' is 'many'"),
        (BASE | {"failOnDataLoss": "perhaps"}, "'failOnDataLoss' cannot be 'perhaps'"),
        (BASE | {"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' does not apply to a batch"),
        (BASE | {"includeHeaders": "1"}, "'includeHeaders' cannot be '1'"),
        (BASE | {"kafka.group.id": "g"}, "'kafka.group.id' is not offered"),
        (BASE | {"startingOfsets": "earliest"}, "'startingofsets' is unknown"),
        (BASE | {"startingOffsets": "group"}, "name the group with 'groupId'"),
        (BASE | {"endingOffsets": "group", "groupId": "g"}, "'endingOffsets' is 'group'"),
        (BASE | {"groupId": " "}, "'groupId' is empty"),
        (BASE | {"onDataLoss": "skip"}, "'onDataLoss' cannot be 'skip'"),
        (BASE | {"onDataLoss": "record", "failOnDataLoss": "false"}, "'failOnDataLoss' and 'onDataLoss' contradict"),
        (BASE | {"lostOffsetsTopic": "no/name"}, "'lostOffsetsTopic'"),
        (BASE | {"maxTriggerDelay": "1m"}, "'maxTriggerDelay' works only with"),
        (BASE | {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "'maxTriggerDelay' is 'soon'"),
        (BASE | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than 'maxOffsetsPerTrigger'"),
        (BASE | {"maxRecordsPerPartition": "0"}, "'maxRecordsPerPartition' is 0"),
        (BASE | {"startingOffsetsByTimestampStrategy": "never"}, "'startingOffsetsByTimestampStrategy'"),
        (BASE | {"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        (BASE | {"kafka.enable.auto.commit": "true"}, "'kafka.enable.auto.commit' cannot be 'true'"),
        (BASE | {"kafka.ssl.truststore.location": "/x"}, "set security.protocol to SSL"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], named: str) -> None:
    assert named in problem(options)


def test_an_unknown_option_gets_the_nearest_name_as_hint() -> None:
    with pytest.raises(SparkOptionError) as caught:
        parse_read_options(BASE | {"startingOfsets": "earliest"}, is_stream=False)
    assert caught.value.hint == "did you mean 'startingOffsets'?"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5", "endingOffsetsByTimestamp": '{"clicks": {"0": 1}}'}
    assert name in problem(BASE | {name: value[name]}, is_stream=True)


def test_offsets_survive_the_checkpoint() -> None:
    offsets = {TopicPartition("b", 10): 7, TopicPartition("a", 0): 2**62, TopicPartition("b", 2): 0}
    nested = to_dict(offsets)
    assert nested == {"a": {"0": 2**62}, "b": {"2": 0, "10": 7}}
    assert from_dict(nested) == offsets


def test_limits_and_their_times_are_parsed() -> None:
    options = BASE | {
        "MAXOFFSETSPERTRIGGER": "50",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "2m",
        "maxBytesPerTrigger": "1000",
        "maxOffsetsPerPartition": "7",
    }
    limits = parse_read_options(options, is_stream=True).limits
    assert limits == TriggerLimits(50, 1000, 7, 5, 120_000)


def test_a_start_at_a_groups_offsets_names_the_group() -> None:
    parsed = parse_read_options(BASE | {"startingOffsets": "group", "groupId": "g"}, is_stream=True)
    assert parsed.starting == AtGroup("startingOffsets", "g")
    assert parsed.reader == "g"


@pytest.mark.parametrize(
    ("options", "on_loss"),
    [
        ({}, OnLoss.FAIL),
        ({"failOnDataLoss": "true"}, OnLoss.FAIL),
        ({"failOnDataLoss": "false"}, OnLoss.SKIP),
        ({"onDataLoss": "Fail"}, OnLoss.FAIL),
        ({"onDataLoss": "record"}, OnLoss.RECORD),
        ({"onDataLoss": "ledger"}, OnLoss.RECORD),
    ],
)
def test_what_is_done_about_losses(options: dict[str, str], on_loss: OnLoss) -> None:
    assert parse_read_options(BASE | options, is_stream=True).on_loss is on_loss


def test_topic_of_lost_offsets_has_its_former_name_too() -> None:
    for name in ("lostOffsetsTopic", "ledgerTopic"):
        assert parse_read_options(BASE | {name: "lost"}, is_stream=True).lost_offsets_topic == "lost"
    with pytest.raises(SparkOptionError, match="contradict"):
        parse_read_options(BASE | {"lostOffsetsTopic": "a", "ledgerTopic": "b"}, is_stream=True)


@pytest.mark.parametrize("name", ["isolationLevel", "kafka.isolation.level"])
def test_isolation_level_has_two_names(name: str) -> None:
    assert parse_read_options(BASE, is_stream=True).isolation is IsolationLevel.READ_UNCOMMITTED
    assert parse_read_options({**BASE, name: "read_committed"}, is_stream=True).isolation is READ_COMMITTED
    assert name in problem({**BASE, name: "read_everything"})


def test_isolation_level_is_given_once() -> None:
    both = {"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}
    assert "contradict" in problem({**BASE, **both})


def test_settings_of_the_official_connector_that_change_no_result_are_accepted() -> None:
    harmless = dict.fromkeys(READS_WITHOUT_EFFECT | COMMON_WITHOUT_EFFECT, "1")
    more = {"kafka.client.id": "me", "kafka.security.protocol": "PLAINTEXT", "kafka.enable.auto.commit": "false"}
    assert parse_read_options(BASE | harmless | more, is_stream=False).connection.client_id == "me"

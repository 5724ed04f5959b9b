"""Who is compared, and by which function; a client's module is imported only in the process that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
LATENCY: Final = "latency"

OTTLA: Final = "ottla"
OTTLA_SETS: Final = "ottla-sets"
OTTLA_POLL: Final = "ottla-poll"
OTTLA_MANY: Final = "ottla-poll-many"
CONFLUENT: Final = "confluent-kafka"
CONFLUENT_POLL: Final = "confluent-kafka-poll"
CONFLUENT_LARGE: Final = "confluent-kafka-1mb"
KAFKA_PYTHON: Final = "kafka-python"
KAFKA_PYTHON_ITERATION: Final = "kafka-python-iteration"
AIOKAFKA: Final = "aiokafka"
AIOKAFKA_ITERATION: Final = "aiokafka-iteration"

# They read less of the same messages.
SLOW: Final = frozenset({KAFKA_PYTHON, KAFKA_PYTHON_ITERATION, AIOKAFKA_ITERATION})


class Way(NamedTuple):
    """A function of a module that takes a job and gives its figures."""

    module: str
    function: str


_OTTLA: Final = "bench.client.contenders.ottla_client"
_CONFLUENT: Final = "bench.client.contenders.confluent"
_KAFKA_PYTHON: Final = "bench.client.contenders.kafka_python"
_AIOKAFKA: Final = "bench.client.contenders.aiokafka_client"

# The neutral loads, by which topics are filled and latencies are asked for: the same for all consumers.
FILL: Final = Way(_CONFLUENT, "fill")
PACE: Final = Way(_CONFLUENT, "pace")

WAYS: Final[Mapping[str, Mapping[str, Way]]] = {
    PRODUCE: {
        OTTLA: Way(_OTTLA, "produce"),
        OTTLA_SETS: Way(_OTTLA, "produce_sets"),
        CONFLUENT: Way(_CONFLUENT, "produce"),
        CONFLUENT_POLL: Way(_CONFLUENT, "produce_polling_each"),
        CONFLUENT_LARGE: Way(_CONFLUENT, "produce_large_batches"),
        KAFKA_PYTHON: Way(_KAFKA_PYTHON, "produce"),
        AIOKAFKA: Way(_AIOKAFKA, "produce"),
    },
    CONSUME: {
        OTTLA: Way(_OTTLA, "consume"),
        OTTLA_POLL: Way(_OTTLA, "consume_one_by_one"),
        OTTLA_MANY: Way(_OTTLA, "consume_by_many"),
        CONFLUENT: Way(_CONFLUENT, "consume"),
        CONFLUENT_POLL: Way(_CONFLUENT, "consume_one_by_one"),
        KAFKA_PYTHON: Way(_KAFKA_PYTHON, "consume_by_many"),
        KAFKA_PYTHON_ITERATION: Way(_KAFKA_PYTHON, "consume"),
        AIOKAFKA: Way(_AIOKAFKA, "consume_by_many"),
        AIOKAFKA_ITERATION: Way(_AIOKAFKA, "consume"),
    },
    LATENCY: {
        OTTLA: Way(_OTTLA, "wait_for_each"),
        CONFLUENT: Way(_CONFLUENT, "wait_for_each"),
        KAFKA_PYTHON: Way(_KAFKA_PYTHON, "wait_for_each"),
        AIOKAFKA: Way(_AIOKAFKA, "wait_for_each"),
    },
}

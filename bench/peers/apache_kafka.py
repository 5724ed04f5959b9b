from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.peers.apache_kafka import SERVER_OPTIONS, ApacheKafka

from bench.peers.peer import HOUSEKEEPING
from bench.wire import NO_SETTINGS

NAME: Final = "apache-kafka"


class ApacheKafkaPeer(ApacheKafka):
    """Apache Kafka with its default settings, housekeeping aside."""

    name = NAME
    JVM_OPTIONS = SERVER_OPTIONS
    MAPS_CLASSES = False


@contextmanager
def start_apache_kafka(work_dir: Path, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[ApacheKafkaPeer]:
    with ApacheKafkaPeer(HOUSEKEEPING | dict(settings), parent_dir=work_dir) as kafka:
        assert isinstance(kafka, ApacheKafkaPeer)
        yield kafka

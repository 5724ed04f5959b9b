from __future__ import annotations

import pytest

from ottla.client.wire.errors import BrokerUnreachable
from ottla.spark.options.connection import Connection
from ottla.spark.source.cluster_view import open_cluster


def test_source_says_on_the_error_stream_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ottla.client.wire.waiting.PATIENCE_MS", 0)
    refused = BrokerUnreachable("cannot connect to broker-1:9092: Connection refused")
    with open_cluster(Connection("broker-1:9092")) as cluster:
        for _ in range(3):
            cluster.retrying.on_wait(refused)
    assert capsys.readouterr().err == f"ottla: waiting: {refused}: {refused.hint}\n"

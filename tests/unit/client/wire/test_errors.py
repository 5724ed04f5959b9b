"""The message of an error names its subject once."""

from __future__ import annotations

import pytest

from ottla.client.wire.errors import BrokerRefused
from ottla.model.error_code import ErrorCode


@pytest.mark.parametrize(
    ("subject", "detail", "expected"),
    [
        ("topic t", "there is no topic 't'", "there is no topic 't'"),
        (
            "topic t",
            "retention.ms: 'often' is not a whole number",
            "topic t: retention.ms: 'often' is not a whole number",
        ),
        ("topic t", "The topic t currently has 2 partitions", "The topic t currently has 2 partitions"),
        ("topic t", "Unable to find the topic t.", "Unable to find the topic t."),
        ("topic t", "The topic t.old exists", "topic t: The topic t.old exists"),
        ("topic t", "a topic that is not there", "topic t: a topic that is not there"),
        ("t-0", "Partition t-0 has no leader", "Partition t-0 has no leader"),
        ("t-0", "offset 7 is not in the log", "t-0: offset 7 is not in the log"),
        ("topic t", None, "topic t: the broker answered UNKNOWN_SERVER_ERROR"),
    ],
)
def test_subject_is_named_once(subject: str, detail: str | None, expected: str) -> None:
    refused = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, subject, detail)
    assert str(refused) == expected
    assert refused.subject == subject

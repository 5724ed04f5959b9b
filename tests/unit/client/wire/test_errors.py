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
        ("t-0", "offset 7 is not in the log", "t-0: offset 7 is not in the log"),
        ("topic t", None, "topic t: the broker answered UNKNOWN_SERVER_ERROR"),
    ],
)
def test_subject_is_named_once(subject: str, detail: str | None, expected: str) -> None:
    refused = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, subject, detail)
    assert str(refused) == expected
    assert refused.subject == subject

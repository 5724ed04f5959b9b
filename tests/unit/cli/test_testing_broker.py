"""The topics of `ottla testing`, as they are written on its command line."""

from __future__ import annotations

import click
import pytest

from ottla.cli.testing import topic_counts


def test_topic_has_one_partition_unless_it_says_how_many() -> None:
    assert topic_counts(["orders:3", "payments"]) == {"orders": 3, "payments": 1}


@pytest.mark.parametrize("text", ["orders:", "orders:0", "orders:-1", "orders:many", ":3", ""])
def test_text_that_is_no_topic_is_a_wrong_call(text: str) -> None:
    with pytest.raises(click.UsageError, match="NAME or NAME:PARTITIONS"):
        topic_counts([text])

from __future__ import annotations

import pytest

from website.docstrings import as_markdown, with_members

SETTINGS = """\
Sends messages.  Any number of threads may use it.

acks                   "all" in-sync replicas,
                       1 the leader
linger_ms              a batch is sent after this
transaction_timeout_ms a transaction is aborted after this

Raises ConfigError.
"""


def test_columns_become_a_table() -> None:
    assert as_markdown(SETTINGS) == (
        "Sends messages.  Any number of threads may use it.\n\n"
        "| name | meaning |\n| --- | --- |\n"
        '| `acks` | "all" in-sync replicas, 1 the leader |\n'
        "| `linger_ms` | a batch is sent after this |\n"
        "| `transaction_timeout_ms` | a transaction is aborted after this |\n\n"
        "Raises ConfigError.\n"
    )


def test_names_that_share_a_text_are_one_row() -> None:
    table = as_markdown("key_serializer,    makes bytes\nvalue_serializer   of both")
    assert "| `key_serializer`, `value_serializer` | makes bytes of both |" in table
    long = as_markdown("first   one\nwith_a_name_that_is_long,\nother   as a|b")
    assert "| `with_a_name_that_is_long`, `other` | as a\\|b |" in long


def test_lines_without_a_common_column_are_text() -> None:
    text = "first   one\nand another"
    assert as_markdown(text) == text


def test_sentences_are_no_columns() -> None:
    text = "The first one.  The second one is longer,\nand it ends in the next line.  A third."
    assert as_markdown(text) == text


@pytest.mark.parametrize(
    "code", ["    with opened() as it:\n        use(it)", "delivery = send(1)\ndelivery.wait().offset", "x = {'a': 1}"]
)
def test_code_becomes_a_block(code: str) -> None:
    assert as_markdown(f"Text.\n\n{code}\n\nMore text.").startswith("Text.\n\n```python\n")
    assert as_markdown(f"Text.\n\n{code}\n\nMore text.").endswith("\n```\n\nMore text.")


@pytest.mark.parametrize("text", ["Nothing", "`a` and `b`.", "a, b", "Raises ValueError"])
def test_words_are_no_code(text: str) -> None:
    assert as_markdown(text) == text


def test_members_without_a_text_are_named_at_the_end() -> None:
    assert with_members("What a quota can be for.\n", "Values", ["USER", "IP"]) == (
        "What a quota can be for.\n\nValues: `USER`, `IP`."
    )
    assert with_members("Nothing.", "Values", []) == "Nothing."

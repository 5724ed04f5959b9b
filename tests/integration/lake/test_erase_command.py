"""`ottla lake erase`, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake

from ottla.cli.pipeline.lake import erase
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.dead_letters import DeadLetters
from ottla.dead_letters.topics import SUFFIX, letters_of
from ottla.testing import Namespace, Record, consume_all, produce


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = pa.table({"member": pa.array([7, 8, 7], pa.int64()), "key": [b"a", b"b", b"c"], "offset": [0, 1, 2]})
    write_deltalake(tmp_path / "lake", rows)
    return tmp_path / "lake"


def run(table: Path, *flags: str) -> Result:
    return CliRunner().invoke(erase, ["--target", str(table), *flags])


def keys(table: Path) -> list[bytes]:
    found: list[bytes] = DeltaTable(str(table)).to_pyarrow_table()["key"].to_pylist()
    return sorted(found)


def test_values_have_the_types_of_their_columns(table: Path) -> None:
    done = run(table, "--key", "member=7", "--key", "key=a", "--json")
    assert json.loads(done.stdout) == {"rows": 1, "files": 1, "table_version": 1}
    assert keys(table) == [b"b", b"c"]
    assert "erased 1 row from 1 file" in run(table, "--key", "key=c").stdout
    assert run(table, "--key", "key=c").stdout == "no such rows\n"
    assert keys(table) == [b"b"]


def test_dead_letters_of_a_topic_are_erased_by_the_key_of_the_records(table: Path, namespace: Namespace) -> None:
    topic = namespace.topic("visits")
    produce(topic, [Record(b"x", key=b"a"), Record(b"y", key=b"b")])
    with DeadLetters(topic.bootstrap) as dead_letters:
        dead_letters.put_all([(message, "bad") for message in consume_all(topic, count=2)])
    flags = ("--dead-letters-of", topic, "-b", topic.bootstrap)
    refused = run(table, "--key", "member=7", *flags)
    assert refused.exit_code == 2
    assert "give --key key=VALUE" in refused.output
    done = json.loads(run(table, "--key", "key=a", *flags, "--json").stdout)
    assert (done["rows"], done[f"dead_letters_of_{topic}"]["letters"]) == (1, ["0:0"])
    assert keys(table) == [b"b", b"c"]
    with Cluster(topic.bootstrap) as cluster:
        assert [each.message.key for each in letters_of(cluster, topic + SUFFIX)] == [b"b"]


def test_a_topic_of_which_nothing_was_set_aside_keeps_no_other_letters_and_a_wrong_one_no_rows(
    table: Path, namespace: Namespace
) -> None:
    fine, topic = namespace.topic("fine"), namespace.topic("visits")
    produce(topic, [Record(b"x", key=b"a")])
    with DeadLetters(topic.bootstrap) as dead_letters:
        dead_letters.put_all([(message, "bad") for message in consume_all(topic, count=1)])
    flags = ("--key", "key=a", "-b", topic.bootstrap, "--json", "--dead-letters-of", fine, "--dead-letters-of", topic)
    wrong = run(table, *flags, "--dead-letters-of", namespace.name("no-topic"))
    assert isinstance(wrong.exception, UnknownTopic)
    assert keys(table) == [b"a", b"b", b"c"]
    done = json.loads(run(table, *flags).stdout)
    assert (done["rows"], done[f"dead_letters_of_{fine}"]["letters"]) == (1, [])
    assert done[f"dead_letters_of_{topic}"]["letters"] == ["0:0"]
    with Cluster(topic.bootstrap) as cluster:
        assert not list(letters_of(cluster, topic + SUFFIX))


@pytest.mark.parametrize(
    ("key", "problem"), [("member", "'member' is not COLUMN=VALUE"), ("member=x", "the column is int64")]
)
def test_keys_that_are_none_are_refused(table: Path, key: str, problem: str) -> None:
    refused = run(table, "--key", key)
    assert refused.exit_code == 2
    assert problem in refused.output
    assert len(keys(table)) == 3

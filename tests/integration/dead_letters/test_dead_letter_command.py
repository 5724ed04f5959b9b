"""`ottla dead-letter`: list, show, replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.dead_letters import DeadLetters
from ottla.testing import Namespace, Record, Topic, consume_all, produce
from tests.command_line import Done, ottla


@pytest.fixture
def orders(namespace: Namespace) -> Topic:
    topic = namespace.topic("orders")
    produce(topic, [Record(b"a", key=b"k"), Record(b"\xff", headers=[("own", b"1")]), Record(b"c")])
    first, second, third = consume_all(topic, count=3)
    with DeadLetters(topic.bootstrap, stage="BOOK") as dead_letters:
        dead_letters.put_all([(first, ValueError("no\x1b[31m")), (second, KeyError("euro")), (third, KeyError("euro"))])
    return topic


def run(topic: Topic, verb: str, *arguments: str, status: int = 0) -> Done:
    return ottla("dead-letter", verb, *arguments, "-b", topic.bootstrap, status=status)


def objects(done: Done) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_list_shows_origin_error_and_whether_it_was_put_back(orders: Topic) -> None:
    run(orders, "replay", orders, "--letter", "0:1")
    head, *lines = run(orders, "list", orders).out.splitlines()
    assert head.split() == ["LETTER", "ORIGIN", "SET-ASIDE", "BACK", "STAGE", "ERROR"]
    shown = [line.split(maxsplit=5) for line in lines]
    assert [(each[0], each[1], each[3], each[4]) for each in shown] == [
        ("0:0", f"{orders}-0@0", "no", "BOOK"),
        ("0:1", f"{orders}-0@1", "yes", "BOOK"),
        ("0:2", f"{orders}-0@2", "no", "BOOK"),
    ]
    assert [each[5] for each in shown] == [r"ValueError: no\x1b[31m", "KeyError: 'euro'", "KeyError: 'euro'"]
    some = objects(run(orders, "list", orders, "--error", "KeyError", "--json"))
    assert [(each["letter"], each["put_back"]) for each in some] == [("0:1", True), ("0:2", False)]
    assert objects(run(orders, "list", orders, "--until", "2020-01-01", "--json")) == []
    cut = run(orders, "list", orders, "--limit", "2", "--json")
    assert len(objects(cut)) == 2
    assert "more than 2" in cut.err


def test_show_prints_the_whole_letter(orders: Topic) -> None:
    [found] = objects(run(orders, "show", orders, "0:1", "--json"))
    assert (found["value_base64"], found["headers"]) == ("/w==", [{"name": "own", "value": "1"}])
    assert (found["topic"], found["offset"], found["error_message"]) == (orders, 1, "'euro'")
    assert "error_class: ValueError" in run(orders, "show", orders, "0:0").out.splitlines()
    assert "no record at offset 9" in run(orders, "show", orders, "0:9", status=1).err
    assert "PARTITION:OFFSET" in run(orders, "show", orders, "nine", status=2).err


def test_replay_puts_back_letters_selected_by_flags_and_file(orders: Topic, tmp_path: Path) -> None:
    dry = run(orders, "replay", orders, "--dry-run")
    assert dry.out == "would put 3 records back\n"
    config = tmp_path / "job.toml"
    config.write_text('[dead-letter.replay]\nerror = "KeyError"\n')
    [outcome] = objects(run(orders, "replay", orders, "--config", str(config), "--json"))
    assert outcome == {"put_back": 2, "were_back": 0, "left_out": 1, "not_letters": 0, "refused": {}, "dry_run": False}
    assert [message.value for message in consume_all(orders)] == [b"a", b"\xff", b"c", b"\xff", b"c"]
    assert run(orders, "replay", orders).out == "put 1 record back, 2 were back before\n"


def test_replay_reports_letters_that_cannot_be_put_back_and_fails(orders: Topic, namespace: Namespace) -> None:
    done = run(orders, "replay", orders, "--to", namespace.name("nowhere"), status=1)
    assert done.out == "put 0 records back\n"
    assert "3 records not put back" in done.err
    assert "does not exist" in done.err


def test_topic_without_letters_is_an_error(namespace: Namespace) -> None:
    topic = namespace.topic("fine")
    done = run(topic, "list", topic, status=1)
    assert f"there is no topic {topic}.dead-letter: nothing of {topic} was set aside" in done.err


def test_erase_shows_what_it_erased_and_what_a_compacted_topic_keeps(orders: Topic, namespace: Namespace) -> None:
    assert run(orders, "erase", orders, "--key", "k", "--dry-run").out == "would erase 1 dead letter: 0:0\n"
    [facts] = objects(run(orders, "erase", orders, "--key", "k", "--json"))
    assert (facts["letters"], facts["rewritten"], facts["left"]) == (["0:0"], 2, [])
    assert run(orders, "erase", orders, "--key", "k").out == "erased 0 dead letters\n"
    compacted = namespace.topic("compacted-letters", configs={"cleanup.policy": "compact"})
    produce(compacted, [Record(b"a", key=b"k")])
    done = run(orders, "erase", orders, "--key", "k", "--dead-letter-topic", compacted, status=1)
    assert "the letter 0:0 still has the key, until compaction removes it: a tombstone" in done.err

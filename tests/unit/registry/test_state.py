"""The state is the same whether records come one by one, are replayed, or were compacted before."""

from __future__ import annotations

import random

import pytest

from ottla.registry import decisions
from ottla.registry.errors import RegistryError
from ottla.registry.records import NoopKey, SchemaKey, encode_key
from ottla.registry.schema import Reference
from ottla.registry.state import RegistryState
from tests.unit.registry.small_registry import DirectAnswers, SmallState, everything, optional, record, schema

SUBJECTS = ("a", "b", "c")
TEXTS = [record("x"), record("x", optional("y")), record("x", "z"), '"int"', '"long"', record(name="Address")]


def random_step(chance: random.Random, small: SmallState) -> None:
    now, subject = small.now, chance.choice(SUBJECTS)
    permanent = chance.random() < 0.5
    match chance.randrange(8):
        case 0 | 1 | 2:
            small.register(subject, chance.choice(TEXTS))
        case 3:
            small.take(decisions.delete_version(now, subject, chance.choice([-1, 1, 2]), permanent=permanent))
        case 4:
            small.take(decisions.delete_subject(now, subject, permanent=permanent))
        case 5:
            scope = chance.choice([None, subject])
            level = chance.choice(["NONE", "BACKWARD", "FULL_TRANSITIVE"])
            small.take(decisions.set_config(now, scope, {"compatibility": level}))
        case 6:
            small.take(decisions.remove_config(now, chance.choice([None, subject])))
        case 7:
            text = record({"name": "home", "type": "Address"}, name="Person")
            small.register(
                subject, text, references=[Reference("Address", chance.choice(SUBJECTS), chance.choice([1, 2]))]
            )


@pytest.mark.parametrize("seed", range(40))
def test_replay_gives_the_state_that_was_seen_live(seed: int) -> None:
    chance, small = random.Random(seed), SmallState()
    done = 0
    for _ in range(60):
        try:
            random_step(chance, small)
        except RegistryError:
            continue
        done += 1
    assert done > 5
    assert everything(small.log.state()) == everything(small.now)
    small.log.compact()
    replayed = small.log.state()
    assert replayed.id_max == small.now.id_max
    assert everything(replayed) == everything(small.now)


def test_largest_id_survives_compaction_in_the_claim() -> None:
    state = RegistryState()
    state.apply(0, encode_key(NoopKey()), b'{"instance":"i","url":"u","idMax":7}', None)
    assert state.id_max == 7
    assert decisions.register(state, "a", schema('"int"'), DirectAnswers()).answer.id == 8


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff", b"{}"),
        (encode_key(SchemaKey("a", 1)), b"{"),
        (encode_key(SchemaKey("a", 1)), b"7"),
        (encode_key(SchemaKey("a", 1)), b'{"subject":"a","version":1}'),
        (encode_key(SchemaKey("a", 1)), b'{"subject":"a","version":1,"id":1,"schema":"","schemaType":"XML"}'),
        (b'{"keytype":"CONTEXT","context":".x","magic":0}', b"{}"),
    ],
)
def test_record_that_cannot_be_read_is_passed_over(key: bytes | None, value: bytes) -> None:
    state = RegistryState()
    state.apply(4, key, value, None)
    assert state.next_offset == 5
    assert state.subjects(deleted=True) == []


def test_records_of_confluents_registry_are_read() -> None:
    state = RegistryState()
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    value = (
        b'{"subject":"a","version":1,"id":1,"md5":"x","schema":"\\"int\\"","deleted":false,'
        b'"ruleSet":{"domainRules":[]},"schemaType":"AVRO","references":[]}'
    )
    state.apply(0, b'{"keytype":"NOOP","magic":0}', None, None)
    state.apply(1, key, value, None)
    [version] = state.versions("a")
    assert (version.id, version.schema.text) == (1, '"int"')
    assert version.others == {"md5": "x", "ruleSet": {"domainRules": []}}
    # Fields that we do not use stay when we write the record again.
    [change] = decisions.delete_version(state, "a", 1, permanent=False).changes
    assert change.value is not None
    assert change.value["ruleSet"] == {"domainRules": []}

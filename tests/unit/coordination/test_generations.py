"""A data directory is the newest one of its broker, or it is stale; its generation in the tree only rises."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.generations import (
    NO_GENERATION,
    NO_VERSION,
    HeldGeneration,
    SeenGeneration,
    generation_write,
    is_stale,
    next_generation,
    read_generation,
)
from ottla.coordination.layout import lay_out
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.tree import BadVersion, NodeExists
from ottla.model.identifiers import NodeId

OWN = UUID(int=7)
OTHER = UUID(int=8)


@pytest.mark.parametrize(
    ("held", "seen", "expected"),
    [
        pytest.param(7, 7, False, id="the newest"),
        pytest.param(8, 7, False, id="its last move was interrupted before the tree's"),
        pytest.param(20, 3, False, id="the tree was restored from an old copy"),
        pytest.param(6, 7, True, id="a copy of before the last move"),
        pytest.param(NO_GENERATION, 1, True, id="a copy of before the first version that counts"),
    ],
)
def test_copy_of_before_the_last_move_is_stale(held: int, seen: int, expected: bool) -> None:
    assert is_stale(HeldGeneration(OWN, held, True), SeenGeneration(OWN, seen)) is expected


@pytest.mark.parametrize("held", [6, 7, 8])
def test_directory_that_another_one_replaced_is_stale_with_any_generation(held: int) -> None:
    assert is_stale(HeldGeneration(OWN, held, True), SeenGeneration(OTHER, 7))


@pytest.mark.parametrize("held", [NO_GENERATION, 6, 8])
def test_directory_that_keeps_nothing_is_never_stale_and_takes_over(held: int) -> None:
    directory, seen = HeldGeneration(OWN, held, False), SeenGeneration(OTHER, 7)
    assert not is_stale(directory, seen)
    assert next_generation(directory, seen) > 7


def test_directory_of_before_the_first_version_that_counts_is_accepted_once() -> None:
    old = HeldGeneration(OWN, NO_GENERATION, True)
    assert not is_stale(old, None)
    generation = next_generation(old, None)
    assert generation > NO_GENERATION
    assert is_stale(old, SeenGeneration(OWN, generation))


def test_each_move_makes_every_former_copy_stale() -> None:
    held, seen = HeldGeneration(OWN, 5, True), SeenGeneration(OWN, 4)
    copy = held
    moved = next_generation(held, seen)
    assert moved > held.generation
    assert is_stale(copy, SeenGeneration(OWN, moved))
    assert not is_stale(HeldGeneration(OWN, moved, True), SeenGeneration(OWN, moved))


async def test_node_is_made_by_the_first_write_and_replaced_only_as_it_was_read(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    tree = await home.connect()
    await lay_out(tree)
    assert await read_generation(tree, NodeId(3)) == (None, NO_VERSION)
    await tree.multi([generation_write(NodeId(3), SeenGeneration(OWN, 1), NO_VERSION)])
    with pytest.raises(NodeExists):
        await tree.multi([generation_write(NodeId(3), SeenGeneration(OTHER, 1), NO_VERSION)])
    seen, version = await read_generation(tree, NodeId(3))
    assert seen == SeenGeneration(OWN, 1)
    await tree.multi([generation_write(NodeId(3), SeenGeneration(OWN, 2), version)])
    with pytest.raises(BadVersion):
        await tree.multi([generation_write(NodeId(3), SeenGeneration(OTHER, 2), version)])
    assert (await read_generation(tree, NodeId(3))).seen == SeenGeneration(OWN, 2)
    assert await read_generation(tree, NodeId(2)) == (None, NO_VERSION)
    await home.close()


async def test_damaged_node_is_an_error_that_names_it(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    tree = await home.connect()
    await lay_out(tree)
    await tree.create("/brokers/generations/3", b'{"version":1,"generation":"7","directory_id":""}')
    with pytest.raises(NodeDamaged, match="/brokers/generations/3"):
        await read_generation(tree, NodeId(3))
    await home.close()

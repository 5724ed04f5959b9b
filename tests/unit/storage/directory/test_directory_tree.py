"""A directory whose tree is shared, or is its own again, and what a standalone program reports of it."""

from __future__ import annotations

import pytest

from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_tree import OF_PROCESSES, SHARED, mark_own, mark_shared, require_own_tree
from ottla.storage.errors import ForeignDirectory
from ottla.testing.memory_disk import MemoryDisk

DATA = "/data"


def claimed() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    directory_identity.check_or_write(disk, DATA, 1, "AAAACAAAAAAAAAAAAAAABQ")
    return disk


def hint_of(disk: MemoryDisk, path: str = DATA) -> str | None:
    with pytest.raises(ForeignDirectory) as caught:
        require_own_tree(disk, path)
    return caught.value.hint


def test_tree_is_the_directorys_own_until_it_is_shared_and_afterwards() -> None:
    disk = claimed()
    require_own_tree(disk, DATA)
    mark_shared(disk, DATA, OF_PROCESSES)
    assert directory_tree.shared_home(disk, DATA) == OF_PROCESSES
    mark_own(disk, DATA)
    require_own_tree(disk, DATA)
    assert directory_tree.cluster_id_of(disk, DATA) == "AAAACAAAAAAAAAAAAAAABQ"


def test_hint_names_the_way_to_the_tree_of_each_home() -> None:
    disk = claimed()
    mark_shared(disk, DATA, SHARED)
    assert "--zookeeper" in (hint_of(disk) or "")
    mark_shared(disk, DATA, OF_PROCESSES)
    assert "name the data directory that they have together" in (hint_of(disk) or "")
    disk.make_directory(f"{DATA}/processes")
    assert f"`ottla serve --data-dir {DATA} --processes 1`" in (hint_of(disk) or "")
    further = f"{DATA}/processes/broker-2"
    disk.make_directory(further)
    directory_identity.check_or_write(disk, further, 2, "AAAACAAAAAAAAAAAAAAABQ")
    mark_shared(disk, further, OF_PROCESSES)
    assert f"`ottla serve --data-dir {DATA} --processes 1`" in (hint_of(disk, further) or "")

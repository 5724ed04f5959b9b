from __future__ import annotations

import json

import pytest

from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId
from ottla.model.listener import Listener
from ottla.runtime.disk import read_file, replace_file
from ottla.storage.directory.process_places import (
    BrokerPlace,
    ProcessPlaces,
    place_of,
    read_places,
    remove_places,
    write_places,
)
from ottla.testing.memory_disk import MemoryDisk

PATH = "/data/processes/processes.json"
PLACES = ProcessPlaces(
    (Listener("PLAINTEXT", "127.0.0.1", 9092), Listener("INSIDE", "::1", 9093)),
    (BrokerPlace(NodeId(0), ".", (9094, 9095)), place_of(NodeId(7), (9096, 9097))),
)


@pytest.fixture
def disk() -> MemoryDisk:
    found = MemoryDisk()
    found.make_directory("/data")
    found.make_directory("/data/processes")
    return found


def test_places_are_read_as_they_were_written(disk: MemoryDisk) -> None:
    assert read_places(disk, "/data") is None
    write_places(disk, "/data", PLACES)
    assert read_places(disk, "/data") == PLACES


def test_removed_places_are_those_of_a_standalone_broker(disk: MemoryDisk) -> None:
    write_places(disk, "/data", PLACES)
    remove_places(disk, "/data")
    remove_places(disk, "/data")
    assert read_places(disk, "/data") is None


def test_file_of_a_newer_version_is_refused(disk: MemoryDisk) -> None:
    replace_file(disk, PATH, b'{"version": 2}')
    with pytest.raises(ConfigError, match="has version 2, and this Ottla knows 1"):
        read_places(disk, "/data")


@pytest.mark.parametrize(
    "change",
    [
        {"brokers": []},
        {"listeners": "9092"},
        {"brokers": [{"node_id": 1, "directory": "/etc", "ports": [1, 2]}]},
        {"brokers": [{"node_id": 1, "directory": ".", "ports": [1]}]},
        {
            "brokers": [
                {"node_id": 1, "directory": ".", "ports": [1, 2]},
                {"node_id": 2, "directory": "../other", "ports": [3, 4]},
            ]
        },
        {"brokers": [{"node_id": 1, "directory": ".", "ports": [1, 2]}] * 2},
    ],
)
def test_file_that_names_no_brokers_of_the_directory_is_refused(disk: MemoryDisk, change: dict[str, object]) -> None:
    write_places(disk, "/data", PLACES)
    replace_file(disk, PATH, json.dumps({**json.loads(read_file(disk, PATH)), **change}).encode())
    with pytest.raises(ConfigError):
        read_places(disk, "/data")


def test_file_that_is_no_json_is_refused(disk: MemoryDisk) -> None:
    replace_file(disk, PATH, b"{")
    with pytest.raises(ConfigError, match=r"processes\.json cannot be read"):
        read_places(disk, "/data")

"""Replaces aiokafka's tests/conftest.py, which requires Docker: its fixtures, over a running broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# aiokafka's conftest, which `run` puts beside this one.
from .original_conftest import *  # type: ignore[import-not-found]  # noqa: F403
from .original_conftest import KafkaServer

NOT_LISTENING = 1


@pytest.fixture(scope="session")
def docker() -> None:
    return None


@pytest.fixture(scope="session")
def kafka_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--docker-image"))


@pytest.fixture(scope="session")
def ssl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("no-certificates")


@pytest.fixture(scope="session")
def kafka_server() -> object:
    host, port = os.environ["SUITE_BOOTSTRAP"].rsplit(":", 1)
    return KafkaServer(host, int(port), NOT_LISTENING, NOT_LISTENING, NOT_LISTENING, None)


@pytest.fixture(scope="class")
def acl_manager() -> None:
    return None


@pytest.fixture(scope="class")
def kafka_config() -> None:
    return None


@pytest.fixture(scope="class")
def kerberos_utils() -> None:
    return None

"""Targets of lake tables: a directory, and a server that speaks S3's protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.spark.lake.target import LakeTarget, parse_target
from tests.s3_server import BUCKET, S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=["local", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTarget:
    """An empty location."""
    if request.param == "local":
        return parse_target(tmp_path / "table")
    server: S3Server = request.getfixturevalue("s3")
    return parse_target(f"s3://{BUCKET}/{uuid.uuid4().hex}", server.storage, {})

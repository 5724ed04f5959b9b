"""librdkafka and its test runner: fetched by cargo, built by make, once, in a cache outside the tree."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.debian_packages import unpack_packages
from tests.peers.unavailable import PeerUnavailable

CRATE: Final = "rdkafka-sys"
# The part after the plus sign is librdkafka's own version.
CRATE_VERSION: Final = "4.10.0+2.12.1"
LIBRDKAFKA_VERSION: Final = CRATE_VERSION.partition("+")[2]
# Only features without further libraries: no zstd, and TLS only for the tests of it.  A short build is worth more than
# a fast test runner.
WITHOUT_TLS: Final = "--disable-ssl"
# Headers with which tests read statistics; without them these tests are skipped.
JSON_HEADERS: Final = "rapidjson-dev"
# What is changed in the tests, as a part of their directory's name.
CHANGES: Final = "replicas by default in 0098 and 0103"
CONFIGURE: Final = (
    "--disable-gssapi",
    "--disable-curl",
    "--disable-zstd",
    "--disable-lz4-ext",
    "--disable-optimization",
    "--disable-debug-symbols",
)
STEP_TIMEOUT_S: Final = 600
OUTPUT_LINES_SHOWN: Final = 20
_MANIFEST: Final = f"""\
[package]
name = "librdkafka-source"
version = "0.0.0"
edition = "2021"
[dependencies]
{CRATE} = {{ version = "={CRATE_VERSION.partition("+")[0]}", default-features = false }}
"""


@functools.cache
def runner_dir(*, with_tls: bool = False) -> Path:
    """The directory with `test-runner`, where it must be started.  Builds it at the first call (a minute).

    `with_tls`: its clients can use TLS and SASL.  Raises PeerUnavailable with the reason.
    """
    options = CONFIGURE if with_tls else (WITHOUT_TLS, *CONFIGURE)
    recipe = hashlib.sha256("\n".join((_MANIFEST, JSON_HEADERS, CHANGES, *options)).encode()).hexdigest()[:8]
    return keep_in_cache(f"librdkafka-{LIBRDKAFKA_VERSION}-{recipe}", lambda tree: _build(tree, options)) / "tests"


def _build(tree: Path, options: Sequence[str]) -> None:
    for tool in ("cargo", "make", "gcc", "g++", "stdbuf"):
        if shutil.which(tool) is None:
            raise PeerUnavailable(f"no {tool} command (librdkafka's source comes as a crate and is built)")
    with tempfile.TemporaryDirectory(prefix="librdkafka-source-") as scratch:
        shutil.copytree(_fetch_source(Path(scratch)), tree, symlinks=True, dirs_exist_ok=True)
    for name in ("0098-consumer-txn.cpp", "0103-transactions.c"):
        _let_brokers_count_replicas(tree / "tests" / name)
    headers = tree / "headers"
    with contextlib.suppress(PeerUnavailable):
        unpack_packages((JSON_HEADERS,), headers)
    # As a system's: their warnings are no errors.
    _run(tree, "env", f"CPPFLAGS=-isystem {headers / 'usr' / 'include'}", "./configure", *options)
    jobs = f"-j{os.cpu_count() or 1}"
    _run(tree, "make", jobs, "libs")
    _run(tree / "tests", "make", jobs, "test-runner")


def _let_brokers_count_replicas(test: Path) -> None:
    """The tests of transactional producers create topics with three replicas: here as many as the broker has."""
    text = test.read_text(encoding="utf-8")
    changed = re.sub(r"(create_topic_wait_exists\([^;]*?, )3,(?=\s+\d+\);)", r"\g<1>-1,", text)
    if changed == text:
        raise PeerUnavailable(f"{test.name} creates no topics with three replicas")
    test.write_text(changed, encoding="utf-8")


def _fetch_source(scratch: Path) -> Path:
    """Cargo resolves, downloads and checks the crate; it builds nothing here."""
    project = scratch / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(_MANIFEST)
    described = json.loads(_run(project, "cargo", "metadata", "--format-version", "1", "--quiet"))
    for package in described["packages"]:
        if package["name"] == CRATE and package["version"] == CRATE_VERSION:
            return Path(package["manifest_path"]).parent / "librdkafka"
    raise PeerUnavailable(f"cargo gave no {CRATE} {CRATE_VERSION}")


def _run(directory: Path, *command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"`{' '.join(command)}` did not end within {STEP_TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-OUTPUT_LINES_SHOWN:])
        raise PeerUnavailable(f"`{' '.join(command)}` failed:\n{last}")
    return done.stdout

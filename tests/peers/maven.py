"""Downloads from Maven Central: one artifact, or the jars of a pom.xml with their dependencies."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.peers.unavailable import PeerUnavailable

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
DOWNLOAD_TIMEOUT_S: Final = 600


def copy_artifact(artifact: str, into: Path) -> None:
    """Put group:artifact:version[:packaging[:classifier]] into a directory.  Raises PeerUnavailable with the reason."""
    _run(artifact, [f"{PLUGIN}:copy", f"-Dartifact={artifact}"], into)


def copy_dependencies(pom: Path, into: Path, properties: Mapping[str, str]) -> None:
    """Put the jars of a pom.xml into a directory, its properties given here.  Raises PeerUnavailable."""
    words = ["--file", str(pom), f"{PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    _run(str(pom), [*words, *(f"-D{name}={value}" for name, value in properties.items())], into)


def _run(what: str, words: list[str], into: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"no mvn command (Apache Maven downloads {what})")
    command = [maven, "--batch-mode", "--quiet", *words, f"-DoutputDirectory={into}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not bring {what} within {DOWNLOAD_TIMEOUT_S} s") from None
    if done.returncode != 0 or not any(into.iterdir()):
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise PeerUnavailable(f"Maven could not bring {what}: {errors[0] if errors else done.returncode}")

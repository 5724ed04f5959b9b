"""Apache Kafka's jars: resolved by Maven from Maven Central, once, into a cache outside the tree."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

POM: Final = Path(__file__).with_name("pom.xml")
TOOLS_POM: Final = Path(__file__).with_name("tools-pom.xml")
JAVA_MAJOR_MIN: Final = 17
DOWNLOAD_TIMEOUT_S: Final = 600
NAMESPACE: Final = {"m": "http://maven.apache.org/POM/4.0.0"}


class KafkaUnavailable(RuntimeError):
    """Apache Kafka is unavailable on this machine; the text is the reason for the user."""


def kafka_version(pom: Path = POM) -> str:
    """The release that a pom.xml names, such as "4.4.0": the broker's, or that of the tools."""
    version = ElementTree.parse(pom).getroot().findtext("m:properties/m:kafka.version", namespaces=NAMESPACE)
    assert version is not None, f"{pom} names no kafka.version"
    return version


def cache_dir() -> Path:
    """$OTTLA_CACHE_DIR, or ~/.cache/ottla."""
    configured = os.environ.get("OTTLA_CACHE_DIR")
    return Path(configured) if configured else Path.home() / ".cache" / "ottla"


def libs_dir(pom: Path = POM) -> Path:
    """The directory of the jars, which may not exist yet.  A changed pom.xml gets another, so no jar is ever stale."""
    pom_digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    return cache_dir() / f"apache-kafka-{kafka_version(pom)}" / f"libs-{pom_digest}"


@functools.cache
def find_java() -> str:
    """The java command of $JAVA_HOME or $PATH, 17 or newer.  Raises KafkaUnavailable with the reason."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise KafkaUnavailable(f"no java command (Apache Kafka needs Java {JAVA_MAJOR_MIN} or newer)")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        version = found[1] if found else "unknown"
        raise KafkaUnavailable(f"{java} is Java {version}; Apache Kafka needs {JAVA_MAJOR_MIN} or newer")
    return java


@functools.cache
def install(pom: Path = POM) -> Path:
    """The directory of the jars of a pom.xml, downloaded if need be.  Raises KafkaUnavailable with the reason.

    Safe to call from several processes at once: one downloads, under a lock, and the whole directory then appears
    by one rename; the others wait for it.
    """
    find_java()
    libs = libs_dir(pom)
    if libs.is_dir():
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("no mvn command (Apache Maven downloads Apache Kafka's jars)")
    libs.parent.mkdir(parents=True, exist_ok=True)
    with _locked(libs.parent / "install.lock"):
        if not libs.is_dir():
            _download(maven, pom, libs)
    return libs


def classpath(pom: Path = POM) -> str:
    return str(install(pom) / "*")


def _download(maven: str, pom: Path, libs: Path) -> None:
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="download-") as scratch:
        target = Path(scratch) / "libs"
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise KafkaUnavailable(f"Maven did not end within {DOWNLOAD_TIMEOUT_S} s") from None
        if done.returncode != 0 or not any(target.glob("kafka_2.13-*.jar")):
            errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            detail = errors[0] if errors else f"status {done.returncode}"
            raise KafkaUnavailable(f"Maven could not download Apache Kafka {kafka_version(pom)}: {detail}")
        target.rename(libs)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""The benchmark's Java program with the systems' own clients: brought, compiled at its first use, run."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.kafka_jars import find_java, kafka_version
from tests.peers.maven import copy_dependencies
from tests.peers.unavailable import PeerUnavailable

from bench.raw_client.build import BUILD_DIR
from bench.raw_client.load import LoadFailed

SOURCES: Final = Path(__file__).with_name("java")
POM: Final = SOURCES / "pom.xml"
# Starting a JVM, connecting, draining.
OVERTIME_S: Final = 90
# A JVM of a client; room for its buffers, no more.
JVM_OPTIONS: Final = ("-Xmx512M", "-Xms512M", "-XX:+UseParallelGC")


@cache
def classpath() -> str:
    """The compiled program and the clients' jars.  Raises PeerUnavailable with the reason."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:8]
    version = kafka_version()
    jars = keep_in_cache(
        f"bench-clients-{version}-{digest}",
        lambda fresh: copy_dependencies(POM, fresh, {"kafka.version": version}),
    )
    return f"{_compiled(f'{jars}/*')}:{jars}/*"


def _compiled(jars: str) -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, POM])).hexdigest()[:12]
    classes = BUILD_DIR / f"java_client-{digest}"
    if classes.is_dir():
        return classes
    compiler = shutil.which("javac")
    if compiler is None:
        raise PeerUnavailable("no javac command (the systems' clients are Java's: install a JDK)")
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD_DIR) as scratch:
        target = Path(scratch) / "classes"
        command = [compiler, "-d", str(target), "-cp", jars, *(str(path) for path in sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"javac could not compile {SOURCES}:\n{done.stderr[-2000:]}")
        target.rename(classes)
    return classes


def run_java_client(mode: str, system: str, address: str, name: str, **options: str | float) -> dict[str, float]:
    """One load to its end, and what the program says of it.  Raises LoadFailed."""
    words = [f"{option}={value}" for option, value in options.items()]
    command = [find_java(), *JVM_OPTIONS, "-cp", classpath(), "Load", mode, system, address, name, *words]
    story = f"{mode} {system} {name} {' '.join(words)}"
    timeout_s = float(options.get("seconds", 0)) + float(options.get("warmup_s", 0)) + OVERTIME_S
    if "messages" in options:
        timeout_s += 120
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{story}: not done after {timeout_s:g} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{story}: {done.stderr.strip()[:1000]}")
    return {name: float(value) for name, value in json.loads(done.stdout).items()}

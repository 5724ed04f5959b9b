"""franz-go and kafka-go: test programs over them, built by the go command from the module proxy into a cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers.cache import keep_in_cache
from tests.peers.unavailable import PeerUnavailable

FRANZ_GO: Final = Path(__file__).with_name("go")
KAFKA_GO: Final = Path(__file__).with_name("kafka_go")
KGO: Final = "github.com/twmb/franz-go/pkg/kgo"
BUILD_TIMEOUT_S: Final = 600


def go_scenarios() -> list[str]:
    """The command that takes bootstrap, prefix and scenarios.  Raises PeerUnavailable."""
    return go_program()


def kafka_go_scenarios() -> list[str]:
    """The same over kafka-go, with the scenarios `produce` and `classic-group`."""
    return _built(KAFKA_GO, "kafka-go")


def go_program() -> list[str]:
    """The test program, which sends numbered records when its first argument is `sending`.  Raises PeerUnavailable."""
    return _built(FRANZ_GO, "franz-go")


def kgo_tests() -> Path:
    """franz-go's own tests of its client as a program, of the release that our test program uses.

    Raises PeerUnavailable.
    """
    return Path(_built(FRANZ_GO, "franz-go-tests", ("test", "-c"), "kgo.test", KGO)[0])


def kgo_sources() -> Path:
    """The directory of that package, in which its tests must run."""
    command = ["go", "list", "-f", "{{.Dir}}", KGO]
    return Path(subprocess.run(command, cwd=FRANZ_GO, capture_output=True, text=True, check=True).stdout.strip())


@cache
def _built(
    sources: Path,
    client: str,
    command_words: tuple[str, ...] = ("build",),
    program: str = "scenarios",
    package: str = ".",
) -> list[str]:
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable(f"no go command ({client} is a Go module)")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources.iterdir()))).hexdigest()[:8]

    def bring(fresh: Path) -> None:
        command = [go, *command_words, "-o", str(fresh / program), package]
        try:
            done = subprocess.run(
                command, cwd=sources, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailable(f"go did not build {client} within {BUILD_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise PeerUnavailable(f"go could not build {client}: {done.stderr.strip()[-500:]}")

    return [str(keep_in_cache(f"{client}-{digest}", bring) / program)]

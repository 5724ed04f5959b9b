"""How long a newcomer waits for the first record: python -m releasing.first_record [wheel|checkout|container]

Each way starts from nothing but Python, git or buildah: it installs into a new directory, without the caches of pip and
uv, starts a broker, and writes and reads a record as the first page of the documentation does.  It prints each step's
seconds, and how busy the machine was.  The container's image is built from the Containerfile by buildah; `--base`
names another image with Python 3.11 than the Containerfile's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
RECORD: Final = "hello\n"
TOPIC: Final = "greetings"
ENDS_WITHIN_S: Final = 1_800
IMAGE: Final = "localhost/ottla-first-record"

Command: TypeAlias = Sequence[str | Path]


class Steps:
    """The seconds of each step, in their order; all steps share an environment whose caches are empty."""

    def __init__(self, scratch: Path) -> None:
        caches = {"PIP_CACHE_DIR": "pip", "UV_CACHE_DIR": "uv"}
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            **{name: str(scratch / "caches" / folder) for name, folder in caches.items()},
        }
        self.taken_s: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.taken_s[name] = time.monotonic() - began_s

    def run(self, name: str, *command: str | Path, given: str = "", cwd: Path | None = None) -> str:
        """Standard output.  Raises CalledProcessError, with the program's own message on standard error before."""
        with self.step(name):
            return subprocess.run(
                command,
                input=given,
                stdout=subprocess.PIPE,
                text=True,
                cwd=cwd,
                env=self._environment,
                check=True,
                timeout=ENDS_WITHIN_S,
            ).stdout

    @contextmanager
    def broker(self, name: str, *command: str | Path, cwd: Path | None = None) -> Iterator[str]:
        """A broker until the end; gives its address when it is ready."""
        with (
            subprocess.Popen(
                command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=cwd, env=self._environment
            ) as process,
            ExitStack() as at_the_end,
        ):
            at_the_end.callback(process.terminate)
            assert process.stderr is not None
            with self.step(name):
                events = (re.search(r"broker\.ready .*port=(\d+)", line) for line in process.stderr)
                ready = next(filter(None, events), None)
            if ready is None:
                sys.exit(f"first_record: {name}: the broker ended before it was ready")
            yield f"127.0.0.1:{ready[1]}"

    def first_record(self, ottla: Command, address: str) -> None:
        self.run("write a record", *ottla, "produce", TOPIC, "-b", address, given=RECORD)
        read = self.run("read it", *ottla, "consume", TOPIC, "--from-beginning", "--until-end", "-b", address)
        if read != RECORD:
            sys.exit(f"first_record: {read!r} was read in place of {RECORD!r}")


def serve(ottla: Command, directory: Path | str) -> Command:
    return (*ottla, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0")


def by_wheel(steps: Steps, scratch: Path, base: str | None) -> None:
    """The wheel is built before: an index has it."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch / "dist")]
    subprocess.run(build, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    (wheel,) = (scratch / "dist").glob("*.whl")
    steps.run("make an environment", sys.executable, "-m", "venv", scratch / "venv")
    steps.run("pip install ottla", scratch / "venv" / "bin" / "pip", "install", "--quiet", wheel)
    ottla = (scratch / "venv" / "bin" / "ottla",)
    with steps.broker("start a broker", *serve(ottla, scratch / "data")) as address:
        steps.first_record(ottla, address)


def by_checkout(steps: Steps, scratch: Path, base: str | None) -> None:
    tree = scratch / "ottla"
    steps.run("git clone", "git", "clone", "--quiet", ROOT, tree)
    started = "./dev serve: install, and start a broker"
    with steps.broker(started, *serve((sys.executable, tree / "dev"), scratch / "data"), cwd=tree) as address:
        steps.first_record((tree / ".venv" / "bin" / "ottla",), address)


def by_container(steps: Steps, scratch: Path, base: str | None) -> None:
    arguments = [] if base is None else ["--build-arg", f"PYTHON={base}"]
    steps.run("build the image", "buildah", "build", "--quiet", *arguments, "--tag", IMAGE, ROOT)
    container = steps.run("make a container", "buildah", "from", IMAGE).strip()
    try:
        # A container of its own image's user, in the machine's network.
        ottla = ("buildah", "run", "--network", "host", container, "ottla")
        with steps.broker("start a broker", *serve(ottla, "/var/lib/ottla")) as address:
            steps.first_record(ottla, address)
    finally:
        subprocess.run(["buildah", "rm", container], stdout=subprocess.DEVNULL, check=True)


WAYS: Final[dict[str, Callable[[Steps, Path, str | None], None]]] = {
    "wheel": by_wheel,
    "checkout": by_checkout,
    "container": by_container,
}


def table(way: str, taken_s: dict[str, float]) -> Iterator[str]:
    """A row for each step, and one for all."""
    for name, seconds in taken_s.items():
        yield f"| {way} | {name} | {seconds:.1f} |"
    yield f"| {way} | all | {sum(taken_s.values()):.1f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m releasing.first_record", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"any of {', '.join(WAYS)}; all by default")
    parser.add_argument("--base", metavar="IMAGE", help="the container's image of Python")
    given = parser.parse_args(arguments)
    if unknown := [way for way in given.ways if way not in WAYS]:
        parser.error(f"there is no way {unknown[0]!r}; there are {', '.join(WAYS)}")
    rows = ["| way | step | s |", "| --- | --- | --- |"]
    for way in given.ways or WAYS:
        load_before = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="ottla-first-record-") as scratch:
            steps = Steps(Path(scratch))
            WAYS[way](steps, Path(scratch), given.base)
        rows += table(way, steps.taken_s)
        sys.stderr.write(f"{way}: load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after\n")
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

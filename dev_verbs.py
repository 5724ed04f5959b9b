"""The verbs of ./dev, for Python 3.11 or newer and with nothing installed.

The first use of a verb makes .venv and installs what that verb needs; later uses start at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parent
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
# There from before .venv has a Python until something is installed: a .venv with it was interrupted, and is made anew.
BEGUN: Final = VENV / ".dev-begun"
# There while packages are installed: with it some of them may be there in part, so that all are installed again.
INSTALLING: Final = VENV / ".dev-installing"

# What builds the site has an environment apart from that of the tests, which do not need it.
DOCS_VENV: Final = ROOT / ".venv-docs"
# All that is in it, with hashes.
DOCS_LOCK: Final = ROOT / "requirements-docs.lock"

# Extras of pyproject.toml that a verb needs.
EXTRAS: Final[dict[str, str]] = {
    "serve": "",
    "demo": "demo",
    "lock": "dev,demo",
    "sbom": "dev,demo,msk",
    "check": "dev,demo",
    "format": "dev,demo",
    "test": "dev,demo",
    "suites": "dev,demo",
    "bench": "dev,demo",
    "chaos": "dev,demo",
    "sim": "dev,demo",
}

UV: Final = "uv>=0.9,<1"
# A version of each package of all extras, with hashes: `./dev lock`.
LOCK: Final = ROOT / "requirements.lock"
# PySpark comes as sources with 450 MB of jars, of which a wheel is built that is unpacked at once.
NOT_COMPRESSED: Final = "--config-settings-package=pyspark:--build-option=--compression=stored"
# As many of an installer's last lines are shown when it fails.
INSTALLER_LINES_SHOWN: Final = 30

# Most tests wait: for sessions to expire, JVMs to start, killed brokers to come back.
WORKERS_PER_PROCESSOR: Final = 2

TYPES_SEEN_EVERY_S: Final = 1.0

# As many of the slowest tests are listed at the end.
SLOWEST_SHOWN: Final = 30

USAGE: Final = """\
usage: ./dev VERB [arguments]

  demo     a day at a small LinkedIn, end to end on this machine (about a minute)
  test     lint, types and all tests, as CI runs them; arguments, if any, go to pytest and nothing else runs
  suites   the long tests that test leaves out: suites of other projects, the benchmarks' tests, long chaos, planted
           faults; and Hypothesis' tests with all their examples (tests/README.md); arguments, if any, go to pytest
  check    format, lint, types and unit tests (seconds; run it before each commit)
  format   rewrite the code in the project's format
  serve    run a broker from this tree (arguments go to `ottla serve`)
  docs     the site of docs/, into site/ (open site/index.html); docs --serve shows it while pages are written
  bench    the benchmark beside Apache Kafka (needs Java, Maven and a C compiler), and
           studies: bench paper|rebalance|growth|groups-load|cluster|client|spark|tls|transactions|upserts;
           bench soak: an hour of mixed load and kills, and whether memory, descriptors or latency drift
  chaos    producers and groups through many kills, their histories checked (minutes to hours);
           chaos cluster: three brokers and ZooKeeper, killed, paused, cut off from power,
           disks and network (tests/cluster/README.md);
           chaos connectors: groups of ottla.ConsumerConnectors through joins, leaves, kills and more
           (tests/connectors/README.md), and how long a change takes them;
           chaos loads: loads of lake tables, killed at four points and at random times;
           chaos mirror: a mirror through stalls of its source, its target and itself, and kills
           (tests/mirror/README.md);
           chaos sink: Spark's exactly-once sink while brokers, coordinators, workers and drivers are killed;
           chaos transactions: transactional producers and read_committed readers through kills, pauses,
           partitions of the network and power cuts, also of Apache Kafka (tests/transactions_history/README.md)
  lock     write requirements.lock and requirements-docs.lock for what pyproject.toml allows; lock --upgrade takes
           the newest versions
  sbom     print the bill of materials of the package and its extras (docs/releasing.md)
  sim      replication in virtual time: sim --minutes M searches fresh seeds, sim --seed N replays one with its trace;
           sim --consumers does the same for consumers that share partitions without a coordinator,
           sim --producer for a producer of batches, sim --transactions for transactions
"""


def run(*command: str | Path) -> int:
    return subprocess.call([str(part) for part in command], cwd=ROOT)


def run_silently(*command: str | Path) -> int:
    return subprocess.call(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


class _Venv(venv.EnvBuilder):
    def ensure_directories(self, env_dir: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> SimpleNamespace:
        context: SimpleNamespace = super().ensure_directories(env_dir)
        BEGUN.touch()
        return context


def make_venv() -> None:
    """Make .venv unless it is there.  One of the user's own is taken as it is, but needs pip."""
    if PYTHON.exists() and not BEGUN.exists():
        if run_silently(PYTHON, "-m", "pip", "--version") == 0:
            return
        if run_silently(PYTHON, "-m", "ensurepip") == 0:
            return
    require_ensurepip(".venv")
    say("recreating .venv: it is incomplete" if PYTHON.exists() else "making .venv")
    try:
        # First: without it an interrupted clear is started again, too.
        PYTHON.unlink(missing_ok=True)
        _Venv(clear=True, with_pip=True).create(VENV)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"dev: .venv cannot be made: {error}")


def require_ensurepip(folder: str) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            f"dev: {sys.executable} cannot make {folder}: it has no ensurepip\n"
            "hint: on Debian and Ubuntu: apt install python3-venv"
        )


def prepare(extras: str) -> None:
    """Make .venv and install the project with these extras, unless this very state is installed already."""
    # What is installed is a link to the sources but for what is compiled of them.
    made_of = [ROOT / "pyproject.toml", ROOT / "hatch_build.py", LOCK, *sorted((ROOT / "src").rglob("*.c"))]
    wanted = hashlib.sha256(b"".join(each.read_bytes() for each in made_of) + f"{extras}{sys.version}".encode())
    stamp = VENV / f".installed-{extras.replace(',', '-') or 'core'}"

    def is_done() -> bool:
        is_whole = PYTHON.exists() and not INSTALLING.exists()
        return is_whole and stamp.exists() and stamp.read_text() == wanted.hexdigest()

    if is_done():
        return
    with alone():
        if is_done():
            return
        make_venv()
        target = f".[{extras}]" if extras else "."
        say(f"installing {target} (once)")
        was_interrupted = INSTALLING.exists()
        INSTALLING.touch()
        installed = install(target, replaces_all=was_interrupted)
        if installed is Installed.NOT:
            sys.exit(f"dev: {target} could not be installed; the reason is above")
        if installed is Installed.AS_WANTED:
            stamp.write_text(wanted.hexdigest())
        BEGUN.unlink(missing_ok=True)
        INSTALLING.unlink()


@contextmanager
def alone() -> Iterator[None]:
    """One run at a time makes .venv: to a second one that of the first would look interrupted."""
    # NFS gives an exclusive lock only for a file that is open for writing.
    with (ROOT / "pyproject.toml").open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./dev is making .venv: waiting until it has")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Installed(Enum):
    NOT = auto()
    # In other versions than the locked ones, because of a failure that may pass: the next run tries the lock again.
    FOR_NOW = auto()
    AS_WANTED = auto()


def install(target: str, *, replaces_all: bool = False) -> Installed:
    """By uv, which downloads and unpacks packages beside each other, in locked versions, and by pip where uv cannot.

    `replaces_all`: also what seems to be there.  Python compiles a module when it is imported first, which is no work
    of either: pip would compile all of them, 40 s for `dev`."""
    pip = (PYTHON, "-m", "pip")
    options = ("--disable-pip-version-check", "--no-compile", *(("--force-reinstall",) if replaces_all else ()))
    without_the_lock = Installed.AS_WANTED
    if not has_own_index() and run_silently(*pip, "install", *options, UV) == 0:
        again = ("--reinstall",) if replaces_all else ()
        options_of_uv = (f"--python={PYTHON}", NOT_COMPRESSED, *again, "--editable", target)
        by_uv = (PYTHON, "-m", "uv", "pip", "install", *options_of_uv)
        status, output = install_by(*by_uv, f"--constraint={LOCK}")
        if status == 0:
            return Installed.AS_WANTED
        if "Hash mismatch" in output:
            # Other versions must not be tried.
            say(f"a package is not the one that {LOCK.name} names")
            return Installed.NOT
        if not is_of_packages(output):
            without_the_lock = Installed.FOR_NOW
        where = "here" if without_the_lock is Installed.AS_WANTED else "now"
        say(f"{LOCK.name} cannot be installed {where}; uv takes the newest versions that pyproject.toml allows")
        if install_by(*by_uv).status == 0:
            return without_the_lock
        say("uv could not install it; pip tries")
    by_pip = install_by(*pip, "install", "--progress-bar=off", *options, "--editable", target)
    return without_the_lock if by_pip.status == 0 else Installed.NOT


def is_of_packages(output: str) -> bool:
    """Whether uv fails because of what it installs, and would again.  A download that fails is also a failed build, or
    no solution, when the build needs it."""
    refusals = ("No solution found", "Failed to build", "Failed to download and build")
    return any(refusal in output for refusal in refusals) and "Failed to fetch" not in output


def has_own_index() -> bool:
    """Whether pip's settings name where packages come from, or that none may be downloaded: uv does not read them."""
    # A quiet pip lists nothing.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_QUIET"}
    command = [str(PYTHON), "-m", "pip", "config", "list"]
    settings = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    return "index" in settings.stdout


class Ended(NamedTuple):
    """`output`: with the reason of a failure."""

    status: int
    output: str


def install_by(*command: str | Path) -> Ended:
    """At a terminal one line shows the progress; elsewhere only failures are shown."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        done = subprocess.run([*command, "--quiet"], cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
        sys.stderr.write(done.stderr)
        sys.stderr.flush()
        return Ended(done.returncode, done.stderr)
    printed: list[str] = []
    with (
        Progress() as progress,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        assert process.stdout is not None
        for line in lines_or_seconds(process.stdout):
            if line is not None:
                printed.append(line)
                progress.take(line.split())
            progress.draw()
    if process.returncode != 0:
        sys.stderr.write("".join(f"{line}\n" for line in printed[-INSTALLER_LINES_SHOWN:]))
    return Ended(process.returncode, "\n".join(printed))


def lines_or_seconds(output: IO[bytes]) -> Iterator[str | None]:
    """Each line as it comes; None for each second without one."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=1.0):
                yield None
                continue
            chunk = os.read(output.fileno(), 65536)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not chunk:
                if rest:
                    yield rest.decode(errors="replace")
                return


class Progress:
    """What pip or uv is at, as one line of the terminal that is drawn again and again."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._found: set[str] = set()
        self._what = "looking for packages"

    def take(self, words: Sequence[str]) -> None:
        match words:
            case ["Collecting", name, *_]:
                self._found.add(name)
                self._what = f"{self._package()}{name}"
            case ["Downloading", file, *rest]:
                self._what = f"{self._package()}downloading {' '.join([file.rsplit('/', 1)[-1], *rest])}"
            case ["Building", *_]:
                self._what = "building"
            case ["Installing", "collected", *_]:
                self._what = f"installing what was collected ({len(self._found)})"

    def _package(self) -> str:
        """uv finds all packages before it downloads the first."""
        return f"package {len(self._found)}: " if self._found else ""

    def draw(self) -> None:
        line = f"dev: {time.monotonic() - self._began_s:3.0f} s, {self._what}"
        # One column stays free: in the last one some terminals begin a new line.
        sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def lint_style() -> int:
    """Every command runs, so one pass shows everything that is wrong."""
    return max(run(PYTHON, "-m", "ruff", "format", "--check", "."), run(PYTHON, "-m", "ruff", "check", "."))


def check() -> int:
    """The fast gate."""
    return max(
        lint_style(),
        run(PYTHON, "-m", "mypy"),
        pytest_in_workers(os.cpu_count() or 1, "-q", "tests/unit", "tests/architecture"),
    )


def pytest_in_workers(count: int, *arguments: str) -> int:
    return run(*pytest_command(count, *arguments))


def pytest_command(count: int, *arguments: str) -> tuple[str | Path, ...]:
    return (PYTHON, "-m", "pytest", f"--numprocesses={count}", "--dist=loadgroup", *arguments)


def start_installing(what: str, report: Path) -> subprocess.Popen[bytes]:
    with report.open("ab") as output:
        return start_beside("-m", "tests.peers.install", what, output=output)


def start_compiling_tests() -> subprocess.Popen[bytes]:
    """pytest keeps the tests that it has compiled; otherwise each worker would compile all of them."""
    return start_beside("-m", "pytest", "--collect-only", "-q", output=subprocess.DEVNULL)


def start_beside(*arguments: str, output: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """In a process group of its own, so that compilers that it starts end with it."""
    command = [str(PYTHON), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def test(arguments: Sequence[str]) -> int:
    """Everything that CI runs.  What cannot be had here (Java, Maven, Debian's kcat) skips with its reason.

    Clients and tools of other projects are downloaded and built beside lint, types and the first tests; the types are
    checked beside the tests, which end early when they are wrong.
    """
    if arguments:
        return run(PYTHON, "-m", "pytest", *arguments)
    with peers_beside("builds") as (scratch, needed_first):
        status = lint_style()
        if status != 0:
            return status
        with types_beside(scratch / "types") as types:
            for process in needed_first:
                process.wait()
            return run_while_types_are_right(types, scratch / "types", "not suite")


def suites(arguments: Sequence[str]) -> int:
    """The tests that `test` leaves out (tests/long_suites.py), and those of which it runs a part of the examples
    (tests/property/property_settings.py)."""
    os.environ["OTTLA_ALL_EXAMPLES"] = "1"
    with peers_beside("suites") as (_, needed_first):
        for process in needed_first:
            process.wait()
        return pytest_in_workers(
            workers_count(), "-m", "suite or hypothesis or exhaustive", f"--durations={SLOWEST_SHOWN}", *arguments
        )


def workers_count() -> int:
    """Most tests wait, so there are more workers than processors."""
    return max(4, WORKERS_PER_PROCESSOR * (os.cpu_count() or 1))


@contextmanager
def peers_beside(builds: str) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """Downloads and builds run inside, in a directory for the run; the processes given are those to wait for."""
    with tempfile.TemporaryDirectory(prefix="ottla-dev-") as scratch:
        report = Path(scratch) / "peers"
        os.environ |= {"OTTLA_TEST_RUN": scratch, "OTTLA_PEERS_REPORT": str(report)}
        needed_first = [start_installing("downloads", report), start_compiling_tests()]
        building = start_installing(builds, report)
        try:
            yield Path(scratch), needed_first
        finally:
            for process in (*needed_first, building):
                end(process)


@contextmanager
def types_beside(report: Path) -> Iterator[subprocess.Popen[bytes]]:
    with report.open("ab") as output:
        types = start_beside("-m", "mypy", output=output)
    try:
        yield types
    finally:
        end(types)


def run_while_types_are_right(types: subprocess.Popen[bytes], report: Path, marks: str) -> int:
    """The tests of these marks.  Wrong types end them as Ctrl-C does, and are shown last."""
    command = pytest_command(workers_count(), "-m", marks, f"--durations={SLOWEST_SHOWN}")
    tests = subprocess.Popen([str(part) for part in command], cwd=ROOT)
    try:
        while tests.poll() is None and not types.poll():
            with suppress(subprocess.TimeoutExpired):
                tests.wait(TYPES_SEEN_EVERY_S)
    finally:
        if tests.poll() is None:
            tests.send_signal(signal.SIGINT)
        status = tests.wait()
    types_status = types.wait()
    if types_status != 0:
        sys.stdout.write(report.read_text(encoding="utf-8"))
        sys.stdout.flush()
    return max(abs(status), types_status)


def docs(arguments: Sequence[str]) -> int:
    """The site; a link to nothing and a page without a place in its navigation fail.  Arguments go to mkdocs."""
    python = prepare_docs()
    serves = list(arguments[:1]) == ["--serve"]
    # Where mkdocs finds the hooks of website/.
    os.environ |= {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    verb = ("serve", *arguments[1:]) if serves else ("build", "--strict", "--quiet", *arguments)
    status = run(python, "-m", "mkdocs", *verb, "--config-file", ROOT / "website" / "mkdocs.yml")
    if status == 0 and not arguments:
        say(f"open {ROOT / 'site' / 'index.html'}")
    return status


def prepare_docs() -> Path:
    """The Python of .venv-docs, in which the dependency group `docs` is installed, in locked versions."""
    python = DOCS_VENV / "bin" / "python"
    stamp = DOCS_VENV / ".installed"
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["dependency-groups"]["docs"]
    wanted = "\n".join([sys.version, *packages, hashlib.sha256(DOCS_LOCK.read_bytes()).hexdigest()])
    with alone():
        if python.exists() and stamp.exists() and stamp.read_text() == wanted:
            return python
        require_ensurepip(DOCS_VENV.name)
        say("making .venv-docs and installing what builds the site (once)")
        try:
            venv.EnvBuilder(clear=True, with_pip=True).create(DOCS_VENV)
        except (subprocess.CalledProcessError, OSError) as error:
            sys.exit(f"dev: .venv-docs cannot be made: {error}")
        installed = install_docs(python, packages)
        if installed is Installed.NOT:
            sys.exit("dev: pip could not install what builds the site; its message is above")
        if installed is Installed.AS_WANTED:
            # Last: an interrupted installation is started again.
            stamp.write_text(wanted)
    return python


def install_docs(python: Path, packages: Sequence[str]) -> Installed:
    """By pip, which checks the hashes of all: these packages and what they need."""
    pip = (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "--progress-bar=off")
    status, output = install_by(*pip, "--require-hashes", f"--requirement={DOCS_LOCK}")
    if status == 0:
        return Installed.AS_WANTED
    if "DO NOT MATCH THE HASHES" in output:
        # Other versions must not be tried.
        sys.exit(f"dev: a package is not the one that {DOCS_LOCK.name} names; pip's message is above")
    # pip has no other words for a version that does not exist than for one whose index does not answer.
    is_for_now = "Retrying" in output or "No matching distribution found" not in output
    say(
        f"{DOCS_LOCK.name} cannot be installed {'now' if is_for_now else 'here'}; "
        "pip takes the newest versions that pyproject.toml allows"
    )
    if install_by(*pip, *packages).status != 0:
        return Installed.NOT
    return Installed.FOR_NOW if is_for_now else Installed.AS_WANTED


def become_ottla(*arguments: str) -> NoReturn:
    """The verb takes over this process, so that Ctrl-C and signals reach it alone."""
    os.execv(PYTHON, [str(PYTHON), "-m", "ottla", *arguments])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["docs"]:
        return docs(arguments[1:])
    if not arguments or arguments[0] not in EXTRAS:
        sys.stderr.write(USAGE)
        return 0 if arguments and arguments[0] in {"-h", "--help", "help"} else 2
    verb, rest = arguments[0], arguments[1:]
    prepare(EXTRAS[verb])
    # As pip leaves an installed package.  Without it each start of a broker would compile 290 modules, 0.15 s of work.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    match verb:
        case "check":
            return check()
        case "format":
            return max(run(PYTHON, "-m", "ruff", "format", "."), run(PYTHON, "-m", "ruff", "check", "--fix", "."))
        case "test":
            return test(rest)
        case "suites":
            return suites(rest)
        case "bench":
            return run(PYTHON, "-m", "bench", *rest)
        case "lock":
            return run(PYTHON, "-m", "releasing.requirements_lock", *rest)
        case "sbom":
            return run(PYTHON, "-m", "releasing.sbom", *rest)
        case "sim":
            if rest[:1] == ["--consumers"]:
                return run(PYTHON, "-m", "tests.consumers_simulation", *rest[1:])
            if rest[:1] == ["--producer"]:
                return run(PYTHON, "-m", "tests.producer_simulation", *rest[1:])
            if rest[:1] == ["--transactions"]:
                return run(PYTHON, "-m", "tests.transactions_simulation", *rest[1:])
            return run(PYTHON, "-m", "tests.simulation", *rest)
        case "chaos":
            if rest[:1] == ["cluster"]:
                return run(PYTHON, "-m", "tests.cluster.chaos", *rest[1:])
            if rest[:1] == ["connectors"]:
                return run(PYTHON, "-m", "tests.connectors.chaos", *rest[1:])
            if rest[:1] == ["loads"]:
                return run(PYTHON, "-m", "tests.loads.chaos", *rest[1:])
            if rest[:1] == ["mirror"]:
                return run(PYTHON, "-m", "tests.mirror.chaos", *rest[1:])
            if rest[:1] == ["sink"]:
                return run(PYTHON, "-m", "tests.sink.chaos", *rest[1:])
            if rest[:1] == ["transactions"]:
                return run(PYTHON, "-m", "tests.transactions_history.chaos", *rest[1:])
            return run(PYTHON, "-m", "tests.history.chaos", *rest)
        case _:
            become_ottla(verb, *rest)

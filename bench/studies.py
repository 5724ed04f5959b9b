"""The studies beside the spine's benchmark, and how one is started: ./dev bench NAME."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.audit import study as audit
from bench.authorizer import study as authorizer
from bench.client import study as client
from bench.cluster import study as cluster
from bench.groups import load_study as groups_load
from bench.groups import study as rebalance
from bench.growth import study as growth
from bench.machine import describe_commit, describe_machine, measure_limits, warm_memory
from bench.paper import study as paper
from bench.raw_client.build import BUILD_DIR, build_raw_client
from bench.spark import study as spark
from bench.study import Observed, Study, StudyOptions, say, write
from bench.tls import study as tls
from bench.transactions import study as transactions
from bench.upserts import study as upserts

# A result is of one session: figures of different code, machines or sizes are not put side by side.
MUST_BE_SAME: Final = ("commit", "has_local_changes", "machine", "is_quick")
ROOT: Final = Path(__file__).parents[1]
RESULTS_DIR: Final = Path(__file__).with_name("results")

# The names of Ottla's forms begin with it.
OTTLA: Final = "ottla"

STUDIES: Final[Mapping[str, Study]] = {
    each.name: each
    for each in (
        paper.STUDY,
        rebalance.STUDY,
        growth.STUDY,
        groups_load.STUDY,
        cluster.STUDY,
        client.STUDY,
        spark.STUDY,
        audit.STUDY,
        authorizer.STUDY,
        tls.STUDY,
        transactions.STUDY,
        upserts.STUDY,
    )
}


class CannotContinue(ValueError):
    """The earlier result is not of this commit, machine or size."""


def parse(study: Study, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"./dev bench {study.name}", description=study.summary)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: some three minutes at most")
    parser.add_argument("--rounds", type=int, help=f"({study.rounds}; --quick 1)")
    parser.add_argument("--peer", action="append", choices=study.peers, default=[], help="only these; repeatable")
    if study.parts:
        parser.add_argument("--part", action="append", choices=study.parts, default=[], help="only these; repeatable")
    if study.has_scenarios:
        parser.add_argument("--scenario", action="append", metavar="NAME", default=[], help="only these; * matches")
    if study.has_scale:
        parser.add_argument("--scale", type=float, default=1.0, help="a share of the full sizes, as 0.1")
    if study.may_continue:
        words = "continue this result: what it has is not measured again (same commit, machine and sizes)"
        parser.add_argument("--into", type=Path, metavar="RESULT.json", help=words)
    parser.add_argument("--only-ottla", action="store_true", help="without the others: no ratios, no Java of theirs")
    parser.add_argument("--work-dir", type=Path, default=BUILD_DIR, help="where data goes, on the disk to be measured")
    parser.add_argument("--results-dir", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    if options.only_ottla:
        options.peer = [name for name in options.peer or study.peers if name.startswith(OTTLA)]
    return options


def run_study(study: Study, arguments: list[str]) -> int:
    """Exit status 0, or 1 when something failed on the way; results are written in any case."""
    options = parse(study, arguments)
    started = datetime.now(UTC).replace(microsecond=0)
    rounds = options.rounds or (1 if options.quick else study.rounds)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    build_raw_client()
    about: dict[str, object] = {
        "started": started.isoformat(),
        **describe_commit(ROOT),
        "machine": describe_machine(options.work_dir),
        "arguments": " ".join([study.name, *arguments]),
        "is_quick": options.quick,
        "rounds": rounds,
    }
    stem = options.results_dir / f"{started:%Y%m%dT%H%M%SZ}-{str(about['commit'])[:8]}-{study.name}"
    observed = Observed(about)
    into: Path | None = getattr(options, "into", None)
    if into is not None:
        stem = into.with_suffix("")
        try:
            observed = continued(json.loads(into.read_text()), about)
        except (OSError, ValueError) as problem:
            print(f"bench: {problem}", file=sys.stderr)
            return 2
    seconds_before = int(observed.about.get("seconds", 0))
    say(f"{study.name}: results go to {stem}.json and .md")
    with tempfile.TemporaryDirectory(prefix="data-", dir=options.work_dir, ignore_cleanup_errors=True) as work_dir:
        parts = tuple(getattr(options, "part", ()))
        scenarios = tuple(getattr(options, "scenario", ()))
        scale = float(getattr(options, "scale", 1.0))
        chosen = StudyOptions(options.quick, rounds, tuple(options.peer), parts, Path(work_dir), scale, scenarios)
        try:
            _note_limits(observed, chosen)
            study.run(chosen, observed)
            _note_limits(observed, chosen)
        finally:
            observed.about["seconds"] = seconds_before + round((datetime.now(UTC) - started).total_seconds())
            write(study, observed, stem)
    print(study.table(observed))
    return 1 if observed.problems else 0


def continued(document: Mapping[str, Any], about: Mapping[str, object]) -> Observed:
    """The figures of an earlier run, to which this one adds.  Raises CannotContinue where they would not compare."""
    observed = Observed.from_document(document)
    for name in MUST_BE_SAME:
        if observed.about.get(name) != about[name]:
            raise CannotContinue(f"--into: its {name} is {observed.about.get(name)}, here it is {about[name]}")
    observed.about["rounds"] = max(observed.about["rounds"], about["rounds"])
    observed.about.setdefault("continued", []).append(f"{about['started']}: {about['arguments']}")
    return observed


def _note_limits(observed: Observed, options: StudyOptions) -> None:
    """What the machine can do, at both ends of a run; it drifts."""
    if not options.is_quick and not observed.limits:
        warm_memory(options.work_dir)
    observed.limits.append(measure_limits(options.work_dir))

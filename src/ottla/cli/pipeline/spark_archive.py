"""`ottla spark-archive`: what the workers of a Spark cluster need, in a file that goes with the job."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.client_flags import output_flag
from ottla.cli.output import data_lines, say
from ottla.spark.worker_archive import FOLDER, WorkerArchive, write_archive

_MIB = 1 << 20


@click.command(name="spark-archive")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--package", "packages", multiple=True, metavar="NAME", help="One more installed package, with what it needs."
)
@output_flag()
def command(file: Path, packages: tuple[str, ...], as_data: bool) -> None:
    """Pack Ottla and what it needs in a worker into the zip file FILE, for `spark-submit --archives`.

    \b
    ottla spark-archive deps.zip
    spark-submit --archives deps.zip#deps --conf spark.executorEnv.PYTHONPATH=deps job.py

    The versions are those that are installed here.  The workers need Spark and a Python like this one, nothing else.
    """
    archive = write_archive(file, packages)
    say(*(data_lines(_facts(archive)) if as_data else _lines(archive)))


def _facts(archive: WorkerArchive) -> dict[str, object]:
    return {
        "file": str(archive.path),
        "size_bytes": archive.size_bytes,
        "made_for": archive.made_for,
        "packages": dict(archive.packages),
        "arguments": archive.submit_arguments,
    }


def _lines(archive: WorkerArchive) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in archive.packages)
    return [
        f"{archive.path}: {archive.size_bytes / _MIB:.0f} MiB for {archive.made_for}",
        f"packages: {packages}",
        f"spark-submit {archive.submit_arguments} ...",
        f"elsewhere: spark.archives={archive.path}#{FOLDER} and spark.executorEnv.PYTHONPATH={FOLDER}",
    ]

"""One load in a process of its own: python -m bench.client.process JOB prints the figures as one line of JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from bench.client.job import Job


def main(words: str) -> int:
    job = Job(**json.loads(words))
    run = getattr(import_module(job.module), job.function)
    print(json.dumps(run(job)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

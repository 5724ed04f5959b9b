"""Flags that the verbs of `ottla audit` share: which windows, and when one of them is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli.moments import duration_ms
from ottla.model.own_names import AUDIT_TOPIC

if TYPE_CHECKING:
    from ottla.audit.completeness import CompletenessRules

F = TypeVar("F", bound=Callable[..., object])


def audit_topic_flag(function: F) -> F:
    option = click.option(
        "--audit-topic", default=AUDIT_TOPIC, show_default=True, metavar="TOPIC", help="Where the counts are."
    )
    return option(function)


def window_flag(function: F) -> F:
    option = click.option(
        "--window", default="1h", show_default=True, metavar="TIME", help="The windows' size: 10m, 1h, PT15M."
    )
    return option(function)


def rules_flags(function: F) -> F:
    options = [
        click.option("--tier", default="lake", show_default=True, help="The tier that must be complete."),
        window_flag,
        click.option(
            "--threshold",
            type=click.FloatRange(0, 1, min_open=True),
            default=0.999,
            show_default=True,
            help="A window is complete with this part of what the tiers before have counted.",
        ),
        click.option(
            "--delay", default="30s", show_default=True, metavar="TIME", help="So long after its end a window is over."
        ),
        click.option(
            "--silence",
            default="5m",
            show_default=True,
            metavar="TIME",
            help="A producer that was silent for so long is not waited for while others report.",
        ),
        click.option(
            "--trust-silence", is_flag=True, help="Wait for no counter that was silent for so long, brokers' included."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def rules_of(
    tier: str, window: str, threshold: float, delay: str, silence: str, trust_silence: bool
) -> CompletenessRules:
    from ottla.audit.completeness import CompletenessRules

    return CompletenessRules(
        tier,
        duration_ms(window, "--window"),
        threshold,
        duration_ms(delay, "--delay"),
        duration_ms(silence, "--silence"),
        trust_silence,
    )

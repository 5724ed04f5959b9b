from __future__ import annotations

import signal

import pytest

from ottla.runtime.interrupts import SIGNALS, Interrupts, StopRequest


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_noted_and_raises_only_where_it_is_checked(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(number)
        assert interrupts.came
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_the_first_signal_requests_the_end_and_the_second_interrupts() -> None:
    with StopRequest() as stop:
        assert not stop.is_made()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_made()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_former_handlers_are_restored() -> None:
    former = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != former
    assert [signal.getsignal(number) for number in SIGNALS] == former

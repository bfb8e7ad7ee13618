"""No sequence of requests takes the broker down: former findings, and some histories of the fuzzer."""

from collections.abc import Sequence

import pytest

from tests.broker import fuzz

CORPUS = fuzz.corpus()


@pytest.mark.parametrize("name", CORPUS)
def test_a_sequence_that_was_once_a_finding_is_none(name: str) -> None:
    fuzz.replay(*CORPUS[name])


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_lives_through_whatever_it_is_asked(seed: int) -> None:
    assert fuzz.history(seed, 400)["send"] > 350


def test_a_file_of_the_corpus_tells_the_events_that_are_in_it() -> None:
    events = [fuzz.Event("send", 3, b"frame"), fuzz.Event("wait", 20), fuzz.Event("cut")]
    assert fuzz.read("# why\nseed 7\n" + "\n".join(map(str, events))) == (7, events)


def test_what_shows_a_fault_is_shortened_to_what_it_needs() -> None:
    happened = [fuzz.Event("wait", number) for number in range(100)]

    def shows(some: Sequence[fuzz.Event]) -> bool:
        return {13, 77} <= {event.number for event in some}

    assert [event.number for event in fuzz.smallest(happened, shows)] == [13, 77]

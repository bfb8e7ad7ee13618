"""The checker of live histories finds each violation that is planted, and none in a correct history."""

from tests.live.history import At, History, Told, violations

AT = At("t", 0)


def test_a_correct_history_has_no_violations() -> None:
    history = History(
        acknowledged=[Told(AT, 0, "w:0"), Told(AT, 2, "w:1")],
        seen=[Told(AT, 0, "w:0")],
        commits=[("g", AT, 1), ("g", AT, 1), ("g", AT, 3)],
        committed=[frozenset({"w:0", "w:1"})],
        aborted=[frozenset({"w:7"})],
    )
    assert violations(history, {AT: {0: "w:0", 2: "w:1"}}) == []


def test_an_acknowledged_record_that_is_missing_is_found() -> None:
    history = History(acknowledged=[Told(AT, 1, "w:1")])
    assert violations(history, {AT: {0: "w:0"}}) == ["t-0: w:1 was acknowledged at 1, where None is"]


def test_a_record_that_changed_after_a_consumer_saw_it_is_found() -> None:
    history = History(seen=[Told(AT, 0, "w:0")])
    assert violations(history, {AT: {0: "v:0"}}) == ["t-0: a consumer saw w:0 at 0, where v:0 is"]


def test_records_twice_or_out_of_order_are_found() -> None:
    assert violations(History(), {AT: {0: "w:1", 1: "w:1", 2: "w:0"}}) == [
        "t-0: w:1 is twice, behind w:1",
        "t-0: w:0 is out of order, behind w:1",
    ]


def test_a_committed_offset_that_goes_back_is_found() -> None:
    history = History(commits=[("g", AT, 5), ("h", AT, 1), ("g", AT, 4)])
    assert violations(history, {}) == ["t-0: the committed offset of g went from 5 to 4"]


def test_transactions_that_are_not_whole_are_found() -> None:
    history = History(committed=[frozenset({"w:0", "w:1"})], aborted=[frozenset({"w:2"})])
    assert violations(history, {AT: {0: "w:0", 1: "w:2"}}) == [
        "a committed transaction lacks ['w:1']",
        "an aborted transaction shows ['w:2']",
    ]


def test_a_copy_is_the_beginning_of_its_source() -> None:
    source = {At("t", 0): {0: "w:0", 3: "w:1", 4: "w:2"}}
    whole, lacking = {At("c", 0): {0: "w:0", 2: "w:1"}}, {At("c", 0): {0: "w:0", 2: "w:2"}}
    assert violations(History(), source | whole, {"c": "t"}) == []
    assert violations(History(), source | lacking, {"c": "t"}) == [
        "c-0: copy 1 is w:2, where the source has w:1"
    ]

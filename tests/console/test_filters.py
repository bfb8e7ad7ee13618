"""The filter of records: what it selects, and what it refuses to be."""

import contextlib
import time

import pytest

from sparklog.client.consumer.consumer import ConsumerRecord
from sparklog_server.console.filters import EXPRESSION_CHARACTERS_MAX, BadExpression, Filter


def record(value: bytes | None, key: bytes | None = b"UA1") -> ConsumerRecord:
    return ConsumerRecord("t", 1, 7, 1000, key, value, (("trace", b"a1"), ("none", None)))


@pytest.mark.parametrize(
    "text",
    [
        "value.delay > 15",
        "value.delay > `15`",
        "value.delay >= 16 && value.delay < 17.5",
        "value.name == 'O\\'Hare' || value.delay == 16",
        "starts_with(key, 'UA')",
        "contains(value.tags, 'late')",
        "value.is_late == true",
        "value.gone == null",
        "!(value.gone)",
        "headers.trace == 'a1'",
        "partition == 1 && offset >= 7 && topic == 't'",
        "value.legs[?miles > 100]",
        "value.legs[0].miles == 500",
        "length(value.tags) == 2",
        'value."a > 1" == 5',
    ],
)
def test_what_is_true_of_the_record_selects_it(text: str) -> None:
    value = b'{"delay": 16, "is_late": true, "tags": ["late", "b"], "legs": [{"miles": 500}], "a > 1": 5}'
    assert Filter(text).selects(record(value))


@pytest.mark.parametrize(
    "text", ["value.delay > 16", "value.legs[?miles > 1000]", "value > 3", "key == 'UA'", "sum(key) == 1"]
)
def test_what_is_not_true_or_does_not_fit_does_not(text: str) -> None:
    assert not Filter(text).selects(record(b'{"delay": 16, "legs": [{"miles": 500}]}'))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "value == null"),
        (b"plain", "value == 'plain'"),
        (b"\xff\x00", "value == 'ff00'"),
        (b"[" * 10_000, "starts_with(value, '[[')"),
        (b"12", "value == 12"),
    ],
)
def test_values_of_every_kind_can_be_compared(value: bytes | None, text: str) -> None:
    assert Filter(text).selects(record(value))


@pytest.mark.parametrize(
    "text",
    [
        "value.[",
        "value.delay >",
        "[value, value]",
        "{a: value}",
        "value[]",
        "[@, @][] | [@, @][] | [@, @][]",
        "sort_by(value, &delay)",
        "map(&a, value)",
        "unknown(value)",
        "value.*",
        "v" * (EXPRESSION_CHARACTERS_MAX + 1),
        "__import__('os')",
        "`[0, 0]`[?`[0, 0]`[?`[0, 0]`[?@]]]",
        "value == `{}`",
    ],
)
def test_what_builds_values_or_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        Filter(text)


@pytest.mark.parametrize("text", ["(" * 200 + "value" + ")" * 200, "!" * 400 + "value", "a" + ".a" * 200])
def test_a_deep_expression_is_allowed_or_refused_and_nothing_else(text: str) -> None:
    with contextlib.suppress(BadExpression):
        Filter(text).selects(record(b"{}"))


def test_a_large_record_is_read_once_and_not_again_for_each_part() -> None:
    value = b'{"a": [' + b",".join(b'{"b": %d}' % number for number in range(20_000)) + b"]}"
    begun = time.process_time()
    assert Filter("value.a[?b > 5][?b > 6][?b > 7] || value.a[?b == 1]").selects(record(value))
    assert time.process_time() - begun < 5

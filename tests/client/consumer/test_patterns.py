"""Patterns that Java and Python read differently."""

import warnings

import pytest

from sparklog import Consumer
from sparklog.client.consumer.patterns import topic_pattern
from sparklog.spark import option_values


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"p\.[a-z&&[^b]]", "an intersection of character classes"),
        ("[[:alpha:]]+", "a character class within a character class"),
        ("[a-c[x-z]]", "a character class within a character class"),
        (r"\Qorders.eu\E", r"the escape \\Q…\\E"),
        (r"\p{Lower}+", r"the escape \\p\{…\}"),
        ("(?<year>[0-9]+)", r"a group \(\?<name>…\)"),
    ],
)
def test_a_construct_that_only_java_reads_is_refused_by_name(pattern: str, named: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=named):
            topic_pattern(pattern)
        with pytest.raises(ValueError, match=named):
            option_values.pattern(pattern)
        with (
            Consumer(bootstrap_servers="127.0.0.1:9", group_id="g") as consumer,
            pytest.raises(ValueError, match=named),
        ):
            consumer.subscribe(pattern=pattern)


@pytest.mark.parametrize(
    "pattern", ["a.*", r"[]a\[&]", "[^]]", "(?<=a)b", "a&&b", r"orders\..+|bills", "(?i)a"]
)
def test_a_pattern_that_both_read_alike_is_compiled(pattern: str) -> None:
    assert topic_pattern(pattern).pattern == pattern

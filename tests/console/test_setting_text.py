"""Values of settings as people write them."""

import pytest

from sparklog_server.console.setting_text import setting_value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", " 1h30m ", "5400000"),
        ("retention.ms", "PT10M", "600000"),
        ("log.retention.hours", "7d", "168"),
        ("log.roll.minutes", "90m", "90"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1.5 MiB", "1572864"),
        ("segment.bytes", "10kB", "10000"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "1000", "1000"),
        ("retention.ms", "soon", "soon"),
        ("segment.bytes", "1G", "1G"),
        ("compression.type", "7d", "7d"),
    ],
)
def test_a_unit_is_that_of_the_name(name: str, text: str, told: str) -> None:
    assert setting_value(name, text) == told


@pytest.mark.parametrize(("name", "text"), [("retention.ms", "7x"), ("log.retention.hours", "90m")])
def test_what_is_no_duration_of_the_unit_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        setting_value(name, text)

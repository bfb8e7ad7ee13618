"""Values with a unit become numbers in the unit of their key; all others stay as they are."""

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.load import load
from sparklog_server.config.settings import broker_keys, key_of
from sparklog_server.config.topic_settings import topic_keys
from sparklog_server.config.units import in_unit_of


@pytest.mark.parametrize(
    ("key", "value", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("max.block.ms", "1m30s", "90000"),
        ("log.retention.hours", "P7D", "168"),
        ("leader.imbalance.check.interval.seconds", "5m", "300"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1.5 gib", "1610612736"),
        ("buffer.memory", "64MB", "64000000"),
        ("batch.size", "16KiB", "16384"),
        ("producer_byte_rate", "1MiB", "1048576"),
        ("log.cleaner.io.max.bytes.per.second", "10MiB", "10485760"),
    ],
)
def test_a_value_with_a_unit_becomes_a_number(key: str, value: str, number: str) -> None:
    assert in_unit_of(key, value) == number


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "soon"),
        ("segment.bytes", ""),
        ("client.id", "7d"),
        ("num.partitions", "3k"),
        ("producer_byte_rate", "1e6"),
        ("auto.offset.reset", "by_duration:PT1H"),
    ],
)
def test_any_other_value_stays_as_it_is(key: str, value: str) -> None:
    assert in_unit_of(key, value) == value


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("retention.ms", "7days", "'7days' is no duration; write 10m"),
        ("retention.ms", "1GiB", "is no duration"),
        ("log.retention.hours", "90m", "takes whole hours"),
        ("segment.bytes", "1G", "write 512KiB, 1GiB, 10MB or a number of bytes"),
        ("segment.bytes", "7d", "is no size"),
        ("segment.bytes", "0.3KiB", "takes whole bytes"),
    ],
)
def test_a_unit_that_does_not_fit_is_refused_with_an_example(key: str, value: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        in_unit_of(key, value)


def test_every_default_of_a_number_is_understood_as_itself() -> None:
    for key in [*broker_keys(), *topic_keys()]:
        assert in_unit_of(key, "17") == "17"


def test_a_start_takes_units_in_assignments() -> None:
    given = load(None, ["log.retention.hours=7d", "log.segment.bytes=1GiB"]).settings.given
    assert (given["log.retention.hours"], given["log.segment.bytes"]) == ("168", "1073741824")
    assert key_of("log.segment.bytes").parse("1073741824") == 1 << 30

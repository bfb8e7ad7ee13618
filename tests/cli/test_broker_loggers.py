"""`sparklog configs --broker-logger`: the levels of a broker's loggers."""

import pytest

from sparklog_server.loggers import LOGGERS
from tests.cli.conftest import Tell


def test_the_levels_are_shown_set_and_deleted(tell: Tell) -> None:
    rows = tell("configs", "describe", "--broker-logger", "1").rows
    assert [row[:4] for row in rows] == [["broker-logger", "1", name, "INFO"] for name in sorted(LOGGERS)]
    assert tell("configs", "set", "--broker-logger", "1", "sparklog.log=DEBUG").code == 0
    (row,) = tell("configs", "describe", "--broker-logger", "1", "sparklog.log").rows
    assert row[2:5] == ["sparklog.log", "DEBUG", "DYNAMIC_BROKER_LOGGER_CONFIG"]
    assert tell("configs", "delete", "--broker-logger", "1", "sparklog.log", "--validate-only").code == 0
    assert tell("configs", "describe", "--broker-logger", "1", "sparklog.log").rows[0][3] == "DEBUG"
    assert tell("configs", "delete", "--broker-logger", "1", "sparklog.log").code == 0
    assert tell("configs", "describe", "--broker-logger", "1", "sparklog.log").rows[0][3] == "INFO"
    assert ["broker-logger", "1"] in tell("configs", "list", "--type", "broker-logger").rows


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("set", "--broker-logger", "1", "none=INFO"), 1, "Logger none does not exist!"),
        (("set", "--broker-logger", "1", "root=loud"), 1, "is not a supported log level"),
        (("set", "--broker-logger", "1", "root+=INFO"), 1, "APPEND operation is not allowed"),
        (("delete", "--broker-logger", "1", "root"), 1, "Removing the log level of the root logger"),
        (("set", "--broker-logger", "default", "root=INFO"), 2, "'default' is not a node id"),
    ],
)
def test_what_is_refused_says_why(tell: Tell, arguments: tuple[str, ...], code: int, message: str) -> None:
    told = tell("configs", *arguments)
    assert (told.code, message in told.err) == (code, True), told.err

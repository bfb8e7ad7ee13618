"""A settings file that is read again: what changes, what waits for a restart, and what refuses the file."""

from pathlib import Path

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.layers import Layers
from sparklog_server.config.load import load
from sparklog_server.config.reload import Reloaded, SettingsFile


class Started:
    """A broker's settings, read from a file that changes."""

    def __init__(self, path: Path, text: str, *assignments: str) -> None:
        self.path = path / "broker.properties"
        self.path.write_text(text)
        self.file = SettingsFile(str(self.path), assignments, is_insecure_allowed=False)
        loaded = load(str(self.path), assignments).settings
        self.static = loaded.with_bound_ports({one.name: 4711 for one in loaded.listeners})

    def after(self, text: str, **dynamic: str) -> Reloaded:
        self.path.write_text(text)
        own = {name.replace("_", "."): value for name, value in dynamic.items()}
        return self.file.reloaded(Layers.of(self.static, broker=own))


def test_a_dynamic_key_changes_and_another_one_waits(tmp_path: Path) -> None:
    started = Started(tmp_path, "sparklog.slow.request.ms=5\nnum.partitions=2\n")
    told = started.after("sparklog.slow.request.ms=7\nnum.partitions=3\nlog.retention.ms=9\n")
    assert told.changed == ("log.retention.ms", "sparklog.slow.request.ms")
    assert told.needs_restart == ("num.partitions",)
    assert told.settings.lines.slow_request_ms == 7
    assert told.settings.topics.retention_ms == 9
    assert (told.settings.num_partitions, told.settings.given["num.partitions"]) == (2, "2")


def test_a_key_that_left_the_file_has_its_default_again(tmp_path: Path) -> None:
    started = Started(tmp_path, "sparklog.slow.request.ms=5\n")
    told = started.after("")
    assert (told.changed, told.settings.lines.slow_request_ms) == (("sparklog.slow.request.ms",), 0)
    assert "sparklog.slow.request.ms" not in told.settings.given


def test_an_equal_file_changes_nothing_and_the_ports_stay(tmp_path: Path) -> None:
    started = Started(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0\nsparklog.slow.request.ms=5\n")
    told = started.after("sparklog.slow.request.ms = 05\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    assert (told.changed, told.needs_restart) == ((), ())
    assert [one.port for one in told.settings.listeners] == [4711]


def test_an_assignment_still_overrides_the_file(tmp_path: Path) -> None:
    started = Started(tmp_path, "", "sparklog.slow.request.ms=9")
    told = started.after("sparklog.slow.request.ms=7\n")
    assert (told.changed, told.settings.lines.slow_request_ms) == ((), 9)


def test_a_dynamic_setting_hides_that_of_the_file(tmp_path: Path) -> None:
    told = Started(tmp_path, "").after("sparklog.slow.request.ms=7\n", sparklog_slow_request_ms="1")
    assert (told.changed, told.overridden) == (("sparklog.slow.request.ms",), ("sparklog.slow.request.ms",))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sparklog.slow.request.ms=soon\n", r"Not a number of type LONG \(.*broker\.properties line 1"),
        ("log.retention.ms=1\nno.such.key=1\n", r"unknown setting no\.such\.key \(.* line 2\)"),
        ("\\u00zz=1\n", "four hexadecimal digits"),
        ("listeners=PLAINTEXT://0.0.0.0:9092\n", "advertised"),
    ],
)
def test_a_file_that_is_wrong_is_refused_whole(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Started(tmp_path, "").after(text)


def test_a_file_that_is_gone_or_not_text_is_refused(tmp_path: Path) -> None:
    started = Started(tmp_path, "")
    started.path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="cannot be read"):
        started.file.reloaded(Layers.of(started.static))
    started.path.unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        started.file.reloaded(Layers.of(started.static))


def test_a_file_that_contradicts_a_dynamic_setting_is_refused(tmp_path: Path) -> None:
    started = Started(tmp_path, "log.dirs=/a,/b\n")
    with pytest.raises(SettingsError):
        started.after("log.dirs=/a,/b\ncordoned.log.dirs=/c\n")

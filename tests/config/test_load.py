"""Settings from a file and from the command line: what is said about a mistake, and what wins."""

from pathlib import Path

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.load import load, parse_properties, settings_of
from sparklog_server.config.settings import BrokerSettings

KAFKAS_SAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def written(directory: Path, text: str) -> str:
    path = directory / "broker.properties"
    path.write_text(text)
    return str(path)


def test_the_sample_that_comes_with_kafka_is_understood(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, KAFKAS_SAMPLE), is_insecure_allowed=True)
    settings = loaded.settings
    assert settings.log_dirs == ("/tmp/kraft-combined-logs",)
    of_clients = [one for one in settings.listeners if one.name not in settings.controller_listener_names]
    assert [str(one) for one in of_clients] == ["PLAINTEXT://:9092"]
    assert str(settings.advertised("PLAINTEXT")) == "PLAINTEXT://localhost:9092"
    assert any("num.io.threads" in warning and "no effect" in warning for warning in loaded.warnings)
    assert not any("num.partitions" in warning for warning in loaded.warnings)


def test_what_is_given_on_the_command_line_wins_over_the_file_and_the_file_over_the_program(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, "num.partitions=3\nnode.id=7\n")
    settings = load(
        path, ["num.partitions=5"], defaults={"num.partitions": "2", "node.id": "2", "log.dirs": "/d"}
    ).settings
    assert (settings.num_partitions, settings.node_id, settings.log_dirs) == (5, 7, ("/d",))


def test_without_a_file_there_is_a_broker_of_one_on_loopback() -> None:
    settings = load().settings
    assert settings == BrokerSettings.of({})
    assert [str(one) for one in settings.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert settings.metadata_log_dir == "./sparklog-data"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("num.partitons=3", "unknown setting num.partitons (FILE line 2), did you mean num.partitions?"),
        (
            "num.partitions=many",
            "many for configuration num.partitions: Not a number of type INT (FILE line 2; num.partitions "
            "takes a whole",
        ),
        (
            "num.partitions=0",
            "Value must be at least 1 (FILE line 2; num.partitions takes a whole number of at least 1)",
        ),
        ("auto.create.topics.enable=yes", "Expected value to be either true or false (FILE line 2"),
        ("log.cleanup.policy=shred", "String must be one of: compact, delete (FILE line 2"),
        ("log.segment.bytes=10", "Value must be at least 1048576 (FILE line 2"),
        (
            "num.io.threads=none",
            "none for configuration num.io.threads: Not a number of type INT (FILE line 2",
        ),
        ("log.cleaner.min.cleanable.ratio=nan", "Not a number of type DOUBLE"),
        ("node.id=1_000", "Not a number of type INT"),
        ("fetch.max.bytes=3000000000", "Not a number of type INT"),
    ],
)
def test_an_error_names_key_value_place_and_what_is_allowed(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, f"# a comment\n{line}\n")
    with pytest.raises(SettingsError) as error:
        load(path)
    assert said.replace("FILE", path) in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.properties cannot be read"):
        load(str(tmp_path / "nowhere.properties"))


def test_an_assignment_needs_an_equals_sign() -> None:
    with pytest.raises(SettingsError, match="key=value"):
        load(assignments=["num.partitions 3"])


def test_a_key_set_twice_in_a_file_is_told(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, "num.partitions=1\nnum.partitions=2\n"))
    assert loaded.settings.num_partitions == 2
    assert "num.partitions is set twice" in loaded.warnings[0]


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\n  b : 2\nc 3\n# d=4\n! e=5\nf=one, \\\n   two\ng=\ng\\=h=i\\u0041\\n\nempty\nlast=end\\"
    entries = [(entry.name, entry.text, entry.where) for entry in parse_properties(text, "f")]
    assert entries == [
        ("a", "1", "f line 1"),
        ("b", "2", "f line 2"),
        ("c", "3", "f line 3"),
        ("f", "one, two", "f line 6"),
        ("g", "", "f line 8"),
        ("g=h", "iA\n", "f line 9"),
        ("empty", "", "f line 10"),
        ("last", "end", "f line 11"),
    ]


def test_half_a_unicode_escape_is_refused_with_its_line() -> None:
    with pytest.raises(SettingsError, match="line 1"):
        parse_properties("a=\\u00", "f")


def test_a_key_with_a_listeners_prefix_or_for_a_plug_in_is_known() -> None:
    entries = parse_properties("listener.name.internal.ssl.keystore.location=/k\nrsm.config.bucket=b\n", "f")
    assert len(settings_of(entries).warnings) == 1

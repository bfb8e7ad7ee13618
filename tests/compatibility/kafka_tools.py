"""Kafka's own command-line tools, run from the jars of a release: each call is a Java process and takes
most of a second.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.compatibility.class_archive import ClassArchive, archive_of, options_with
from tests.tools import KAFKA_JARS, PROJECT, require_kafka_tools

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


def kafka_tool(
    main_class: str,
    *arguments: str | Path,
    given: str = "",
    complaints: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> str:
    """Run a tool with `given` on its standard input; its standard output, once it has ended well and
    warned of nothing but `complaints`. `properties` are those of the JVM.
    """
    run = _run(main_class, arguments, given, properties or {})
    assert run.returncode == 0, run.stderr + run.stdout
    found = [line for line in run.stderr.splitlines() if not line.startswith("Processed a total of")]
    assert sorted(found) == sorted(complaints), "\n".join(found)
    return run.stdout


def all_that_is_said(
    main_class: str, *arguments: str | Path, properties: Mapping[str, str] | None = None
) -> str:
    """Run a tool; all that it prints, complaints and standard error included, for every exit code."""
    run = _run(main_class, arguments, "", properties or {})
    return run.stdout + run.stderr


def java_command(
    main_class: str,
    *arguments: str | Path,
    properties: Mapping[str, str] | None = None,
    options: Sequence[str] | None = None,
) -> list[str]:
    """The command that runs a tool, for those who talk to it while it runs; no test without Java and the
    jars. `options` are the JVM's own, in place of those that use the archive of classes.
    """
    require_kafka_tools()
    log4j = PROJECT / "conf" / "kafka-tools-log4j2.properties"
    command = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={log4j}",
        *(options_with(archive_of("tools")) if options is None else options),
    ]
    command += [f"-D{name}={text}" for name, text in (properties or {}).items()]
    return [*command, "-cp", f"{KAFKA_JARS}/*", main_class, *map(str, arguments)]


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Write a properties file of Java."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _run(
    main_class: str, arguments: Sequence[str | Path], given: str, properties: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    archive = ClassArchive("tools" if "--bootstrap-server" in arguments else "offline-tools")
    command = java_command(main_class, *arguments, properties=properties, options=archive.options)
    ran = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    archive.ended(is_whole=ran.returncode == 0)
    return ran

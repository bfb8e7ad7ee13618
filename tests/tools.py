"""Tools that a user may lack and continuous integration has: without one a test is skipped, which
conftest.py makes a failure in CI.
"""

import os
import shutil
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
KAFKA_JARS = Path(os.environ.get("SPARKLOG_KAFKA_JARS", PROJECT / ".jars" / "kafka"))
DELTA_JARS = PROJECT / ".jars" / "delta"
SPARK_KAFKA_JARS = PROJECT / ".jars" / "spark-kafka"


def require_command(name: str) -> str:
    """The path of a command, or no test."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no `{name}` on this machine")
    return path


def require_kafka_tools() -> None:
    """Java and the jars of a real Kafka, or no test."""
    require_command("java")
    if not any(KAFKA_JARS.glob("kafka-tools-*.jar")):
        pytest.skip(f"no Kafka JARs in {KAFKA_JARS}: `make jars` fetches them with Maven")


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, with the stand-in for what no registry has; none where
    `make jars` could not make them.
    """
    jars = sorted(SPARK_KAFKA_JARS.glob("*.jar"))
    return jars if any(jar.name == "standin.jar" for jar in jars) else []


def require_spark_connector() -> None:
    """Spark's own Kafka connector, or no test."""
    require_command("java")
    if not spark_connector_jars():
        pytest.skip(
            f"no connector JARs in {SPARK_KAFKA_JARS}: `make jars` fetches them with Maven and compiles "
            f"their stand-in"
        )


def require_debian(name: str) -> Path:
    """A program of a Debian package that `make setup` unpacked, or no test."""
    path = PROJECT / ".deb" / "usr" / "bin" / name
    if not path.exists():
        pytest.skip(f"no {name} in .deb: `make setup` unpacks Debian's package where there is apt")
    return path

"""On which listeners Kafka serves each API, by its generated classes."""

import subprocess
from pathlib import Path

import pytest

from sparklog.wire.api_keys import API_BY_KEY, CONTROLLER_ONLY, FORWARDABLE, ON_CONTROLLERS
from tests.tools import KAFKA_JARS, require_kafka_tools

pytestmark = pytest.mark.compat


def test_the_listeners_of_each_api_are_kafkas() -> None:
    require_kafka_tools()
    program = str(Path(__file__).with_name("Listeners.java"))
    told = subprocess.run(
        ["java", "-cp", f"{KAFKA_JARS}/*", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    listeners = {int(key): set(kinds) for key, *kinds in map(str.split, told.splitlines())}
    assert {key for key in API_BY_KEY if listeners[key] == {"controller"}} == CONTROLLER_ONLY
    assert {key for key in API_BY_KEY if "controller" in listeners[key]} == ON_CONTROLLERS
    assert FORWARDABLE <= ON_CONTROLLERS

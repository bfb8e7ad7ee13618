"""`produce` and `consume` while no broker answers: what they say, and when they end."""

import logging
import os
import subprocess
import sys

import click
import pytest

import sparklog
from sparklog.client.logs import AWAY_US, Reports
from sparklog.model import Micros
from sparklog_server.cli.reach import Reach
from tests.cli.conftest import PROGRAM, Tell

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_broker_that_is_not_there_is_waited_for_until_the_timeout(tell: Tell, command: str) -> None:
    told = tell(command, "t", "-b", NOWHERE, "--timeout", "50ms", stdin="a\n")
    first, last = told.err.splitlines()
    assert (told.code, told.out) == (1, "")
    assert first == f"sparklog: broker unreachable, retrying: {NOWHERE} (connection refused)"
    assert last.startswith(f"Error: no broker at {NOWHERE} (connection refused) within 50ms; start one")


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_without_a_timeout_a_broker_that_is_not_there_fails_at_once(tell: Tell, command: str) -> None:
    told = tell(command, "t", "-b", NOWHERE, stdin="a\n")
    assert told.code == 1
    assert told.err.startswith(f"Error: no broker at {NOWHERE} (connection refused); start one")


def test_lines_of_a_client_without_brokers_become_words(capsys: pytest.CaptureFixture[str]) -> None:
    reports = Reports("cli")
    now = Micros(1)
    with Reach((NOWHERE,)) as reach:
        reports.connecting(now, has_others=False)
        reports.failed(NOWHERE, "Connection refused", now, was_ready=False)
        with pytest.raises(click.ClickException, match=r"no broker at .* for 2s; start one"):
            reach.raise_if_lost(2_000)
        reports.looked("Connection refused", (NOWHERE,), Micros(now + AWAY_US))
        assert capsys.readouterr().err == (
            f"sparklog: broker unreachable, retrying: {NOWHERE} (connection refused)\n"
        )
        reports.connected(NOWHERE, Micros(now + AWAY_US + 1))
        assert capsys.readouterr().err == "sparklog: a broker is reachable again\n"
        reach.raise_if_lost(2_000)
    assert not logging.getLogger("sparklog.client").handlers


def test_a_broker_that_fails_is_no_loss_while_another_answers() -> None:
    reports = Reports("cli")
    with Reach((NOWHERE,)) as reach:
        reports.connected("other:9092", Micros(1))
        reports.failed(NOWHERE, "Connection refused", Micros(2), was_ready=True)
        reach.raise_if_lost(1)


def test_a_producer_whose_broker_goes_away_ends_with_the_reason(topic: str) -> None:
    with (
        sparklog.embedded() as broker,
        _started("produce", topic, broker.bootstrap_servers, "--create") as child,
    ):
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(b"one\n" * 50_000)
        child.stdin.flush()
        broker.close()
        _, err = child.communicate(b"two\n" * 100, timeout=60)
    assert child.returncode == 1
    assert b"Connection refused" in err or b"reset" in err.lower(), err
    assert b"Traceback" not in err


def test_a_consumer_whose_broker_goes_away_ends_with_the_reason(topic: str) -> None:
    with sparklog.embedded() as broker:
        with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"one").result()
        with _started("consume", topic, broker.bootstrap_servers, "--from", "beginning") as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"one\n"
            broker.close()
            out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (1, b"")
    assert b"no broker at" in err
    assert b"Traceback" not in err


def _started(command: str, topic: str, server: str, *more: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, command, topic, "-b", server, "--timeout", "1s", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )

"""The program as a user meets it: its start, its end and its errors."""

import contextlib
import signal
import socket
import time
from pathlib import Path

import pytest

from sparklog.wire.header import encode_request
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.daemon.broker_process import (
    API_VERSIONS,
    BrokerProcess,
    broker,
    is_answered,
    is_served,
    receive_until_closed,
)


def test_it_says_ready_once_and_ends_cleanly_within_a_second_of_sigterm(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process:
        process.address()
        asked_s = time.monotonic()
        code, out, err = process.end(signal.SIGTERM)
        assert (code, out) == (0, "")
        assert time.monotonic() - asked_s < 1
        assert err.splitlines()[-1].split()[1] == "stopped"


def test_ctrl_c_is_a_clean_end_too(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process:
        process.address()
        assert process.end(signal.SIGINT)[0] == 0


def test_sigusr1_writes_where_each_thread_is(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process, socket.create_connection(process.address()) as client:
        process.child.send_signal(signal.SIGUSR1)
        assert is_served(client)
        _, _, err = process.end(signal.SIGTERM)
    assert "daemon/server.py" in err


def inherits_sighup(handler: signal.Handlers, directory: Path) -> BrokerProcess:
    """A broker whose parent process has this handler, so that tests under nohup do not differ."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        return broker(directory)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_goes_away_is_a_clean_end_too(tmp_path: Path) -> None:
    with inherits_sighup(signal.SIG_DFL, tmp_path / "data") as process:
        process.address()
        code, _, err = process.end(signal.SIGHUP)
    assert (code, err.splitlines()[-1].split()[1]) == (0, "stopped")


def test_sighup_together_with_sigterm_is_a_clean_end(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process:
        process.address()
        process.child.send_signal(signal.SIGTERM)
        assert process.end(signal.SIGHUP)[0] == 0


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    process = inherits_sighup(signal.SIG_IGN, tmp_path / "data")
    with process, socket.create_connection(process.address()) as client:
        process.child.send_signal(signal.SIGHUP)
        assert is_served(client)
        assert process.end(signal.SIGTERM)[0] == 0


def test_it_ends_cleanly_with_clients_connected(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process, socket.create_connection(process.address()) as client:
        assert is_served(client)
        assert process.end(signal.SIGTERM)[0] == 0
        receive_until_closed(client)


def test_it_starts_again_after_a_clean_end_and_after_a_crash(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with broker(tmp_path / "data") as process:
            with socket.create_connection(process.address()) as client:
                assert is_served(client)
            process.end(number)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "num.partitons=3"), "num.partitions"),
        (("--set", "num.partitions=none"), "num.partitions"),
        (("--set", "num.partitions"), "key=value"),
        (("--listen", "nowhere"), "nowhere"),
        (("--listen", "192.0.2.1:0"), "--insecure"),
        (("--config", "/nonexistent/server.properties"), "/nonexistent/server.properties"),
        (("--no-such-option",), "--no-such-option"),
        (("--set", "process.roles=broker"), "set controller.quorum.bootstrap.servers=HOST:PORT"),
    ],
)
def test_settings_that_cannot_be_are_named_and_end_with_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with BrokerProcess("--data-dir", str(tmp_path / "data"), *arguments) as process:
        code, out, err = process.end()
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_wrong_line_of_the_settings_file_is_told_by_number(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("# mine\nnode.id=1\nlog.segment.bytes=many\n")
    with BrokerProcess("--config", str(config)) as process:
        code, _, err = process.end()
    assert code == 2
    assert f"{config} line 3" in err
    assert "log.segment.bytes" in err
    assert "many" in err


def test_a_port_in_use_is_named_and_ends_with_1(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with BrokerProcess("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}") as process:
            code, out, err = process.end()
    assert (code, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in err


def test_a_data_directory_in_use_is_named_and_ends_with_1(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as first:
        first.address()
        with broker(tmp_path / "data") as second:
            code, out, err = second.end()
        assert (code, out) == (1, "")
        assert str(tmp_path / "data") in err
        assert "in use" in err
        assert first.end(signal.SIGTERM)[0] == 0


def test_a_data_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with broker(tmp_path / name) as process:
            process.address()
            process.end(signal.SIGTERM)
    with BrokerProcess(
        "--listen", "127.0.0.1:0", "--set", f"log.dirs={tmp_path / 'one'},{tmp_path / 'other'}"
    ) as process:
        code, out, err = process.end()
    assert (code, out) == (1, "")
    assert "cluster" in err
    assert str(tmp_path / "other") in err
    assert "Traceback" not in err


def test_a_data_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process:
        process.address()
        process.end(signal.SIGTERM)
    with broker(tmp_path / "data", "--node-id", "77") as process:
        code, out, err = process.end()
    assert (code, out) == (1, "")
    assert "node" in err
    assert "77" in err
    assert str(tmp_path / "data") in err
    assert "Traceback" not in err


def test_a_node_of_a_cluster_that_was_not_formatted_is_refused(tmp_path: Path) -> None:
    broker_of_others = (
        *("--set", "process.roles=broker", "--set", "controller.listener.names=CONTROLLER"),
        *("--set", "controller.quorum.bootstrap.servers=127.0.0.1:9093"),
    )
    with broker(tmp_path / "data", *broker_of_others) as process:
        code, out, err = process.end()
    assert (code, out) == (1, "")
    assert "run `sparklog format --cluster-id ID --no-initial-controllers`" in err
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_python_o_is_refused(tmp_path: Path) -> None:
    with BrokerProcess("--data-dir", str(tmp_path / "data"), flags=("-O",)) as process:
        code, _, err = process.end()
    assert code == 2
    assert "python -O" in err


def test_an_address_that_others_can_reach_is_served_when_asked_for(tmp_path: Path) -> None:
    settings = ["--set", "advertised.listeners=PLAINTEXT://127.0.0.1:19092", "--insecure"]
    with BrokerProcess("--data-dir", str(tmp_path / "data"), "--listen", "0.0.0.0:0", *settings) as process:
        _, port = process.address()
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert is_served(client)


def test_a_connection_beyond_the_limit_of_its_address_is_closed_and_logged_once(tmp_path: Path) -> None:
    with broker(tmp_path / "data", "--set", "max.connections.per.ip=1") as process:
        address = process.address()
        with socket.create_connection(address) as first:
            assert is_served(first)
            for _ in range(3):
                with socket.create_connection(address) as refused:
                    assert receive_until_closed(refused) == b""
            assert is_served(first)
        _, _, err = process.end(signal.SIGTERM)
    assert err.count("connection-refused") == 1
    assert "max.connections.per.ip=1" in err


def test_beyond_the_rate_of_connections_who_comes_is_admitted_later(tmp_path: Path) -> None:
    rate = ["--set", "max.connection.creation.rate=1", "--set", "quota.window.num=2"]
    with broker(tmp_path / "data", *rate) as process, contextlib.ExitStack() as open_until_then:
        address = process.address()
        began_s = time.monotonic()
        for _ in range(3):
            client = open_until_then.enter_context(socket.create_connection(address))
            assert is_served(client)
        assert time.monotonic() - began_s >= 1.0
        process.end(signal.SIGTERM)


def test_beyond_the_rate_of_its_address_a_connection_is_held_and_closed_unserved(tmp_path: Path) -> None:
    entity = [EntityData("ip", "127.0.0.1")]
    quota = AlterClientQuotasRequest(
        [AlterClientQuotasRequestEntryData(entity, [OpData("connection_creation_rate", 1.0)])]
    )
    with broker(tmp_path / "data", "--set", "quota.window.num=2") as process:
        address = process.address()
        with socket.create_connection(address) as first:
            first.sendall(b"".join(map(bytes, encode_request(quota, 1, 7, "test"))))
            assert first.recv(4096)[4:8] == (7).to_bytes(4, "big")
            with socket.create_connection(address) as second:
                assert is_served(second)
                with socket.create_connection(address) as third:
                    third.sendall(API_VERSIONS)
                    began_s = time.monotonic()
                    assert receive_until_closed(third) == b""
                    assert time.monotonic() - began_s >= 0.3
                assert is_served(second)
        process.end(signal.SIGTERM)


def test_a_limit_of_connections_that_is_set_while_running_closes_whoever_was_silent_longest_and_lets_others_wait(  # noqa: E501
    tmp_path: Path,
) -> None:
    changes = [AlterConfigsResource(4, "", [AlterableConfig("max.connections", 0, "1")])]
    request = b"".join(
        map(bytes, encode_request(IncrementalAlterConfigsRequest(resources=changes), 1, 7, "test"))
    )
    with broker(tmp_path / "data") as process, contextlib.ExitStack() as connected:
        address = process.address()
        silent, first = (connected.enter_context(socket.create_connection(address)) for _ in range(2))
        assert is_served(silent)
        first.sendall(request)
        assert first.recv(4096)[4:8] == (7).to_bytes(4, "big")
        assert receive_until_closed(silent) == b""
        with socket.create_connection(address) as waiting:
            waiting.sendall(API_VERSIONS)
            first.close()
            assert is_answered(waiting)
        _, _, err = process.end(signal.SIGTERM)
    assert "settings-changed keys=max.connections" in err

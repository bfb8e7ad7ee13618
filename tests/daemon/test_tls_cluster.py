"""Three nodes with mutual TLS among them: controllers, replicas and clients."""

import re
import select
import ssl
from pathlib import Path

import pytest

from sparklog import Admin, Producer
from tests.certificates import Issued, authority, issued, server_settings
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess, stored_by
from tests.daemon.test_tls import connected, is_served, presenting, trusting

# The names of the listeners are those of `sparklog cluster start`.
PROTOCOLS = "PLAINTEXT:SSL,CONTROLLER:SSL"


def cluster(directory: Path, served: Issued, **more: str) -> BrokerProcess:
    settings = server_settings(
        directory, served, listener_security_protocol_map=PROTOCOLS, ssl_client_auth="required", **more
    )
    del settings["listeners"]
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return BrokerProcess(
        "--nodes",
        "3",
        "--base-port",
        "0",
        "--data-dir",
        str(directory / "data"),
        *arguments,
        verb=("cluster", "start"),
    )


def servers_of(nodes: BrokerProcess) -> str:
    readable, _, _ = select.select([nodes.stdout], [], [], PATIENCE_S)
    line = nodes.stdout.readline() if readable else ""
    match = re.search(r"listen=(\S+)", line)
    assert match is not None, (line, nodes.end())
    return match[1]


@pytest.mark.timeout(120)
def test_three_nodes_with_mutual_tls_replicate_and_survive_a_change_of_certificates(tmp_path: Path) -> None:
    node, client = issued("CN=node"), issued("CN=client")
    tls: dict[str, str] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": str(tmp_path / "ca.pem"),
        "ssl_keystore_location": str(client.write_pem(tmp_path / "client.pem")),
    }
    with cluster(tmp_path, node, sparklog_ssl_reload_interval_ms="50") as nodes:
        servers = servers_of(nodes)
        with Admin(bootstrap_servers=servers, **tls) as admin:  # type: ignore[arg-type]
            admin.create_topics({"t": 3})
        values = [b"%d" % number for number in range(300)]
        with Producer(bootstrap_servers=servers, **tls) as producer:  # type: ignore[arg-type]
            for number, value in enumerate(values):
                producer.send("t", value=value, partition=number % 3)
                if number == 150:
                    producer.flush()
                    authority().issue("CN=node").write_pem(tmp_path / "next.pem").replace(
                        tmp_path / "server.pem"
                    )
        assert sorted(stored_by(servers, "t", 3, **tls)) == sorted(values)
        port = int(servers.split(",")[0].rpartition(":")[2])
        with (
            connected(("127.0.0.1", port), trusting()) as stranger,
            pytest.raises(ssl.SSLError, match="alert certificate required"),
        ):
            stranger.recv(1)
        with connected(("127.0.0.1", port), presenting(tmp_path, client)) as known:
            assert is_served(known)

"""The settings on the page about security make a node that its administrator reaches by TLS."""

import signal
from pathlib import Path

from sparklog_server.cli.main import main
from tests.certificates import authority, issued
from tests.cli.conftest import Tell
from tests.compatibility.kafka_broker import free_ports
from tests.daemon.broker_process import BrokerProcess
from tests.documents import blocks


def test_the_first_user_of_a_secure_node_changes_its_own_password(tmp_path: Path, tell: Tell) -> None:
    issued("CN=broker1").write_pem(tmp_path / "broker1.pem")
    authority().write(tmp_path / "ca.pem")
    texts = [
        block.text.replace("/etc/sparklog", str(tmp_path)).replace(
            "/var/lib/sparklog", str(tmp_path / "data")
        )
        for block in blocks("docs/security.md")
    ]
    (node,) = (text for text in texts if text.startswith("node.id=1\n"))
    (client,) = (text for text in texts if text.startswith("bootstrap.servers=localhost:9092\n"))
    for port, free in zip(("9091", "9092", "9093"), free_ports(3), strict=True):
        node = node.replace(f":{port}", f":{free}")
    config = tmp_path / "broker1.properties"
    config.write_text(node)
    (commands,) = (text for text in texts if text.startswith("sparklog format --config"))
    format_command = commands.splitlines()[0].replace("broker1.properties", str(config)).replace("'", "")
    assert main(format_command.split()[1:]) == 0

    with BrokerProcess("--config", str(config)) as process:
        _, port = process.address()
        admin = tmp_path / "admin.properties"
        admin.write_text(client)
        options = ("--command-config", str(admin), "-b", f"localhost:{port}")
        assert tell("users", "password", "admin", *options, stdin="second")[:2] == (0, "")
        assert tell("users", "list", *options).code == 1
        admin.write_text(client.replace('"first"', '"second"'))
        assert tell("users", "list", *options).rows == [["admin", "SCRAM-SHA-512", "8192"]]
        code, _, err = process.end(signal.SIGTERM)
    assert code == 0
    assert "first" not in err
    assert "second" not in err

"""The files of `--command-config`: one meaning in three forms, and what is refused."""

from pathlib import Path

import pytest

from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog_server.cli.client_files import read_client_file
from tests.certificates import authority, issued
from tests.cli.conftest import Tell

PROPERTIES = """
# a comment
security.protocol = SASL_SSL
ssl.truststore.location = /ca.pem
sasl.mechanism : SCRAM-SHA-512
sasl.username a
sasl.password = \\
    p=1
"""
RDKAFKA = """
# a comment
metadata.broker.list=h:1
security.protocol=sasl_ssl
ssl.ca.location=/ca.pem
sasl.mechanisms=SCRAM-SHA-512
sasl.username=a
sasl.password=p=1
"""
PYTHON = """
# a comment
security_protocol = "SASL_SSL"
ssl.truststore.location = "/ca.pem"
"sasl.mechanism" = "SCRAM-SHA-512"
sasl_username = "a"
sasl_password = "p=1"
"""
EXPECTED = {
    "security.protocol": "SASL_SSL",
    "ssl.truststore.location": "/ca.pem",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "a",
    "sasl.password": "p=1",
}


def read(directory: Path, name: str, text: str) -> dict[str, str]:
    path = directory / name
    path.write_text(text)
    return read_client_file(str(path))


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("client.properties", PROPERTIES, {}),
        ("config", PROPERTIES, {}),
        ("client.conf", RDKAFKA, {"bootstrap.servers": "h:1"}),
        ("client.toml", PYTHON, {}),
    ],
)
def test_each_kind_of_file_gives_the_settings_by_kafkas_names(
    tmp_path: Path, name: str, text: str, more: dict[str, str]
) -> None:
    assert read(tmp_path, name, text) == EXPECTED | more


def test_values_of_toml_become_texts(tmp_path: Path) -> None:
    text = 'bootstrap_servers = ["a:1", "b:2"]\nenable_idempotence = true\nlinger_ms = 5\n'
    found = read(tmp_path, "client.toml", text)
    assert found == {"bootstrap.servers": "a:1,b:2", "enable.idempotence": "true", "linger.ms": "5"}


def test_the_key_and_certificate_of_librdkafka_are_files_or_texts(tmp_path: Path) -> None:
    client = issued("CN=client")
    (tmp_path / "key.pem").write_text(client.key_pem("secret"))
    (tmp_path / "client.pem").write_text(client.chain_pem)
    found = read(
        tmp_path,
        "client.conf",
        f"security.protocol=ssl\nssl.key.location={tmp_path}/key.pem\nssl.key.password=secret\n"
        f"ssl.certificate.location={tmp_path}/client.pem\nssl.endpoint.identification.algorithm=none\n"
        "ssl.ca.pem=" + authority().pem.replace("\n", "\\n") + "\n",
    )
    keys = ClientSettings.from_kafka(found).tls
    assert (keys.keystore_key, keys.key_password) == ((tmp_path / "key.pem").read_text(), "secret")
    assert keys.keystore_certificate_chain == client.chain_pem
    assert (keys.truststore_certificates, keys.verifies_names) == (authority().pem, False)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("client.conf", "a=1\nnonsense\n", "line 2 is not name=value"),
        ("client.toml", "a = b", "is not TOML"),
        ("client.conf", "ssl.key.location=/absent/key.pem\n", "/absent/key.pem cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read(tmp_path, name, text)


def test_an_address_of_the_command_line_wins_over_the_file_and_the_file_over_the_environment(
    tell: Tell, tmp_path: Path
) -> None:
    """The broker of the tests is in the environment."""
    file = tmp_path / "client.toml"
    file.write_text('bootstrap_servers = "127.0.0.1:1"\n')
    of_file = tell("topics", "list", "--command-config", str(file))
    of_line = tell("topics", "list", "--command-config", str(file), "-b", "127.0.0.1:2")
    assert ("127.0.0.1:1 " in of_file.err, "127.0.0.1:2 " in of_line.err) == (True, True)
    file.write_text("client_id = 'mine'\n")
    assert tell("topics", "list", "--command-config", str(file)).code == 0

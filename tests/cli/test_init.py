"""`sparklog init --secure` and `sparklog certificates`: the files, who can read them, and what is refused."""

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from sparklog_server.cli.client_files import read_client_file
from sparklog_server.config.load import load
from sparklog_server.config.settings import BrokerSettings
from tests.certificates import authority
from tests.cli.conftest import Tell, Told


def init(tell: Tell, directory: Path, *more: str) -> Told:
    told = tell("init", "--secure", str(directory), *more)
    assert (told.code, told.err) == (0, ""), told.err
    return told


def settings_of(directory: Path, node: int) -> BrokerSettings:
    loaded = load(str(directory / f"node-{node}.properties"))
    assert loaded.warnings == ()
    return loaded.settings


def listeners(directory: Path, node: int) -> list[str]:
    return [str(one) for one in settings_of(directory, node).listeners]


def names(pem: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def test_only_the_owner_reads_what_is_written(tell: Tell, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    init(tell, tmp_path / "c", "--nodes", "3")
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "c").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    written = {path.name for path in modes if path.parent == tmp_path / "c" and path.is_file()}
    of_nodes = {f"node-{node}.{kind}" for node in (1, 2, 3) for kind in ("pem", "properties")}
    assert written == of_nodes | {"ca.pem", "ca-key.pem"} | {
        f"client.{kind}" for kind in ("properties", "conf", "toml")
    }


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ((), "sparklog start --config {}/node-1.properties"),
        (("--nodes", "3"), "sparklog cluster start --config-dir {}"),
        (("--nodes", "2", "--host", "a,b"), "sparklog start --config {}/node-ID.properties"),
    ],
)
def test_it_says_the_commands_that_come_next(
    tell: Tell, tmp_path: Path, arguments: tuple[str, ...], start: str
) -> None:
    directory = tmp_path / "c"
    assert init(tell, directory, *arguments).out.splitlines() == [
        start.format(directory),
        f"sparklog topics create orders --command-config {directory}/client.properties",
        f"sparklog produce orders --command-config {directory}/client.properties",
    ]


def test_nodes_trust_certificates_and_clients_have_passwords(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c", "--nodes", "3")
    settings = settings_of(tmp_path / "c", 2)
    assert listeners(tmp_path / "c", 2) == [
        "CLIENT://127.0.0.1:9093",
        "BROKER://127.0.0.1:9099",
        "CONTROLLER://127.0.0.1:9096",
    ]
    assert [one.protocol for one in settings.listeners] == ["SASL_SSL", "SSL", "SSL"]
    assert (settings.inter_broker_listener_name, settings.tls.ssl_client_auth) == ("BROKER", "required")
    assert settings.access.super_users == {"User:admin", *(f"User:CN=node-{node}" for node in (1, 2, 3))}
    assert settings.access.has_authorizer
    assert (settings.default_replication_factor, settings.topics.min_insync_replicas) == (3, 2)


def test_the_clients_have_the_same_password_and_address(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c", "--base-port", "7000")
    rdkafka, python = (read_client_file(str(tmp_path / "c" / f"client.{kind}")) for kind in ("conf", "toml"))
    java = read_client_file(str(tmp_path / "c" / "client.properties"))
    assert rdkafka == {name: text for name, text in python.items() if name != "ssl.truststore.type"}
    assert f'username="admin" password="{python["sasl.password"]}"' in java.pop("sasl.jaas.config")
    assert java == {name: text for name, text in python.items() if name[:9] not in ("sasl.user", "sasl.pass")}
    assert python["bootstrap.servers"] == "127.0.0.1:7000"
    assert len(python["sasl.password"]) >= 32


def test_a_password_is_drawn_each_time(tell: Tell, tmp_path: Path) -> None:
    for name in ("a", "b"):
        init(tell, tmp_path / name)
    drawn = [tomllib.loads((tmp_path / name / "client.toml").read_text())["sasl_password"] for name in "ab"]
    assert drawn[0] != drawn[1]


def test_with_a_host_the_node_listens_on_every_address_without_insecure(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c", "--host", "kafka.example.com", "--host", "10.1.2.3")
    assert listeners(tmp_path / "c", 1)[0] == "CLIENT://0.0.0.0:9092"
    advertised = [str(one) for one in settings_of(tmp_path / "c", 1).advertised_listeners]
    assert advertised == [
        "CLIENT://kafka.example.com:9092",
        "BROKER://kafka.example.com:9094",
        "CONTROLLER://kafka.example.com:9093",
    ]
    own = {"kafka.example.com", "10.1.2.3", "localhost", "127.0.0.1", "::1"}
    assert names(tmp_path / "c" / "node-1.pem") == own


def test_with_a_host_for_each_node_the_ports_are_the_same_on_each(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c", "--nodes", "2", "--host", "a", "--host", "fd00::2")
    assert listeners(tmp_path / "c", 2)[0] == "CLIENT://[::]:9092"
    assert settings_of(tmp_path / "c", 1).quorum.bootstrap_servers == (("a", 9093), ("fd00::2", 9093))
    assert names(tmp_path / "c" / "node-1.pem") == {"a", "localhost", "127.0.0.1", "::1"}


def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    told = tell("init", "--secure", str(tmp_path))
    assert (told.code, "not empty" in told.err) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "0"), "--nodes 0"),
        (("--base-port", "65535"), "below 65536"),
        (("--host", "0.0.0.0"), "no name that clients can connect to"),
        (("--host", "a b"), "neither a host name nor an IP address"),
        (("--nodes", "2", "--host", "a,b", "--base-port", "0"), "--base-port 0"),
        (("--set", "num.partitons=3"), "num.partitions"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    tell: Tell, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    told = tell("init", "--secure", str(tmp_path / "c"), *arguments)
    assert (told.code, said in told.err) == (2, True), told.err
    assert not (tmp_path / "c").exists()


def test_certificates_are_shown_with_their_end(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c", "--nodes", "2")
    shown = tell("certificates", "show", str(tmp_path / "c"))
    assert shown.code == 0
    assert [(row[0], row[4]) for row in shown.rows] == [
        ("ca.pem", "3649"),
        ("node-1.pem", "396"),
        ("node-2.pem", "396"),
    ]
    assert shown.rows[1][1:3] == ["CN=node-1", "localhost,127.0.0.1,::1"]


def test_a_certificate_that_has_ended_is_a_failure(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c")
    authority().issue("CN=node-1", days_old=2).write_pem(tmp_path / "c" / "node-1.pem")
    shown = tell("certificates", "show", str(tmp_path / "c"), "--json")
    assert (shown.code, shown.json[1]["days"] < 0) == (1, True)


def test_renewing_replaces_key_and_certificate_and_keeps_subject_names_and_mode(
    tell: Tell, tmp_path: Path
) -> None:
    init(tell, tmp_path / "c", "--host", "h.example.com")
    pem = tmp_path / "c" / "node-1.pem"
    before = x509.load_pem_x509_certificate(pem.read_bytes())
    told = tell("certificates", "renew", str(tmp_path / "c"))
    after = x509.load_pem_x509_certificate(pem.read_bytes())
    assert [row[:2] for row in told.rows] == [["renewed", str(pem)]]
    assert (after.subject, after.issuer, names(pem)) == (
        before.subject,
        before.issuer,
        {"h.example.com", "localhost", "127.0.0.1", "::1"},
    )
    assert after.public_key() != before.public_key()
    assert after.not_valid_after_utc > datetime.now(UTC) + timedelta(days=390)
    assert pem.stat().st_mode & 0o777 == 0o600


def test_without_the_key_of_the_authority_nothing_is_renewed(tell: Tell, tmp_path: Path) -> None:
    init(tell, tmp_path / "c")
    (tmp_path / "c" / "ca-key.pem").unlink()
    before = (tmp_path / "c" / "node-1.pem").read_bytes()
    told = tell("certificates", "renew", str(tmp_path / "c"))
    assert (told.code, "where `sparklog init` ran" in told.err) == (2, True)
    assert (tmp_path / "c" / "node-1.pem").read_bytes() == before


def test_a_node_that_is_added_has_a_certificate_of_the_authority_for_its_hosts(
    tell: Tell, tmp_path: Path
) -> None:
    init(tell, tmp_path / "c")
    told = tell("certificates", "add", str(tmp_path / "c"), "4", "--host", "d.example.com")
    pem = tmp_path / "c" / "node-4.pem"
    assert [row[:2] for row in told.rows] == [["added", str(pem)]]
    certificate = x509.load_pem_x509_certificate(pem.read_bytes())
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "c" / "ca.pem").read_bytes())
    )
    assert certificate.subject.rfc4514_string() == "CN=node-4"
    assert names(pem) == {"d.example.com", "localhost", "127.0.0.1", "::1"}
    assert pem.stat().st_mode & 0o777 == 0o600
    again = tell("certificates", "add", str(tmp_path / "c"), "4")
    assert (again.code, "node-4.pem exists" in again.err) == (2, True)
    nameless = tell("certificates", "add", str(tmp_path / "c"), "5", "--host", "not a name")
    assert (nameless.code, "neither a host name" in nameless.err) == (2, True)


def test_a_new_authority_is_trusted_beside_the_old_one_until_that_is_retired(
    tell: Tell, tmp_path: Path
) -> None:
    directory = tmp_path / "c"
    init(tell, directory)
    ca, pem = directory / "ca.pem", directory / "node-1.pem"
    (old,) = x509.load_pem_x509_certificates(ca.read_bytes())
    assert tell("certificates", "renew-authority", str(directory)).rows[0][3] == "trusted=2"
    fresh, kept = x509.load_pem_x509_certificates(ca.read_bytes())
    assert (kept, fresh.subject == old.subject) == (old, False)
    assert len(tell("certificates", "show", str(directory)).rows) == 3
    early = tell("certificates", "retire-authority", str(directory))
    assert (early.code, "is signed by an earlier authority" in early.err) == (2, True)
    assert tell("certificates", "renew", str(directory)).code == 0
    x509.load_pem_x509_certificate(pem.read_bytes()).verify_directly_issued_by(fresh)
    assert tell("certificates", "retire-authority", str(directory)).code == 0
    assert x509.load_pem_x509_certificates(ca.read_bytes()) == [fresh]
    assert (directory / "ca-key.pem").stat().st_mode & 0o777 == 0o600

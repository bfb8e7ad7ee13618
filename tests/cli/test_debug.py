"""`sparklog debug bundle`: what is inside, and that no secret and no record is."""

import json
import re
import zipfile
from pathlib import Path

import pytest

import sparklog
from sparklog import Admin, Producer
from sparklog.client.admin.admin import NewTopic
from sparklog.client.admin.credentials import ScramUpsertion
from sparklog.record.batch import build_batch
from sparklog_server.cli.debug_bundle import head_of
from sparklog_server.cli.debug_secrets import REMOVED, Scrubber, is_secret, without_secrets
from tests.cli.conftest import Tell
from tests.daemon.http_nodes import HttpNode, http_broker

PASSWORD = 'opensesame-"ä7'
RECORD = "the-value-of-a-record"
TOKEN = "ya29.a0AfH6SMBx"


def parts(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_bundle_of_a_live_node_has_every_part(tmp_path: Path, tell: Tell) -> None:
    data, output = tmp_path / "data", tmp_path / "b.zip"
    log = tmp_path / "node log"
    log.write_text("first\n2026-01-01T00:00:00.000Z ready node=1\n")
    with http_broker(data) as process:
        node = HttpNode(process)
        with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", configs={"retention.ms": "3600000"})])
        with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            for _ in range(3):
                producer.send(
                    "t",
                    RECORD.encode(),
                    key=RECORD.encode(),
                    headers=[(RECORD, RECORD.encode())],
                    partition=0,
                ).result()
        told = tell(
            *("debug", "bundle", "--output", str(output), "-b", node.bootstrap_servers, "--http", node.url),
            *("--data-dir", str(data), "--log-file", str(log)),
        )
    assert told.code == 0
    assert told.rows[0] == ["wrote", str(output), str(output.stat().st_size)]
    assert len(told.rows) == 1
    assert output.stat().st_mode & 0o777 == 0o600
    found = parts(output)
    host = f"nodes/127.0.0.1_{node.http_address[1]}"
    assert set(found) == {
        *("README.txt", "versions.json", "machine.json", "client.json", "cluster.json", "health.json"),
        *("settings/broker-1.json", "settings/topics.json", "missing.json", "directories/0.json"),
        *(f"{host}/metrics.txt", f"{host}/readyz.txt", f"{host}/stacks.txt", "logs/0-node_log.txt"),
    }
    assert json.loads(found["missing.json"]) == {}
    image = json.loads(found["cluster.json"])
    assert [topic["name"] for topic in image["topics"]] == ["t"]
    assert image["quorum"]["leader"] == 1
    assert json.loads(found["settings/topics.json"])["t"]["retention.ms"]["value"] == "3600000"
    assert json.loads(found["settings/broker-1.json"])["log.dirs"]["value"] == str(data)
    assert "Server.run" in found[f"{host}/stacks.txt"]
    assert "kafka_server_brokertopicmetrics_messagesin_total" in found[f"{host}/metrics.txt"]
    (head,) = [
        one for one in json.loads(found["directories/0.json"])["logs"] if one["segment"].startswith("t-0/")
    ]
    assert [one["base_offset"] for one in head["last"]] == [0, 1, 2]
    assert head["flaw"] == ""
    assert not [name for name, text in found.items() if RECORD in text]
    assert "ready node=1" in found["logs/0-node_log.txt"]


def test_no_secret_of_a_secure_cluster_is_inside(tmp_path: Path, tell: Tell) -> None:
    output, log = tmp_path / "b.zip", tmp_path / "log"
    with sparklog.embedded(secure=True) as broker:
        with Admin(**broker.client_settings) as admin:
            admin.alter_user_scram_credentials([ScramUpsertion("ann", PASSWORD, iterations=4096)])
        secrets = secrets_of(broker.data_dir)
        keys = [one for one in secrets if "BEGIN" in one]
        passwords = [one for one in secrets if "BEGIN" not in one]
        own = str(broker.client_settings["sasl_password"])
        assert own in passwords
        log.write_text(
            f'sasl.jaas.config=\'x required username="a" password="{PASSWORD}";\'\n'
            f"Authorization: Bearer {TOKEN}\nwith {own} in a sentence\nclient_secret: {TOKEN}\nkept line\n"
            '{"password": "'
            + PASSWORD.replace('"', '\\"')
            + '", "kept": 1}\n'
            + "\n".join(keys)
            + "".join(f" password={one}" for one in passwords)
        )
        settings = str(broker.data_dir / "client.properties")
        told = tell(
            *("debug", "bundle", "--output", str(output), "--command-config", settings),
            *("--data-dir", str(broker.data_dir), "--log-file", str(log), "--json"),
        )
    assert told.code == 0
    assert told.json["missing"] == {}
    found = parts(output)
    assert "kept line" in found["logs/0-log.txt"]
    assert '"kept": 1' in found["logs/0-log.txt"]
    content = "\n".join(found.values())
    assert len(secrets) >= 3
    for secret in (*secrets, PASSWORD, TOKEN, "opensesame"):
        for line in secret.splitlines():
            if "PRIVATE KEY" not in line:
                assert line not in content
    assert REMOVED in found["client.json"]
    assert json.loads(found["settings/broker-1.json"])["node.id"]["value"] == "1"


def secrets_of(directory: Path) -> list[str]:
    """The passwords and private keys in the files of a secure cluster."""
    found = []
    for path in directory.rglob("*"):
        if path.suffix == ".properties":
            found += [part.partition('"')[0] for part in path.read_text().split('password="')[1:]]
        elif path.suffix == ".pem" and "PRIVATE KEY" in path.read_text():
            text = path.read_text()
            begin, end = text.index("-----BEGIN PRIVATE"), text.index("-----END PRIVATE")
            found.append(text[begin:end] + "-----END PRIVATE KEY-----")
    return list(dict.fromkeys(found))


def test_a_cluster_that_is_away_leaves_the_parts_of_this_machine(tmp_path: Path, tell: Tell) -> None:
    output = tmp_path / "b.zip"
    told = tell(
        *("debug", "bundle", "--output", str(output), "-b", "127.0.0.1:1", "--http", "http://127.0.0.1:1"),
        *("-X", "default.api.timeout.ms=300"),
    )
    assert told.code == 0
    assert [row[0] for row in told.rows] == ["wrote", *["missing"] * 4]
    found = parts(output)
    assert {"versions.json", "machine.json", "client.json", "missing.json"} <= set(found)
    assert "cluster.json" in json.loads(found["missing.json"])


def test_an_existing_file_is_not_overwritten(tmp_path: Path, tell: Tell) -> None:
    output = tmp_path / "b.zip"
    output.write_text("kept")
    told = tell("debug", "bundle", "--output", str(output))
    assert (told.code, output.read_text()) == (1, "kept")
    assert "exists" in told.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--http", "h:1"), "is no address"), (("--data-dir", "/missing"), "does not exist")],
)
def test_a_mistake_writes_no_file(
    tmp_path: Path, tell: Tell, arguments: tuple[str, ...], message: str
) -> None:
    told = tell("debug", "bundle", "--output", str(tmp_path / "b.zip"), *arguments)
    assert (told.code, list(tmp_path.iterdir())) == (2, [])
    assert message in told.err


def test_the_names_of_secrets_are_known() -> None:
    secret = ("sasl.jaas.config", "ssl.key.password", "ssl.keystore.key", "sasl.password", "client_secret",
              "listener.name.x.plain.sasl.jaas.config", "delegation.token.secret.key")  # fmt: skip
    assert [name for name in secret if not is_secret(name)] == []
    open_names = ("bootstrap.servers", "sasl.username", "ssl.keystore.location", "client.id", "key.separator")
    assert [name for name in open_names if is_secret(name)] == []
    assert without_secrets({"sasl.password": "x", "client.id": "y"}) == {
        "sasl.password": REMOVED,
        "client.id": "y",
    }


def test_a_secret_is_removed_in_every_form_in_which_it_is_written() -> None:
    scrubber = Scrubber(
        {"sasl.jaas.config": f"m required username=\"ann\" password='{PASSWORD}';", "ssl.key.password": "abc"}
    )
    for text in (PASSWORD, json.dumps(PASSWORD), json.dumps(PASSWORD, ensure_ascii=False)):
        assert "opensesame" not in scrubber.known(f"before {text} behind")
    assert scrubber.known("ann and abc stay") == "ann and abc stay"
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
    assert scrubber.lines(f"a {key} b -----BEGIN EC PRIVATE KEY-----\ncut") == f"a {REMOVED} b {REMOVED}"
    assert scrubber.lines("topics=3 keys=4 event=ready user=ann") == "topics=3 keys=4 event=ready user=ann"


def test_a_segment_that_is_cut_or_damaged_is_shown_up_to_there(tmp_path: Path) -> None:
    batch = bytes(build_batch([(None, b"value", (), 0)]))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch * 2 + batch[:30])
    head = head_of(segment, tmp_path)
    assert len(head["last"]) == 2  # type: ignore[arg-type]
    assert str(head["flaw"]).startswith(f"at {2 * len(batch)}: no room")
    segment.with_suffix(".index").write_bytes(b"\0\0\0\1" + len(batch).to_bytes(4) + bytes(800))
    assert [one["position"] for one in head_of(segment, tmp_path)["last"]] == [len(batch)]  # type: ignore[attr-defined]
    segment.with_suffix(".index").write_bytes(b"\xff" * 12)
    assert "flaw" in head_of(segment, tmp_path)
    segment.write_bytes(b"\xff" * 1_000)
    assert head_of(segment, tmp_path)["last"] == []
    assert head_of(tmp_path / "missing.log", tmp_path)["error"]


@pytest.mark.parametrize(
    "line",
    [
        'password="two words, cut',
        "PASSWORD = 'two words, cut'",
        '{\\"password\\": \\"two\\"}',
        "x" * 300 + "password:two",
        "ssl.keystore.password.of.the.node: two",
    ],
)
def test_a_secret_in_a_log_is_removed_in_each_way_to_write_it(line: str) -> None:
    shown = Scrubber({}).lines(f"before\n{line}\nbehind")
    assert not {"two", "words", "cut"} & set(re.findall(r"\w+", shown))
    assert shown.startswith("before\n")
    assert shown.endswith("\nbehind")


def test_a_hostile_log_costs_no_more_than_its_length() -> None:
    """Quadratic patterns would take hours for a megabyte."""
    for text in (
        "password" * 131_072,
        'password="' * 100_000,
        "-----BEGIN KEY-----" * 50_000,
        "basic " * 170_000,
    ):
        Scrubber({"sasl.password": "passwordpassword"}).lines(text)

"""`sparklog format --add-scram`, as `kafka-storage format` reads it."""

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.errors import SettingsError
from sparklog.model import Instant, Micros, Millis
from sparklog_server.security.sasl import Authenticated, Challenge
from sparklog_server.security.scram import ScramAccounts, ScramCredential, ScramServer
from sparklog_server.security.scram_arguments import parse_scram

NOW = Instant(Micros(0), Millis(0))


def parse(text: str) -> object:
    return parse_scram(text, lambda size: b"e" * size)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_credential_takes_the_password(mechanism: str) -> None:
    record = parse_scram(f'{mechanism}=[name=alice,password="a=b",iterations=8192]', lambda size: b"e" * size)
    assert (record.name, record.iterations, len(record.salt)) == ("alice", 8192, 25)
    credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
    server = ScramServer(
        ScramAccounts(mechanism, lambda *_: credential, lambda _: None, lambda: b"s"), "nonce"
    )
    client = PasswordLogin(mechanism, "alice", "a=b", lambda size: b"n" * size).machine()
    challenge = server.respond(client.first(), NOW)
    assert isinstance(challenge, Challenge)
    assert isinstance(server.respond(client.next(challenge.data), NOW), Authenticated)


def test_a_salted_password_is_taken_as_it_is() -> None:
    text = 'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    record = parse_scram(text, lambda size: b"e" * size)
    assert (record.mechanism, record.salt, len(record.stored_key)) == (2, b"7q", 64)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with one of"),
        ("PLAIN=[name=a,password=hunter2]", "begins with one of"),
        ("SCRAM-SHA-256=name=a,password=hunter2", "is written"),
        ("SCRAM-SHA-256=[password=hunter2]", "needs name"),
        ("SCRAM-SHA-256=[name=a]", "needs password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hunter2=]", "needs password"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]", "iterations are from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,iterations=x]", "iterations are from"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,salt=hunter2!]", "salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,password=hunter2,hunter2]", "the parts of"),
    ],
)
def test_an_invalid_argument_is_refused_without_its_secret(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        parse(text)
    assert "hunter2" not in str(refused.value)

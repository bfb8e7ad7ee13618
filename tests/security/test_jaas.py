"""JAAS strings as Kafka's users write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.sasl.jaas import parse_jaas, required_option
from sparklog.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" '
            'password="alice-secret";',
            {"username": "alice", "password": "alice-secret"},
        ),
        (
            "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
            '  username="admin"   password="a;b=c" // end\n user_admin="x" /* and * more */ user_b=\'y"\';',
            {"username": "admin", "password": "a;b=c", "user_admin": "x", "user_b": 'y"'},
        ),
        (r'PlainLoginModule REQUIRED p="a\"b\\c\n\101";', {"p": 'a"b\\c\nA'}),
        ("PlainLoginModule required tokenauth=true debug = false;", {"tokenauth": "true", "debug": "false"}),
        ("PlainLoginModule required;", {}),
        ('PlainLoginModule required p="";', {"p": ""}),
        ('PlainLoginModule required p="pässword-\u202e";', {"p": "pässword-\u202e"}),
    ],
)
def test_options_are_read(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text, "sasl.jaas.config")
    assert (module.name, module.options) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "exactly one login module"),
        ("A required; B required;", "exactly one login module"),
        ('A required p="hunter2"', "must end with a semicolon"),
        ("A maybe;", "one of required"),
        ('A required p "hunter2";', "not of the form"),
        ('A required p="hunter2;', "cannot be read at character"),
        ("A required p=hunter2@;", "cannot be read at character"),
        ('A required ="hunter2";', "not of the form"),
        ("A", "must end with a semicolon"),
        ("/* A required;", "cannot be read"),
    ],
)
def test_an_invalid_text_is_refused_without_its_content(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        parse_jaas(text, "sasl.jaas.config")
    assert "hunter2" not in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SettingsError):
        parse_jaas(text, "k")


@given(st.text(st.characters(blacklist_characters="\r\n"), max_size=30))
def test_every_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(f'A required password="{quoted}";', "k").options["password"] == password


def test_a_missing_option_is_named() -> None:
    with pytest.raises(SettingsError, match="needs the option password="):
        required_option(parse_jaas("ScramLoginModule required;", "k"), "password", "k")

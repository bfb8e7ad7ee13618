"""The principal of a client certificate."""

import contextlib
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import SettingsError
from sparklog_server.security.principals import (
    UNKNOWN,
    CertificateUnreadable,
    Identity,
    NoRuleApplies,
    PrincipalRules,
    identity_of,
    subject_of,
)
from tests.certificates import authority, issued

DER = issued("C=DE,O=Example,OU=ops,OU=dev,CN=App").certificate.public_bytes(Encoding.DER)


def test_a_subject_is_written_in_reverse_order() -> None:
    assert subject_of(DER) == "CN=App,OU=dev,OU=ops,O=Example,C=DE"


def certificate_of(name: x509.Name) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority().name)
        .public_key(authority().key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    from cryptography.hazmat.primitives import hashes

    return made.sign(authority().key, hashes.SHA256()).public_bytes(Encoding.DER)


def attribute(oid: str, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(x509.ObjectIdentifier(oid), value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a,b+c", r"CN=a\,b\+c"),
        ('"<>#;=\\', r"CN=\"\<\>\#\;\=\\"),
        (" a  b ", r"CN=\ a  b\ "),
        ("ünïcode", "CN=ünïcode"),
        ("  ", r"CN=\ \ "),
    ],
)
def test_characters_of_a_value_are_escaped_as_in_java(value: str, written: str) -> None:
    assert subject_of(certificate_of(x509.Name([attribute("2.5.4.3", value)]))) == written


def test_an_attribute_type_of_thousands_of_bytes_is_refused() -> None:
    def element(tag: int, content: bytes) -> bytes:
        return bytes((tag, 0x82)) + len(content).to_bytes(2) + content

    kind = element(0x06, b"\x2a" + b"\xff" * 2500 + b"\x01")
    subject = element(0x30, element(0x31, element(0x30, kind + element(0x0C, b"x"))))
    fields = element(0xA0, element(0x02, b"\x02")) + element(0x02, b"\x01")
    fields += element(0x30, b"\x05\x00") * 3 + subject + element(0x30, b"\x05\x00")
    with pytest.raises(CertificateUnreadable, match="an attribute type has 2502 bytes"):
        subject_of(element(0x30, element(0x30, fields) + element(0x30, b"\x05\x00")))


def test_types_without_a_keyword_and_several_attributes_of_one_name() -> None:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([attribute("0.9.2342.19200300.100.1.25", "org")]),
            x509.RelativeDistinguishedName([attribute("2.5.4.3", "x"), attribute("2.5.4.11", "y")]),
            x509.RelativeDistinguishedName([attribute("2.5.4.5", "7")]),
        ]
    )
    written = subject_of(certificate_of(name))
    assert written in ("2.5.4.5=#130137,CN=x+OU=y,DC=org", "2.5.4.5=#0c0137,CN=x+OU=y,DC=org")


def test_units_are_groups_and_no_certificate_is_anonymous() -> None:
    rules = PrincipalRules("DEFAULT")
    expected = Identity("User:CN=App,OU=dev,OU=ops,O=Example,C=DE", ("Group:ops", "Group:dev"))
    assert identity_of(DER, rules) == expected
    assert identity_of(None, rules) == UNKNOWN


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(content: bytes) -> None:
    with pytest.raises(CertificateUnreadable):
        subject_of(content)


@given(st.integers(0, len(DER) - 1), st.integers(0, 255))
def test_a_changed_certificate_gives_a_name_or_is_refused(position: int, value: int) -> None:
    changed = bytearray(DER)
    changed[position] = value
    with contextlib.suppress(CertificateUnreadable):
        assert isinstance(subject_of(bytes(changed)), str)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=App,OU=dev,O=Example"),
        ("", None),
        ("RULE:^CN=(.*?),OU=dev.*$/$1/", "App"),
        ("RULE:^CN=(.*?),OU=dev.*$/$1/L", "app"),
        ("RULE:^CN=(.*?),OU=dev.*$/$1/U", "APP"),
        ("RULE:^CN=x$/y/,DEFAULT", "CN=App,OU=dev,O=Example"),
        ("RULE:^CN=x$/y/ , RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L , DEFAULT", "app@dev"),
        ("RULE:CN=App/part/", None),
        ("RULE:^CN=(.*?),.*$/$1$2/", "App$2"),
        ("RULE:^CN=(.*?),.*$/$12/", "App2"),
        (r"RULE:^CN=(.*?),.*$/\$1\/x/", "$1/x"),
        ("RULE:^cn=(.*?),.*$/$1/,RULE:(?i)^cn=(.*?),.*$/$1/", "App"),
        ("RULE:.*/admin/", "adminadmin"),
        ("RULE:^CN=(.*?),.*$/${x}/", None),
        ("RULE:^CN=(?<x>.*?),.*$/${x}/", "App"),
        ("RULE:^CN=.*$/$1/", None),
        ("RULE:^CN=(.*?),.*$/$/,DEFAULT", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_applies(rules: str, name: str | None) -> None:
    subject = "CN=App,OU=dev,O=Example"
    if name is None:
        with pytest.raises(NoRuleApplies):
            PrincipalRules(rules).apply(subject)
    else:
        assert PrincipalRules(rules).apply(subject) == name


@pytest.mark.parametrize(
    "rules", ["RULE:a/b", "RULE:a/b/X", "rule:a/b/", "RULE:(/b/", "RULE:(?=a)/b/", "DEFAULT x"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(SettingsError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


def test_a_dot_matches_no_line_terminator_of_java_that_a_client_put_into_its_subject() -> None:
    for end in "\n\r\u0085\u2028\u2029":
        rules = PrincipalRules("RULE:^CN=(.*),OU=ops$/$1/,DEFAULT")
        assert rules.apply(f"CN=a{end},OU=ops") == f"CN=a{end},OU=ops"
    assert PrincipalRules(r"RULE:\Q.\E[.].\./x/").apply("..a.") == "x"
    assert PrincipalRules("RULE:(?s).*b/x/").apply("a\nb") == "x"

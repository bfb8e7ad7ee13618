"""Key stores and trust stores of each kind, and contexts from them."""

import subprocess
from pathlib import Path

import pytest

from sparklog.errors import SettingsError
from sparklog.tls.contexts import TLS_1_3_SUITES, client_context, server_context, split_suites
from sparklog.tls.keys import TlsKeys
from sparklog.tls.stores import read_material
from tests.certificates import authority, issued

SERVED = issued("CN=broker")


def in_one_line(pem: str) -> str:
    """As a properties file has it."""
    return " ".join(pem.split())


def test_pem_files_and_inline_values_give_the_same_material(tmp_path: Path) -> None:
    SERVED.write_pem(tmp_path / "key.pem")
    authority().write(tmp_path / "ca.pem")
    files = TlsKeys(keystore_location=str(tmp_path / "key.pem"), truststore_location=str(tmp_path / "ca.pem"))
    inline = TlsKeys(
        keystore_key=in_one_line(SERVED.key_pem()),
        keystore_certificate_chain=in_one_line(SERVED.chain_pem),
        truststore_certificates=in_one_line(authority().pem),
    )
    assert read_material(files) == read_material(inline)
    server_context(files)
    client_context(inline)


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = str(SERVED.write_pem(tmp_path / "key.pem", "secret"))
    server_context(TlsKeys(keystore_location=path, key_password="secret"))
    for password in (None, "wrong"):
        with pytest.raises(SettingsError, match=r"ssl\.key\.password is missing or wrong") as refused:
            server_context(TlsKeys(keystore_location=path, key_password=password))
        assert "secret" not in str(refused.value)


def test_pkcs12_is_told_by_its_content(tmp_path: Path) -> None:
    path = str(SERVED.write_pkcs12(tmp_path / "store.jks", "secret"))
    server_context(TlsKeys(keystore_location=path, keystore_password="secret"))
    with pytest.raises(SettingsError, match=r"the password of ssl\.keystore\.password is wrong"):
        read_material(TlsKeys(keystore_location=path, keystore_password="other"))
    with pytest.raises(SettingsError, match=r"needs ssl\.keystore\.password"):
        read_material(TlsKeys(keystore_location=path))


def test_an_empty_file_is_refused_as_empty_and_not_called_a_pkcs12_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_bytes(b"\n")
    for keys in (TlsKeys(keystore_location=str(path)), TlsKeys(truststore_location=str(path))):
        with pytest.raises(SettingsError, match=r"store\.location=.*empty\.pem is empty: name a file in PEM"):
            read_material(keys)


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)


def test_stores_of_keytool_are_read_and_a_true_jks_file_is_refused_with_the_command(tmp_path: Path) -> None:
    authority().write(tmp_path / "ca.pem")
    trust = ("-importcert", "-noprompt", "-alias", "ca", "-file", str(tmp_path / "ca.pem"))
    options = ("-storepass", "secret", "-keystore")
    keytool(*trust, *options, str(tmp_path / "trust.jks"))  # PKCS12 since Java 9
    keys = TlsKeys(truststore_location=str(tmp_path / "trust.jks"), truststore_password="secret")
    trusted = read_material(keys).trusted
    assert trusted is not None
    assert trusted.split() == authority().pem.split()
    keytool(*trust, "-storetype", "JKS", *options, str(tmp_path / "old.jks"))
    with pytest.raises(SettingsError, match=r"keytool -importkeystore -srckeystore .*old\.jks"):
        read_material(TlsKeys(truststore_location=str(tmp_path / "old.jks")))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"keystore_key": "x"}, "are set together"),
        ({"truststore_location": "a", "truststore_certificates": "b"}, "not both"),
        ({"client_auth": "maybe"}, "none, requested, required"),
        ({"enabled_protocols": ("SSLv3",)}, "SSLv3 is not offered"),
        ({"endpoint_identification_algorithm": "ldap"}, "https, or empty"),
    ],
)
def test_keys_that_contradict_are_refused(keys: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        TlsKeys(**keys).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nothing", "needs ssl.keystore.password"),
        (SERVED.chain_pem, "0 private keys"),
        (SERVED.key_pem(), "no certificate"),
        (SERVED.key_pem() * 2 + SERVED.chain_pem, "2 private keys"),
        (issued("CN=other").key_pem() + SERVED.chain_pem, "not that of the first certificate"),
    ],
)
def test_a_key_store_that_cannot_serve_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "key.pem").write_text(content)
    with pytest.raises(SettingsError, match=said):
        server_context(TlsKeys(keystore_location=str(tmp_path / "key.pem")))


def test_secrets_are_not_shown() -> None:
    keys = TlsKeys(keystore_key="KEY", keystore_certificate_chain="CHAIN", key_password="PASSWORD")
    assert "hidden" in repr(keys)
    assert not any(secret in repr(keys) for secret in ("KEY", "CHAIN", "PASSWORD"))


def test_suites_have_the_names_of_openssl() -> None:
    names = {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
        "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    }
    assert split_suites([*names, *TLS_1_3_SUITES]) == (list(names.values()), list(TLS_1_3_SUITES))
    with pytest.raises(SettingsError, match="TLS_RSA_WITH_RC4_128_MD5 is not a suite"):
        split_suites(["TLS_RSA_WITH_RC4_128_MD5"])


def test_a_version_without_an_allowed_suite_is_not_offered() -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
    served = TlsKeys(keystore_key=SERVED.key_pem(), keystore_certificate_chain=SERVED.chain_pem)
    only_old = server_context(TlsKeys(**(_fields(served) | {"cipher_suites": suites})))
    assert only_old.maximum_version.name == "TLSv1_2"
    only_new = server_context(TlsKeys(**(_fields(served) | {"cipher_suites": TLS_1_3_SUITES})))
    assert only_new.minimum_version.name == "TLSv1_3"


def _fields(keys: TlsKeys) -> dict[str, object]:
    return {name: getattr(keys, name) for name in keys.__struct_fields__}

"""The files of `--command-config`, by their suffix:

.conf    librdkafka: `name=value` lines with its own names, as kcat -F reads them
.toml    Python: `bootstrap_servers = "..."`, the arguments of a Producer or Consumer; Kafka's names also
other    a properties file as Java reads it: `\\` continues a line, `#` and `!` begin comments
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sparklog.errors import SettingsError
from sparklog_server.config.load import parse_properties

_RDKAFKA_NAMES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.crl.location": "sparklog.ssl.crl.location",
}
_RDKAFKA_FILES: Final = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}


def read_client_file(file: str) -> dict[str, str]:
    """The settings of a file by Kafka's names; raises SettingsError."""
    path = Path(file)
    return _READERS.get(path.suffix, _of_properties)(_text(path), file)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def _of_properties(text: str, file: str) -> dict[str, str]:
    return {entry.name: entry.text for entry in parse_properties(text, file)}


def _of_rdkafka(text: str, file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            raise SettingsError(f"{file} line {number} is not name=value")
        if name in _RDKAFKA_FILES:
            found[_RDKAFKA_FILES[name]] = _text(Path(value))
        elif name == "security.protocol":
            found[name] = value.upper()
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = "" if value == "none" else value
        else:
            found[_RDKAFKA_NAMES.get(name, name)] = value.replace("\\n", "\n") if ".pem" in name else value
    return found


def _of_toml(text: str, file: str) -> dict[str, str]:
    try:
        return dict(flat_settings(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None


def flat_settings(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """The settings of a table by Kafka's names: `security.protocol = "SSL"` is a table `security` in TOML."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        key = f"{prefix}{name}".replace("_", ".")
        if isinstance(value, dict):
            found += flat_settings(value, f"{key}.")
        elif isinstance(value, list):
            found.append((key, ",".join(map(str, value))))
        else:
            found.append((key, str(value).lower() if isinstance(value, bool) else str(value)))
    return found


_READERS: Final[Mapping[str, Callable[[str, str], dict[str, str]]]] = {
    ".conf": _of_rdkafka,
    ".toml": _of_toml,
}

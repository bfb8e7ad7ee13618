"""The values of `sasl.jaas.config`: login modules of Java's JAAS, as Kafka's property files have them.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";
    └─ class ─────────────────────────────────────────────┘ └flag─┘ └─ options ───────────────────────┘└ end

An error names no part of the text, because that has secrets.
"""

import re
from collections.abc import Mapping
from typing import Final

from sparklog.errors import SettingsError

PLAIN: Final = "PlainLoginModule"
SCRAM: Final = "ScramLoginModule"
OAUTHBEARER: Final = "OAuthBearerLoginModule"
KERBEROS: Final = "Krb5LoginModule"

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
    r'|"(?P<double>(?:[^"\\\r\n]|\\.)*)"'
    r"|'(?P<single>(?:[^'\\\r\n]|\\.)*)'"
    r"|(?P<word>[A-Za-z0-9._$\-\u00a0-\U0010ffff]+)"
    r"|(?P<sign>[=;])"
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule:
    """One login module: the last part of its class name, and its options; its repr has no option."""

    __slots__ = ("name", "options")

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.options = options


def parse_jaas(text: str, key: str) -> LoginModule:
    """The one login module of a `sasl.jaas.config`, which the setting `key` has; raises SettingsError."""
    tokens = _tokens(text, key)
    modules = []
    while tokens:
        modules.append(_module(tokens, key))
    if len(modules) != 1:
        raise SettingsError(f"{key} must have exactly one login module, but has {len(modules)}")
    return modules[0]


def required_option(module: LoginModule, option: str, key: str) -> str:
    """An option that must be there and not be empty; raises SettingsError."""
    value = module.options.get(option, "")
    if not value:
        raise SettingsError(f'{key}: {module.name} needs the option {option}="..."')
    return value


def _module(tokens: list[tuple[str, str]], key: str) -> LoginModule:
    """Take the tokens of one login module from the end of the reversed list."""
    name = _take(tokens, "text", key)
    if _take(tokens, "text", key).lower() not in _FLAGS:
        raise SettingsError(f"{key}: the word after the login module is one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while not tokens or tokens[-1] != ("sign", ";"):
        option = _take(tokens, "text", key)
        if _take(tokens, "sign", key) != "=":
            raise SettingsError(f'{key}: an option is written name="value"')
        options[option] = _take(tokens, "text", key)
    tokens.pop()
    return LoginModule(name.rpartition(".")[2], options)


def _take(tokens: list[tuple[str, str]], kind: str, key: str) -> str:
    if not tokens:
        raise SettingsError(f"{key} ends within a login module: it must end with a semicolon")
    found, text = tokens.pop()
    if found != kind:
        raise SettingsError(f'{key} is not of the form: <login module> required name="value" ...;')
    return text


def _tokens(text: str, key: str) -> list[tuple[str, str]]:
    """The tokens, last one first."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SettingsError(
                f"{key} cannot be read at character {position + 1}: a value with such a character is quoted"
            )
        position = match.end()
        if match.lastgroup in ("double", "single"):
            found.append(("text", _ESCAPE.sub(_unescaped, match[match.lastgroup])))
        elif match.lastgroup == "word":
            found.append(("text", match["word"]))
        elif match.lastgroup == "sign":
            found.append(("sign", match["sign"]))
    found.reverse()
    return found


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)

"""Removal of secrets from texts that leave a machine. A bundle is made of parts that have none; this is a
second line of defence.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

REMOVED: Final = "(removed)"
SECRET_CHARACTERS_MIN: Final = 4
"""A shorter secret would also be cut out of other words."""
_WORDS: Final = "password|passwd|secret|token|jaas|credential|authorization|private.?key|salt"
# Bounded repeats, and no prefix: the time is linear in a text that a client may have had a part in.
_ASSIGNED: Final = re.compile(
    rf"""(?i)((?:{_WORDS})[\w.\-]{{0,100}}\\?["']?\s{{0,9}}[=:]\s{{0,9}})"""
    r"""("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|[^\s,;}]+)"""
)
_SCHEME: Final = re.compile(r"(?i)\b(basic|bearer)\s+[A-Za-z0-9+/=._~\-]{4,}")
_PEM: Final = re.compile(r"-----BEGIN [A-Z ]*KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", re.DOTALL)
_SECRET_NAME: Final = re.compile(rf"(?i).*(?:{_WORDS}).*|.*keystore\.key|.*\.key")
_QUOTED: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_OPEN_OPTIONS: Final = frozenset(("username", "tokenauth"))


def is_secret(name: str) -> bool:
    """Whether the value of a setting of this name is, or may have, a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with the values of secret ones removed."""
    return {name: REMOVED if is_secret(name) else value for name, value in settings.items()}


class Scrubber:
    """Removes the secrets of a client's settings wherever they stand."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        found: set[str] = set()
        for name, value in settings.items():
            if is_secret(name):
                found.add(value)
                found.update(line.strip() for line in value.splitlines())
                for option, *texts in _QUOTED.findall(value):
                    if option.lower() not in _OPEN_OPTIONS:
                        found.update(texts)
        long = {one for one in found if len(one) >= SECRET_CHARACTERS_MIN}
        long |= {json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in long for is_ascii in (True, False)}
        # The longest first: one may be a part of another.
        pattern = "|".join(map(re.escape, sorted(long, key=len, reverse=True)))
        self._known = re.compile(pattern) if long else None

    def known(self, text: str) -> str:
        """The text without the secrets of the settings."""
        return text if self._known is None else self._known.sub(REMOVED, text)

    def lines(self, text: str) -> str:
        """The text of a log, without what looks like a secret either."""
        text = _PEM.sub(REMOVED, self.known(text))
        text = _SCHEME.sub(lambda match: f"{match[1]} {REMOVED}", text)
        return _ASSIGNED.sub(lambda match: match[1] + REMOVED, text)

"""The principal of a client certificate: its subject as Java writes it, shortened by Kafka's rules.

    certificate (DER) ─► subject, "CN=app,OU=ops,C=DE" (RFC 2253) ─► ssl.principal.mapping.rules ─► User:app

Rules and access lists are written for Java's text of a subject, so this is the text of
`X500Principal.getName()`: the parts of the name in reverse order, keywords for nine attribute types, and for
any other the object identifier with the value in hexadecimal.
"""

import re
from typing import TYPE_CHECKING, Final

import msgspec

from sparklog.errors import SettingsError
from sparklog_server.security import ANONYMOUS

if TYPE_CHECKING:
    import re2

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_OID_BYTES_MAX: Final = 128
_UNIT: Final = "2.5.4.11"
_SEQUENCE, _SET, _OID, _EXPLICIT_VERSION = 0x30, 0x31, 0x06, 0xA0
# PrintableString, T61String, IA5String, GeneralString, BMPString, UTF8String
_TEXTS: Final = frozenset((0x13, 0x14, 0x16, 0x1B, 0x1E, 0x0C))
# `re` compiles and keeps these when the first certificate needs them: most nodes map none.
_ESCAPED: Final = r'[,=+<>#;"\\]'
_RULE: Final = (
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)"
    r"/(?P<case>[LU]?))?\s*(?:,|$)"
)
_REFERENCE: Final = r"(?s)\\(?P<escaped>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|."
_DOT_ALL: Final = r"\(\?[a-zA-Z]*s"
_DOT: Final = r"(?s)\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\."
"""Quoted text, an escaped character, a class, or a dot."""
_NO_LINE_END: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"


class CertificateUnreadable(ValueError):
    """The bytes are not a certificate in DER."""


class NoRuleApplies(ValueError):
    """No rule of `ssl.principal.mapping.rules` matches a subject."""


class Identity(msgspec.Struct, frozen=True):
    """A client as its certificate names it: the principal, and a group for each of its units (OU)."""

    principal: str
    groups: tuple[str, ...] = ()


UNKNOWN: Final = Identity(ANONYMOUS)


def identity_of(certificate: bytes | None, rules: "PrincipalRules") -> Identity:
    """The identity that a certificate gives; raises CertificateUnreadable and NoRuleApplies."""
    if certificate is None:
        return UNKNOWN
    parts = _subject(certificate)
    groups = [
        f"Group:{value.decode(errors='replace')}"
        for part in parts
        for oid, tag, value, _ in part
        if oid == _UNIT and tag in _TEXTS
    ]
    return Identity(f"User:{rules.apply(_name(parts))}", tuple(dict.fromkeys(groups)))


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate as Java's `X500Principal.getName()` writes it."""
    return _name(_subject(certificate))


class PrincipalRules:
    """`ssl.principal.mapping.rules`, read once. Raises SettingsError for rules that cannot be read."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule | None] = []  # None is DEFAULT
        position = 0
        rule = re.compile(_RULE)
        while position < len(text):
            found = rule.match(text, position)
            if found is None:
                raise SettingsError(
                    f"ssl.principal.mapping.rules: {text[position:].strip()} does not begin with a rule: "
                    f"RULE:pattern/replacement/, with L or U at its end, or DEFAULT"
                )
            position = found.end()
            if found["default"]:
                self._rules.append(None)
            elif found["pattern"] is not None:
                self._rules.append(_Rule(found["pattern"], found["replacement"], found["case"]))

    def apply(self, subject: str) -> str:
        """The name of the first rule that matches the whole subject; raises NoRuleApplies."""
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {subject}")


class _Rule:
    """One rule. RE2 compiles its pattern: its time is linear in the subject, which the client has chosen."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        import re2  # the import takes ten milliseconds, and most brokers have no rule

        options = re2.Options()
        options.log_errors = False
        try:
            self._pattern: re2._Regexp[str] = re2.compile(_as_in_java(pattern), options)
        except re2.error as error:
            raise SettingsError(
                f"ssl.principal.mapping.rules: the pattern {pattern} cannot be used: {error}"
            ) from None
        self._replacement = _parts_of(replacement, self._pattern)
        self._case = case

    def apply(self, subject: str) -> str | None:
        """The name, None if the rule does not match. Raises NoRuleApplies if it matches and its replacement
        cannot be used.
        """
        if self._pattern.fullmatch(subject) is None:
            return None
        parts = self._replacement
        if parts is None:
            raise NoRuleApplies(f"a replacement of ssl.principal.mapping.rules cannot be used for {subject}")
        # As in Java's replaceAll, each place that the pattern matches is replaced.
        name: str = self._pattern.sub(
            lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts),
            subject,
        )
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name


def _as_in_java(pattern: str) -> str:
    """The pattern, whose `.` matches no line terminator of Java before a flag `s`: the client chooses the
    characters of its subject.
    """
    flag = re.search(_DOT_ALL, pattern)
    limit = len(pattern) if flag is None else flag.start()
    return (
        re.sub(_DOT, lambda found: _NO_LINE_END if found[0] == "." else found[0], pattern[:limit])
        + pattern[limit:]
    )


def _parts_of(replacement: str, pattern: "re2._Regexp[str]") -> list[str | int] | None:
    """The texts and groups of a replacement, None if it refers to a group that Kafka does not find either. In
    a pattern with groups, the number of a group that is not there stays as it is.
    """
    groups = pattern.groups
    parts: list[str | int] = []
    position = 0
    reference = re.compile(_REFERENCE)
    while position < len(replacement):
        found = reference.match(replacement, position)
        assert found is not None, "any character is a part"
        position = found.end()
        digit = replacement[position : position + 1]
        if found["escaped"] == "$" and groups and digit.isdecimal() and int(digit) > groups:
            return None  # Kafka escapes the $ once more
        if found["number"] is not None:
            digits = found["number"]
            if int(digits[0]) > groups:
                if not groups:
                    return None
                parts.append(found[0])
                continue
            count = 1  # the longest number that is a group
            while count < len(digits) and int(digits[: count + 1]) <= groups:
                count += 1
            parts += [int(digits[:count]), digits[count:]]
        elif found["name"] is not None:
            if found["name"] not in pattern.groupindex:
                return None
            parts.append(pattern.groupindex[found["name"]])
        elif found[0] == "$":
            return None
        else:
            parts.append(found["escaped"] or found[0])
    return parts


# -- the subject

_Attribute = tuple[str, int, bytes, bytes]
"""The object identifier, the tag of the value, its content, and the value with its tag and length."""


def _name(parts: list[list[_Attribute]]) -> str:
    return ",".join("+".join(map(_written, part)) for part in reversed(parts))


def _written(attribute: _Attribute) -> str:
    oid, tag, value, whole = attribute
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{whole.hex()}"
    text = re.sub(_ESCAPED, r"\\\g<0>", value.decode(errors="replace")).replace("\0", "\\00")
    inner = text.strip(" \r")
    lead = text[: len(text) - len(text.lstrip(" \r"))]
    trail = text[len(lead) + len(inner) :]
    return f"{keyword}={_each_escaped(lead)}{inner}{_each_escaped(trail)}"


def _each_escaped(spaces: str) -> str:
    return "".join(f"\\{space}" for space in spaces)


def _subject(certificate: bytes) -> list[list[_Attribute]]:
    """The relative names of the subject, each a list of attributes, in the order of the certificate."""
    (outer,) = _elements(certificate, only=_SEQUENCE)
    fields = _elements(_elements(outer[1])[0][1])
    position = 1 if fields[0][0] == _EXPLICIT_VERSION else 0
    # serial number, algorithm, issuer, validity, subject
    if len(fields) < position + 5 or fields[position + 4][0] != _SEQUENCE:
        raise CertificateUnreadable("the certificate has no subject")
    return [
        [_attribute(pair[1]) for pair in _elements(relative[1], only=_SEQUENCE)]
        for relative in _elements(fields[position + 4][1], only=_SET)
    ]


def _attribute(pair: bytes) -> _Attribute:
    elements = _elements(pair)
    if len(elements) != 2 or elements[0][0] != _OID:
        raise CertificateUnreadable("an attribute of the subject is no pair of type and value")
    (_, oid, _), (tag, value, whole) = elements
    return _dotted(oid), tag, value, whole


def _elements(content: bytes, *, only: int | None = None) -> list[tuple[int, bytes, bytes]]:
    """The elements of a DER value: tag, content, and the whole element."""
    found = []
    position = 0
    while position < len(content):
        start = position
        if position + 2 > len(content):
            raise CertificateUnreadable("an element is cut")
        tag, length = content[position], content[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(content[position : position + count])
            position += count
        limit = position + length
        if limit > len(content) or (only is not None and tag != only):
            raise CertificateUnreadable("an element is cut, or of another type")
        found.append((tag, content[position:limit], content[start:limit]))
        position = limit
    if not found:
        raise CertificateUnreadable("an element is missing")
    return found


def _dotted(oid: bytes) -> str:
    if len(oid) > _OID_BYTES_MAX:
        raise CertificateUnreadable(f"an attribute type has {len(oid)} bytes")
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise CertificateUnreadable("an attribute type is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

"""Sources of settings: a properties file in Kafka's format, and single settings from the command line.

An error names the key, the value, the allowed values, and the file and line. A key without effect causes a
warning.
"""

from collections.abc import Iterable, Mapping

import msgspec

from sparklog.errors import SettingsError

from .settings import BrokerSettings, key_of, nearest_broker_key


class Loaded(msgspec.Struct, frozen=True):
    """Settings, and warnings about given keys without effect."""

    settings: BrokerSettings
    warnings: tuple[str, ...]


class Entry(msgspec.Struct, frozen=True):
    """One `key=value` and its location."""

    name: str
    text: str
    where: str


def load(
    path: str | None = None,
    assignments: Iterable[str] = (),
    *,
    defaults: Mapping[str, str] | None = None,
    is_insecure_allowed: bool = False,
) -> Loaded:
    """The settings of a file (if any) and of `key=value` assignments, which override it; both override
    `defaults`.

    Raises SettingsError.
    """
    entries = [Entry(name, text, "given by the program") for name, text in (defaults or {}).items()]
    entries += _read(path) if path is not None else []
    entries += [_assignment(assignment) for assignment in assignments]
    return settings_of(entries, is_insecure_allowed=is_insecure_allowed)


def settings_of(entries: Iterable[Entry], *, is_insecure_allowed: bool = False) -> Loaded:
    """The settings of these entries, the last of a key winning; raises SettingsError with the location of
    the invalid one.
    """
    winning: dict[str, Entry] = {}
    warnings: list[str] = []
    for entry in entries:
        _check(entry)
        if (
            entry.name in winning
            and winning[entry.name].where.split(" line ")[0] == entry.where.split(" line ")[0]
        ):
            warnings.append(f"{entry.name} is set twice; {entry.where} wins over {winning[entry.name].where}")
        winning[entry.name] = entry
    warnings += [
        f"{entry.name} ({entry.where}) is known but has no effect in this release"
        for entry in winning.values()
        if not key_of(entry.name).has_effect
    ]
    settings = BrokerSettings.of(
        {entry.name: entry.text for entry in winning.values()}, is_insecure_allowed=is_insecure_allowed
    )
    return Loaded(settings, tuple(warnings))


def parse_properties(text: str, name: str) -> list[Entry]:
    """The entries of a Java properties file: `=`, `:` or space after the key, `#` and `!` comments, `\\`
    continues a line, escapes.
    """
    entries: list[Entry] = []
    logical, first_line = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip(" \t\f")
        if not logical:
            if not line or line[0] in "#!":
                continue
            first_line = number
        if _is_continued(line):
            logical += line[:-1]
            continue
        entries.append(_entry(logical + line, f"{name} line {first_line}"))
        logical = ""
    if logical:
        entries.append(_entry(logical, f"{name} line {first_line}"))
    return entries


def _read(path: str) -> list[Entry]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from error
    return parse_properties(text, path)


def _assignment(assignment: str) -> Entry:
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"a setting is given as key=value, not as {assignment!r}")
    value = text.strip()
    if value[-1:].isalpha() and (value[0].isdecimal() or value[0] in "Pp"):
        from .units import in_unit_of  # few values have a unit, and most starts import less

        value = in_unit_of(name.strip(), value)
    return Entry(name.strip(), value, "given by --set")


def _check(entry: Entry) -> None:
    """Checks one entry by itself, so that the error has its location."""
    try:
        key = key_of(entry.name)
    except SettingsError:
        raise SettingsError(
            f"unknown setting {entry.name} ({entry.where}){nearest_broker_key(entry.name)}"
        ) from None
    try:
        key.parse(entry.text)
    except SettingsError as error:
        raise SettingsError(f"{error} ({entry.where}; {entry.name} takes {key.allowed})") from None


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: str, where: str) -> Entry:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return Entry(_unescaped(line[:position], where), _unescaped(rest, where), where)


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise SettingsError(f"\\u needs four hexadecimal digits ({where})")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(character, character))
    return "".join(parts)

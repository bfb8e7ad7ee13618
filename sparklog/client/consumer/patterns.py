"""Patterns of topic names. The field writes them in Java's dialect, and Python reads some of it otherwise."""

import re
from typing import Final

_JAVA_ESCAPES: Final = {
    "Q": r"\Q…\E",
    "E": r"\Q…\E",
    "p": r"\p{…}",
    "P": r"\P{…}",
    "h": r"\h",
    "H": r"\H",
    "R": r"\R",
    "X": r"\X",
    "G": r"\G",
    "z": r"\z",
    "k": r"\k<…>",
    "e": r"\e",
    "c": r"\c",
}


def topic_pattern(text: str) -> "re.Pattern[str]":
    """The compiled pattern; ValueError for one that Python cannot compile, or reads otherwise than Java."""
    if (construct := java_only(text)) is not None:
        raise ValueError(
            f"{text!r} has {construct}, which Java reads and Python does not: write the pattern without it"
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def java_only(text: str) -> str | None:
    """The first construct that only Java's dialect has, by name: an escape, a class within a class, or an
    operation of classes. Python takes the last two for plain characters.
    """
    is_in_class, at = False, 0
    while at < len(text):
        here, following = text[at], text[at + 1 : at + 2]
        if here == "\\":
            if following in _JAVA_ESCAPES:
                return f"the escape {_JAVA_ESCAPES[following]}"
            at += 2
            continue
        if not is_in_class and here == "[":
            is_in_class = True
            at += 1 + text.startswith("^", at + 1)
            at += text.startswith("]", at)  # Python takes a bracket in the first place for itself
            continue
        if is_in_class and here == "[":
            return "a character class within a character class"
        if is_in_class and text.startswith("&&", at):
            return "an intersection of character classes (&&)"
        if is_in_class and here == "]":
            is_in_class = False
        elif not is_in_class and text.startswith("(?<", at) and text[at + 3 : at + 4] not in ("=", "!", ""):
            return "a group (?<name>…)"
        at += 1
    return None

r"""Text that comes from a peer, for the medium that it goes to: names, addresses, errors, values.

medium                     function       a newline becomes
terminal                   `terminal`     \n
lines with tabs (TSV)      `cell`         \n
line of a log              `log_value`    \n, in quotation marks
JSON                       `json_text`    \n
file that people read      `lines`        itself: the bundle has texts of many lines
label of a metric          `sparklog_server.metrics_text.escaped`
page of the console        `sparklog_server.console.rendering`: `terminal`, and then HTML's characters

JSON keeps each text exactly: a program that reads it gets the name as it is. The others are for people, and
do not tell a newline from a backslash and an n.
"""

import re
from typing import Final

# Controls (C0, C1), soft hyphen, marks and overrides of direction, invisible and zero-width characters, line
# and paragraph separators, interlinear annotations, tags, and lone surrogates.
_ACTING: Final = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
ACTING: Final = f"[{_ACTING}]"
"""The pattern of a character that acts, or hides, instead of being seen. `re` compiles and keeps it when the
first text needs it: most processes see none.
"""
ACTING_IN_LINES: Final = ACTING.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f")
"""The same, but line feeds and tabs."""
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def terminal(text: str) -> str:
    r"""The text on one line, with `\x1b` or `\u202e` in place of each character that acts."""
    return text if _is_inert(text) else re.sub(ACTING, _escaped, text)


def lines(text: str) -> str:
    """The same, but line feeds and tabs stay."""
    return text if _is_inert(text) else re.sub(ACTING_IN_LINES, _escaped, text)


def cell(value: object) -> str:
    """A value in a line with tabs; None is empty."""
    return "" if value is None else terminal(str(value))


def log_value(text: str) -> str:
    """A value after `key=` in a line of a log, in quotation marks unless it is one plain word."""
    is_word = text.isprintable() and not any(character in text for character in " \"'=")
    if text and is_word and (text.isascii() or not re.search(ACTING, text)):
        return text
    return terminal(repr(text))


def json_text(text: str) -> str:
    r"""JSON that a library has written, with `\u202e` in its texts in place of each character that acts."""
    return text if _is_inert(text) else re.sub(ACTING_IN_LINES, _escaped_in_json, text)


def _is_inert(text: str) -> bool:
    """Whether the text certainly has no character that acts; most names show it at once."""
    return text.isascii() and text.isprintable()


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return _SHORT.get(match[0]) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

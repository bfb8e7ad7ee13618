"""Templates. Each expression in one passes `_finished`, which makes text inert, and is then escaped."""

import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from time import time
from typing import Final
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from sparklog import __version__
from sparklog_server.operations.inert_text import inert, inert_name

_HERE: Final = Path(__file__).parent
STATIC: Final = _HERE / "static"
_TAG: Final = re.compile(r"</?[a-z0-9]{1,10}(?: [^<>]{0,200})?>")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DOC_CHARACTERS_MAX: Final = 4_000
_THIN_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"


@cache
def templates() -> jinja2.Environment:
    """The templates of the console."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        finalize=_finished,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "exact": exact,
        "url": url_part,
        "number": number,
        "size": size,
        "at": at,
        "ago": ago,
        "lines": lines,
        "doc": doc,
        "dotted": dotted,
        "tree": tree,
        "coloured": coloured,
    }
    environment.globals["version"] = __version__
    return environment


def _finished(value: object) -> object:
    """Text that is not markup yet as an inert name; None as nothing."""
    if isinstance(value, Markup | int | float):
        return value
    return "" if value is None else inert_name(str(value))


def exact(text: object) -> Markup:
    """Text for an attribute that a form sends back: every character as it is, escaped."""
    return text if isinstance(text, Markup) else escape("" if text is None else str(text))


def lines(text: str) -> Markup:
    """Text that `shown` has made inert and cut."""
    return escape(text)


def dotted(name: str) -> Markup:
    """A name that may be broken behind its dots, and nowhere else while it fits."""
    return Markup(".<wbr>").join(inert_name(name).split("."))


def doc(text: str | None) -> Markup:
    """Prose of a broker on one line, without the tags that Kafka's has."""
    prose = inert(_TAG.sub("", text or ""))[:_DOC_CHARACTERS_MAX]
    pieces = [escape(piece) for piece in prose.split("`")]
    # Between two backticks is a word of the settings.
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else piece
        for number, piece in enumerate(pieces)
    )


def url_part(text: object) -> Markup:
    """Text as one part of an address."""
    return Markup(quote(str(text), safe=""))  # noqa: S704 - percent-encoded, without any character of HTML


def number(value: float | None) -> str:
    """`12 345`, or a dash for None."""
    if value is None:
        return "–"
    text = f"{value:,.1f}" if isinstance(value, float) and value % 1 and abs(value) < 100 else f"{value:,.0f}"
    return text.replace(",", _THIN_SPACE)


def size(value: float | None) -> str:
    """Bytes with a unit, or a dash for None and for -1."""
    if value is None or value < 0:
        return "–"
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f}{_THIN_SPACE}{unit}" if unit == "B" else f"{value:.1f}{_THIN_SPACE}{unit}"


def at(time_ms: int) -> Markup:
    """A time in UTC, or a dash for one that is not known or has no date."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC) if time_ms >= 0 else None
    except (ValueError, OverflowError, OSError):
        return escape(f"{time_ms} ms")
    if moment is None:
        return Markup("–")
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"
    # Digits only. Markup.format would escape them, and takes most of the time of a row.
    return Markup(f'<time datetime="{text[:10]}T{text[11:]}Z">{text}</time>')  # noqa: S704


def ago(time_ms: int) -> str:
    """The age of a time: `3 s`, `12 min`, `5 h`, `9 d`."""
    if time_ms < 0:
        return "–"
    seconds = max(0, int(time()) - time_ms // 1000)
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // divisor}{_THIN_SPACE}{unit}"
    return f"{seconds // 86_400}{_THIN_SPACE}d"


DEPTH_MAX: Final = 64
"""Of a tree; browsers stop to nest at 512 elements."""
# Of escaped text, in which a quote is `&#34;`. One pass with few matches: a live tail renders 1 000 rows/s.
_STRING: Final = r"&#34;(?:[^&\\\n]|&(?!#34;)|\\(?:&#34;|.))*+&#34;"
_TOKENS: Final = re.compile(
    rf"(?P<key>{_STRING})(?=\s*:)|(?P<string>{_STRING})|&#?\w+;|(?P<word>\b(?:true|false|null)\b)"
    r"|(?P<number>-?\b\d[\d.eE+-]*)|(?P<open>[{\[])|(?P<close>[}\]])|(?P<comma>,)|(?P<colon>:)"
)
_SPACE: Final = re.compile(r"\s+")


def coloured(text: str) -> Markup:
    """JSON with a class for each key and value."""
    return Markup(_TOKENS.sub(_token, str(escape(text))))  # noqa: S704 - escaped, with spans around parts


def tree(text: str) -> Markup:
    """JSON that is whole as a tree; coloured text if it is nested too deeply, or is cut."""
    escaped = str(escape(text))
    found = list(_TOKENS.finditer(escaped))
    depth = deepest = 0
    for one in found:
        depth += (one.lastgroup == "open") - (one.lastgroup == "close")
        deepest = max(deepest, depth)
        if depth < 0:
            break
    if depth or deepest > DEPTH_MAX or _SPACE.sub("", _TOKENS.sub("", escaped)):
        return coloured(text)
    pieces: list[str] = []
    folds: list[bool] = []  # of each open bracket, whether it folds: an empty one does not
    for number, one in enumerate(found):
        match one.lastgroup:
            case "open":
                folds.append(found[number + 1].lastgroup != "close")
                pieces.append(_FOLDS.format(one[0]) if folds[-1] else one[0])
            case "close":
                pieces.append(f"</div></details>{one[0]}" if folds.pop() else one[0])
            case "comma":
                pieces.append(",<br>")
            case "colon":
                pieces.append(": ")
            case _:
                pieces.append(_token(one))
    return Markup("".join(pieces))  # noqa: S704 - tokens of escaped text, and elements of this module


_FOLDS: Final = '<details open><summary>{}</summary><div class="fold">'


def _token(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind in ("key", "string", "word", "number"):
        return f'<span class="j-{kind}">{found[0]}</span>'
    return found[0]

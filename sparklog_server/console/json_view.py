"""JSON as HTML: coloured by kind, and as a tree whose objects and lists fold.

It works on the text of `shown`, which is inert and may be cut: what is no whole value stays as it stands.
"""

import re
from typing import Final

from markupsafe import Markup, escape

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

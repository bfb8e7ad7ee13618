"""Names that do not exist: the sentence for one, with the existing names that are most like it."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

COMPARED_MAX: Final = 10_000
"""Existing names that are compared with the absent one."""
NAME_LENGTH_MAX: Final = 249
SIMILAR_MAX: Final = 3


def similar(name: str, existing: Iterable[str]) -> list[str]:
    """Existing names that are like this one, at most three, the most similar first. None for a name that is
    longer than a topic's may be: the comparison takes quadratic time.
    """
    if len(name) > NAME_LENGTH_MAX:
        return []
    compared = [one for one in islice(existing, COMPARED_MAX) if abs(len(one) - len(name)) <= len(name)]
    return get_close_matches(name, compared, n=SIMILAR_MAX, cutoff=0.7)


def absent(kind: str, name: str, existing: Iterable[str], remedy: str = "") -> str:
    """`there is no topic 'ordrs'; did you mean 'orders'?`, and the remedy if there is one."""
    like = " or ".join(map(repr, similar(name, existing)))
    question = f"; did you mean {like}?" if like else ""
    return f"there is no {kind} {name!r}{question}" + (remedy and f"{' ' if like else '; '}{remedy}")

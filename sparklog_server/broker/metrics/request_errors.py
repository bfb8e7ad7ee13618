"""The errors in responses, by API and error code, as ErrorsPerSec of Kafka: one for each partition, topic or
group that a response refuses. Nothing here is imported before the metrics are switched on.
"""

from collections import Counter
from functools import cache
from typing import get_args, get_origin, get_type_hints

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.schema import Message

_Plan = tuple[bool, tuple[tuple[str, type[Message]], ...]]
"""Whether a message has an error code, and the lists in which there are some."""


class RequestErrors:
    """Invariant: `counts` has at most one entry for each API and error code."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, ErrorCode]] = Counter()

    def count(self, api_key: int, response: Message) -> None:
        """Count the errors of a response."""
        self._count(api_key, response, _plan(type(response)))

    def _count(self, api_key: int, message: Message, plan: _Plan) -> None:
        has_code, lists = plan
        if has_code and (code := message.error_code):  # type: ignore[attr-defined]  # the plan says so
            self.counts[api_key, code_of(code)] += 1
        for name, kind in lists:
            inner = _plan(kind)
            for one in getattr(message, name) or ():
                self._count(api_key, one, inner)


@cache
def _plan(kind: type[Message]) -> _Plan:
    hints = get_type_hints(kind)
    lists = []
    for name, hint in hints.items():
        inner = next((one for one in _types_in(hint) if issubclass(one, Message)), None)
        if inner is not None and _is_list(hint) and any(_plan(inner)):
            lists.append((name, inner))
    return "error_code" in hints, tuple(lists)


def _is_list(hint: object) -> bool:
    return get_origin(hint) is list or any(get_origin(one) is list for one in get_args(hint))


def _types_in(hint: object) -> list[type]:
    """The classes that a type mentions: those of list[A] | None are A and None."""
    if isinstance(hint, type) and get_origin(hint) is None:
        return [hint]
    return [found for one in get_args(hint) for found in _types_in(one)]

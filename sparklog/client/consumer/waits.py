"""The steps at which a consumer waits or calls its user: its methods are generators that yield them, and a
front end, blocking or in an event loop, performs each step and resumes the generator.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from sparklog.model import Micros

T = TypeVar("T")


class Events(NamedTuple):
    """Wait for the consumer's network, in its state at `now`, or until the group needs the consumer."""

    until: Micros
    now: Micros
    is_polling: bool


class Until(NamedTuple):
    """Wait until a condition of the group's machine holds."""

    is_over: Callable[[], bool]
    deadline: Micros


class Call(NamedTuple):
    """Call a listener of the user with these partitions."""

    listener: Callable[[Any], object]
    partitions: tuple[Any, ...]


Step = Events | Until | Call
Steps = Generator[Step, None, T]

"""Topics chosen by name, by regular expression, or all."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog_server.cli.options import topics_named

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.topics import Topic

Command = TypeVar("Command", bound=Callable[..., Any])

PATTERN_CHARS_MAX = 8 * 1024
PATTERN_MEMORY_MAX = 1024 * 1024


def matches_names(command: Command) -> Command:
    """Add the option that takes TOPIC as a regular expression."""
    return click.option(
        "--regex",
        "-r",
        "is_regex",
        is_flag=True,
        help="Match whole topic names with TOPIC as a regular expression in RE2's syntax.",
    )(command)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches the pattern as a whole, in linear time; BadParameter for what is no pattern."""
    import re2

    if len(pattern) > PATTERN_CHARS_MAX:
        raise click.BadParameter(
            f"the pattern has {len(pattern)} characters; it may have {PATTERN_CHARS_MAX}", param_hint="TOPIC"
        )
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise click.BadParameter(
            f"{pattern[:80]!r} is no regular expression of RE2: {told}", param_hint="TOPIC"
        ) from None
    return lambda name: compiled.fullmatch(name.encode()) is not None


def chosen(
    cluster: "Admin", names: Sequence[str], *, is_regex: bool, internal: bool = False
) -> "dict[str, Topic]":
    """The topics of these names, of those that a pattern matches, or all if there are no names.

    ClickException for a name or a pattern of no topic.
    """
    if names and not is_regex:
        return topics_named(cluster, names)
    if is_regex and not names:
        raise click.UsageError("--regex needs a pattern: name it in place of TOPIC")
    found = cluster.list_topics(include_internal=internal)
    if not names:
        return found
    matched: dict[str, Topic] = {}
    for pattern in names:
        matches = matcher(pattern)
        own = {name: topic for name, topic in found.items() if matches(name)}
        if not own:
            raise click.ClickException(
                f"no topic matches {pattern!r}; a pattern matches the whole name, such as '{pattern}.*'"
            )
        matched |= own
    return matched

"""The administration client of a command, and the names of what its cluster has: topics and partitions that a
command names, topics that a regular expression matches, and the shell completion of names.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.topics import Topic
from sparklog.client.failures import UnknownTopic
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import TopicPartition
from sparklog_server.cli.options import client_settings, without_options
from sparklog_server.operations.similar_names import absent

Command = TypeVar("Command", bound=Callable[..., Any])

PARTITION_NUMBER_MAX = (1 << 31) - 1
PATTERN_CHARS_MAX = 8 * 1024
PATTERN_MEMORY_MAX = 1024 * 1024
COMPLETIONS_MAX = 200
_PLAIN: Final = re.compile(r"[\w.:@%/=,+-]+")
"""Names that every shell takes as one word. Others are not offered: bash puts a completion into the command
line as it is, where `$(…)` runs.
"""


@contextmanager
def admin(*, awaits_silent: bool = True) -> Iterator[Admin]:
    """An administration client for this command; one for a survey goes on without silent brokers. An error
    for a name that the cluster does not have suggests similar ones.
    """
    with Admin.from_settings(client_settings(), awaits_silent=awaits_silent) as cluster:
        try:
            yield cluster
        except ItemsFailed as failed:
            errors = {item: _with_similar(cluster, item, error) for item, error in failed.errors.items()}
            raise ItemsFailed(errors, failed.results) from None


def _with_similar(cluster: Admin, item: object, error: BrokerError) -> BrokerError:
    """The error of an item; one of a name that the cluster does not have suggests similar names."""
    # A setting's resource has a name, a partition a topic; groups and transactional ids are texts.
    name = getattr(item, "name", None) or getattr(item, "topic", None) or item
    if not isinstance(name, str):
        return error
    try:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            existing: Iterable[str] = cluster.list_topics(include_internal=True)
            text = absent("topic", name, existing)
            if name in existing:
                return error  # what it lacks is the partition
        elif error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            text = absent("group", name, [group.group_id for group in cluster.list_groups()])
        elif error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            ids = [one.transactional_id for one in cluster.list_transactions()]
            text = absent("transactional id", name, ids)
        else:
            return error
    except SparklogError:
        return error  # names are optional: the user may be allowed less than to list them
    return BrokerError(error.code, text)


# -- names ---------------------------------------------------------------------------------------------------


def partitions_in(text: str) -> tuple[str, tuple[int, ...] | None]:
    """The topic and partitions of `topic` or `topic:0,1,2`, as in Kafka's tools; None for all partitions."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, None
    listed = numbers.split(",")
    if not topic or not all(number.isdecimal() and int(number) <= PARTITION_NUMBER_MAX for number in listed):
        raise click.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:0,1,2", param_hint="--topic")
    return topic, tuple(dict.fromkeys(map(int, listed)))


def partitions_named(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """The partitions of texts such as `topic` and `topic:0,1`; each must exist."""
    named = [partitions_in(text) for text in texts]
    topics = topics_named(admin, dict.fromkeys(topic for topic, _ in named))
    found: dict[TopicPartition, None] = {}
    for topic, numbers in named:
        existing = [partition.partition for partition in topics[topic].partitions]
        for number in existing if numbers is None else numbers:
            if number not in existing:
                raise click.ClickException(
                    f"topic {topic} has no partition {number}; it has {len(existing)}, from 0 on"
                )
            found[TopicPartition(topic, number)] = None
    return list(found)


def topics_named(admin: Admin, names: Iterable[str]) -> dict[str, Topic]:
    """Topics by their names; the error for an unknown name suggests similar ones."""
    asked = list(names)
    try:
        return admin.describe_topics(asked)
    except UnknownTopic:
        existing = admin.list_topics()
        for name in asked:
            if name not in existing:
                raise click.ClickException(absent("topic", name, existing)) from None
        raise


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
        why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise click.BadParameter(
            f"{pattern[:80]!r} is no regular expression of RE2: {why}", param_hint="TOPIC"
        ) from None
    return lambda name: compiled.fullmatch(name.encode()) is not None


def chosen(
    cluster: Admin, names: Sequence[str], *, is_regex: bool, internal: bool = False
) -> dict[str, Topic]:
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


# -- shell completion ----------------------------------------------------------------------------------------


def topic_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topic names for shell completion; none if no broker answers."""
    return _completions(context, incomplete, lambda admin: admin.list_topics())


def group_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Group names for shell completion; none if no broker answers."""
    return _completions(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


def transactional_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Transactional ids for shell completion."""
    return _completions(
        context,
        incomplete,
        lambda admin: [one.transactional_id for one in admin.list_transactions(prefix=incomplete)],
    )


def _completions(context: click.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]) -> list[str]:
    without_options(context)
    try:
        with context, admin() as asked:
            offered = [name for name in ask(asked) if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
            return offered[:COMPLETIONS_MAX]
    except (SparklogError, OSError, click.ClickException):
        return []

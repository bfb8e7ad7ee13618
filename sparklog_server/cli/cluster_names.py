"""Shell completion of what the cluster has: topics, groups, transactional ids. Without an answer of a broker
there is nothing to complete.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from sparklog_server.cli.options import admin, without_options

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin

COMPLETIONS_MAX = 200
_PLAIN: Final = re.compile(r"[\w.:@%/=,+-]+")
"""Names that every shell takes as one word. Others are not offered: bash puts a completion into the command
line as it is, where `$(…)` runs.
"""


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


def _completions(
    context: click.Context, incomplete: str, ask: "Callable[[Admin], Iterable[str]]"
) -> list[str]:
    from sparklog.errors import SparklogError

    without_options(context)
    try:
        with context, admin() as asked:
            offered = [name for name in ask(asked) if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
            return offered[:COMPLETIONS_MAX]
    except (SparklogError, OSError, click.ClickException):
        return []

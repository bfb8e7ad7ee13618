"""How commands show a plan of moves, and execute it: a table, totals, a bar, and what waits for what."""

import functools
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.errors import BrokerError, ErrorCode, SettingsError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.printing import (
    bytes_text,
    listed,
    print_json,
    print_line,
    print_table,
    report,
    say,
)
from sparklog_server.config.units import in_unit_of
from sparklog_server.operations.balance import NodeLoad, PlannedMove, copying_s, loads_of
from sparklog_server.operations.moves import (
    CONCURRENT_MAX,
    ClusterFacts,
    Progress,
    execute,
    facts_of,
    reassigning,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_FAILURE: Final = 1
EXIT_INTERRUPTED: Final = 130
MOVES_SHOWN_MAX: Final = 50
"""Partitions in a table on a terminal; elsewhere all are printed."""
NAMES_MAX: Final = 5
LEARNT_S_MAX: Final = 2.0
"""How long a broker may take to learn of the end of a move."""
REPORTED_EVERY_S: Final = 10.0
"""After this time without progress, the moves in progress are printed with what they wait for; where stderr
is no terminal, how far the plan is.
"""


class Execution(NamedTuple):
    """What the options of a command say of the execution of its plan: whether to execute, without a question
    if it is confirmed; the rate in bytes a second; how many partitions move at a time.
    """

    is_wanted: bool
    is_confirmed: bool
    throttle: int | None
    concurrent: int


def executes(command: Command) -> Command:
    """Add the options of a command that plans moves; they are its parameter `execution`."""

    # Any: the arguments are those of the command.
    @functools.wraps(command)
    def executed(
        *arguments: Any,
        dry_run: bool,
        is_wanted: bool,
        is_confirmed: bool,
        throttle: int | None,
        concurrent: int,
        **options: Any,
    ) -> Any:
        if dry_run and is_wanted:
            raise click.UsageError("--dry-run and --execute exclude each other")
        execution = Execution(is_wanted, is_confirmed, throttle, concurrent)
        return command(*arguments, execution=execution, **options)

    decorated: Any = executed
    for option in (
        click.option("--yes", "-y", "is_confirmed", is_flag=True, help="Execute without a question."),
        click.option("--execute", "is_wanted", is_flag=True, help="Execute the plan, and show its progress."),
        click.option("--dry-run", is_flag=True, help="Show the plan only. This is the default."),
    ):
        decorated = option(decorated)
    return cast(Command, is_throttled(decorated))


def is_throttled(command: Command) -> Command:
    """Add the options of the pace of moves: their rate, and how many move at a time."""
    concurrent = click.option(
        "--concurrent",
        metavar="N",
        type=click.IntRange(1),
        default=CONCURRENT_MAX,
        show_default=True,
        help="Move this many partitions at a time.",
    )
    return takes_throttle(concurrent(command))


def takes_throttle(command: Command) -> Command:
    """Add the option of the rate at which replicas are copied."""
    return click.option(
        "--throttle",
        metavar="RATE",
        callback=_rate,
        help="Bound what each broker sends, and what it receives, to copy replicas: 50MB/s. The bound ends "
        "with the last move.",
    )(command)


def _rate(_: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that is a rate: bytes a second, at least one."""
    if text is None:
        return None
    hint = option.opts[0]
    try:
        value = in_unit_of("rate.bytes", text.strip().removesuffix("/s"))
    except SettingsError:
        value = ""
    if not value.isdecimal():
        raise click.BadParameter(
            f"{text!r} is no rate; write 50MB/s, or a number of bytes a second", param_hint=hint
        )
    if int(value) < 1:
        raise click.BadParameter(
            "a rate of 0 would let no replica catch up; leave the option out for no bound", param_hint=hint
        )
    return int(value)


# -- the plan ------------------------------------------------------------------------------------------------


class ShownPlan(NamedTuple):
    """A plan with what is printed of it: the load of each node before and after, the bytes to copy, and the
    seconds that this takes at least at the throttle, None without one.
    """

    moves: Sequence[PlannedMove]
    before: Mapping[NodeId, NodeLoad]
    after: Mapping[NodeId, NodeLoad]
    bytes: int
    copying_s: float | None


def plan_of(facts: ClusterFacts, moves: Sequence[PlannedMove], throttle: int | None) -> ShownPlan:
    """What is printed of these moves in a cluster."""
    after = {one.at: one.after for one in moves}
    sizes = {at: facts.size_of(at) for at in facts.partitions}
    leaders = {at: one.leader for at, one in facts.partitions.items() if one.leader >= 0}
    nodes = facts.balanced_nodes()
    return ShownPlan(
        moves,
        loads_of(nodes, [(one.replicas, sizes[at]) for at, one in facts.partitions.items()]),
        loads_of(nodes, [(after.get(at, one.replicas), sizes[at]) for at, one in facts.partitions.items()]),
        sum(one.bytes for one in moves),
        None if throttle is None else copying_s(moves, leaders, throttle),
    )


def show_plan(plan: ShownPlan, *, empty: str) -> None:
    """Print the moves; on a terminal also the loads of the nodes, and a summary. `empty` says why there is
    nothing to move.
    """
    is_terminal = sys.stdout.isatty()
    shown = plan.moves[:MOVES_SHOWN_MAX] if is_terminal else plan.moves
    print_table(
        ["partition", "from", "to", "to copy"],
        [
            [
                f"{one.at.topic}:{one.at.partition}",
                listed(one.before),
                listed(one.after),
                bytes_text(one.bytes),
            ]
            for one in shown
        ],
        empty=empty,
    )
    if not plan.moves:
        return
    if len(shown) < len(plan.moves):
        say(f"and {len(plan.moves) - len(shown)} more partitions; --json has all")
    if is_terminal:
        print_table(
            ["node", "bytes", "after", "replicas", "after", "preferred leader of", "after"],
            [
                [
                    node,
                    bytes_text(load.bytes),
                    bytes_text(plan.after[node].bytes),
                    load.replicas,
                    plan.after[node].replicas,
                    load.leaders,
                    plan.after[node].leaders,
                ]
                for node, load in plan.before.items()
            ],
        )
    report(summary(plan))


def summary(plan: ShownPlan) -> str:
    """How many partitions get other replicas, and what that costs."""
    copied = sum(bool(one.added) for one in plan.moves)
    parts = []
    if copied:
        at_least = "" if plan.copying_s is None else f", {seconds_text(plan.copying_s)} at the throttle"
        parts.append(f"{partitions_text(copied)} to copy: {size_text(plan.bytes)}{at_least}")
    if len(plan.moves) - copied:
        parts.append(f"{partitions_text(len(plan.moves) - copied)} with nothing to copy")
    return "; ".join(parts)


def plan_as_json(plan: ShownPlan) -> dict[str, object]:
    """The plan for other programs."""
    return {
        "moves": [
            {
                "topic": one.at.topic,
                "partition": one.at.partition,
                "from": one.before,
                "to": one.after,
                "bytes": one.bytes,
            }
            for one in plan.moves
        ],
        "bytes": plan.bytes,
        "seconds_at_throttle": None if plan.copying_s is None else round(plan.copying_s, 1),
        "nodes": [
            {"node": node, "before": load._asdict(), "after": plan.after[node]._asdict()}
            for node, load in plan.before.items()
        ],
    }


# -- execution -----------------------------------------------------------------------------------------------


def settle_plan(
    cluster: Admin,
    facts: ClusterFacts,
    moves: Sequence[PlannedMove],
    execution: Execution,
    *,
    is_json: bool,
    empty: str,
    remedy: str = "--execute moves them",
) -> int:
    """Print a plan, and execute it if that is wanted and confirmed; the exit code of the command: 1 if a
    partition was refused. `empty` says why there is nothing to move, `remedy` how a plan is executed.
    """
    plan = plan_of(facts, moves, execution.throttle)
    if not is_json:
        show_plan(plan, empty=empty)
    refused: Mapping[TopicPartition, BrokerError] = {}
    is_interrupted = False
    if execution.is_wanted and moves:
        if not execution.is_confirmed and sys.stdin.isatty():
            click.confirm(f"Move {partitions_text(len(moves))}?", abort=True, err=True)
        refused, is_interrupted = carry_out(cluster, moves, execution)
        if not is_interrupted:
            elect_preferred(cluster, [one.at for one in moves if one.at not in refused])
    elif moves and not is_json:
        report(f"nothing was changed; {remedy}")
    if is_json:
        print_json(
            plan_as_json(plan)
            | {
                "is_executed": execution.is_wanted,
                "refused": [
                    {"topic": at.topic, "partition": at.partition, "error": str(error)}
                    for at, error in refused.items()
                ],
            }
        )
    if is_interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if refused else 0


def carry_out(
    cluster: Admin, moves: Sequence[PlannedMove], execution: Execution
) -> tuple[Mapping[TopicPartition, BrokerError], bool]:
    """Execute a plan with a bar; the moves that were refused or replaced, which are printed, and whether
    Ctrl-C ended it.
    """
    progress = Progress(0, (), len(moves), 0, {})
    waits = _Waits(cluster)
    try:
        with _bar(len(moves), sum(one.bytes for one in moves)) as told:
            for progress in execute(
                cluster,
                moves,
                sleep=time.sleep,
                throttle=execution.throttle,
                concurrent_max=execution.concurrent,
            ):
                told(progress)
                waits.looked(progress)
    except KeyboardInterrupt:
        report(
            f"{partitions_text(progress.done)} moved, {len(progress.moving)} go on moving, "
            f"{progress.waiting} have not begun. `sparklog partitions reassignments` shows those that move, "
            f"with --cancel it takes them back; the same command again plans the rest."
        )
        return progress.refused, True
    tell_refused(progress.refused)
    replaced = _replaced(cluster, [one for one in moves if one.at not in progress.refused])
    report(f"moved {partitions_text(progress.done - len(replaced))}")
    return {**progress.refused, **replaced}, False


def _replaced(cluster: Admin, moves: Sequence[PlannedMove]) -> dict[TopicPartition, BrokerError]:
    """The partitions that have other replicas than those planned, printed: another command has cancelled or
    replaced their moves, or deleted their topics.
    """
    until_s = time.monotonic() + LEARNT_S_MAX
    while others := _with_other_replicas(cluster, moves):
        if time.monotonic() >= until_s:
            break
        time.sleep(LEARNT_S_MAX / 10)
    if others:
        names = first([f"{at.topic}:{at.partition}" for at in others])
        text = "another command has cancelled or replaced the move, or deleted the topic"
        print_line(f"sparklog: {partitions_text(len(others))}: {names}: {text}", is_error=True)
    error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    return {at: BrokerError(error, f"{at}: cancelled or replaced") for at in others}


def _with_other_replicas(cluster: Admin, moves: Sequence[PlannedMove]) -> list[TopicPartition]:
    if not moves:
        return []
    found = {
        TopicPartition(topic.name, one.partition): one.replicas
        for topic in cluster.list_topics(include_internal=True).values()
        for one in topic.partitions
    }
    return [one.at for one in moves if sorted(found.get(one.at, ())) != sorted(one.after)]


def elect_preferred(cluster: Admin, partitions: Sequence[TopicPartition]) -> None:
    """Give the first of the replicas the leadership; or leave it to the controller where it lags."""
    if partitions:
        try:
            cluster.elect_leaders(partitions)
        except (ItemsFailed, BrokerError):
            return


def tell_refused(refused: Mapping[TopicPartition, BrokerError]) -> None:
    """The partitions that were refused by reason, on stderr."""
    by_reason: dict[str, list[str]] = {}
    for at, error in sorted(refused.items()):
        text = str(error).replace(f"{at}: ", "")
        by_reason.setdefault(text, []).append(f"{at.topic}:{at.partition}")
    for text, names in by_reason.items():
        print_line(f"sparklog: {partitions_text(len(names))} refused: {first(names)}: {text}", is_error=True)


class _Waits:
    """Prints what the moves in progress wait for, once nothing has changed for a while."""

    def __init__(self, cluster: Admin) -> None:
        self._cluster = cluster
        self._seen: tuple[object, ...] = ()
        self._since_s = time.monotonic()
        self._told: set[str] = set()

    def looked(self, progress: Progress) -> None:
        """A look at the cluster found this."""
        seen = (progress.done, progress.moving, progress.bytes_left)
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        elif now_s - self._since_s >= REPORTED_EVERY_S and progress.moving:
            self._since_s = now_s
            topics = sorted({at.topic for at in progress.moving})
            for one in reassigning(facts_of(self._cluster, topics))[:NAMES_MAX]:
                line = f"{one.at.topic}:{one.at.partition} waits: {one.reason}"
                if line not in self._told:
                    self._told.add(line)
                    report(line)


@contextmanager
def _bar(partitions: int, size: int) -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr if that is a terminal; elsewhere a line every ten seconds."""
    if not sys.stderr.isatty():
        yield _Lines(partitions).told
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        if size
        else (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    )
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        yield functools.partial(_draw, bar, bar.add_task("", total=size or partitions), partitions, size)


def _draw(bar: "Bar", task: "TaskID", partitions: int, size: int, progress: Progress) -> None:
    bar.update(
        task,
        completed=size - progress.bytes_left if size else progress.done,
        description=f"{progress.done} of {partitions_text(partitions)}, {len(progress.moving)} moving",
    )


class _Lines:
    """Says on stderr how far a plan is, every ten seconds."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._told_s = time.monotonic()

    def told(self, progress: Progress) -> None:
        """A look at the cluster found this."""
        if time.monotonic() - self._told_s >= REPORTED_EVERY_S:
            self._told_s = time.monotonic()
            report(
                f"{progress.done} of {partitions_text(self._partitions)} moved, "
                f"{len(progress.moving)} moving, {size_text(progress.bytes_left)} to copy"
            )


# -- words ---------------------------------------------------------------------------------------------------


def partitions_text(count: int) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count} partition{'s' * (count != 1)}"


def size_text(size_bytes: int) -> str:
    """Bytes in the units of a rate: `1.5 GB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A time in two units at most: `1 h 5 min`."""
    whole = max(round(seconds), 1)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def first(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join([*names][:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} and {len(names) - NAMES_MAX} more"

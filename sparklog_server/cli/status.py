"""`sparklog status`: the cluster on one screen."""

import sys

import click

from sparklog.client.admin.admin import Admin
from sparklog_server.cli.node_pages import addresses
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, bytes_text, print_json, print_line, print_table
from sparklog_server.cli.status_facts import Status, status_of, uptime_text
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.inert_text import inert_name

EVENTS = 8
GROUPS = 10


@click.command()
@click.option(
    "--http",
    metavar="URL",
    multiple=True,
    help="Read release, uptime and last events of a node here, such as http://127.0.0.1:9464. Repeatable, or "
    "separated by commas. [default: sparklog.http.listener of the brokers]",
)
@click.option(
    "--events",
    "events_max",
    metavar="N",
    type=click.IntRange(0, 200),
    default=EVENTS,
    show_default=True,
    help="Show the last N events of each node.",
)
@reaches_cluster
@as_json
@can_watch
def status(http: tuple[str, ...], events_max: int, is_json: bool) -> int:
    """Show the cluster on one screen: brokers, release, uptime, topics, lag, disks and last events.

    The values of a broker that does not answer are unknown. Exits with 1 if a partition has no
    leader, or a broker or a disk is out of service or does not answer; `sparklog health` has the remedies.
    """
    try:
        given = addresses(http)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    settings = client_settings()
    with Admin.from_settings(settings, awaits_silent=False) as asked:
        facts = status_of(asked, settings, given, events_max=events_max)
    if is_json:
        print_json(_as_json(facts))
    elif sys.stdout.isatty():
        _print_screen(facts)
    else:
        _print_lines(facts)
    return 0 if facts.is_ok else 1


def _print_screen(facts: Status) -> None:
    counts = facts.counts
    click.secho(
        f"{inert_name(facts.cluster_id)}  {counts.topics} topics, {counts.partitions} partitions, "
        f"{counts.offline} offline, {counts.under_replicated} under-replicated, "
        f"lag {'unknown' if facts.lag is None else f'{facts.lag:,}'}",
        fg="green" if facts.is_ok else "red",
        bold=True,
    )
    rows: list[list[object]] = []
    for row in facts.brokers:
        page = facts.pages.get(facts.page_of[row.node]) if row.node in facts.page_of else None
        uptime = uptime_text(page.uptime_s) if page is not None and page.uptime_s is not None else None
        disk = None if row.used is None else f"{bytes_text(row.used)}, {bytes_text(row.usable) or '?'} free"
        state = facts.state_of(row)
        rows.append([row.node, row.address, state, page.version if page else None, uptime, row.leaders, disk])
    worry = {number: "red" for number, row in enumerate(rows) if row[2] != "ok"}
    print_table(("broker", "address", "state", "release", "uptime", "leaders", "disk"), rows, emphasis=worry)
    if facts.groups:
        print_table(
            ("group", "state", "members", "lag"),
            [[inert_name(one.group), *one[1:]] for one in facts.groups[:GROUPS]],
        )
        if len(facts.groups) > GROUPS:
            print_line(f"and {len(facts.groups) - GROUPS} more groups: sparklog groups describe")
    for address, page in facts.pages.items():
        if page.events:
            click.secho(f"last events of {inert_name(str(address))}", bold=True)
        for line in page.events:
            print_line(line)
    for note in facts.notes:
        click.secho(inert_name(note), dim=True)


def _print_lines(facts: Status) -> None:
    counts = facts.counts
    print_line(
        "cluster",
        f"id={facts.cluster_id}",
        f"brokers={len(facts.brokers)}",
        f"topics={counts.topics}",
        f"partitions={counts.partitions}",
        f"offline={counts.offline}",
        f"under_replicated={counts.under_replicated}",
        f"lag={'unknown' if facts.lag is None else facts.lag}",
    )
    brokers: list[list[object]] = []
    for row in facts.brokers:
        page = facts.pages.get(facts.page_of[row.node]) if row.node in facts.page_of else None
        version, uptime_s = (page.version, page.uptime_s) if page is not None else (None, None)
        disk = (row.used, row.usable, row.total)
        state = facts.state_of(row)
        brokers.append(["broker", row.node, row.address, state, version, uptime_s, row.leaders, *disk])
    print_table((), brokers)
    print_table((), [["group", *one] for one in facts.groups])
    for address, page in facts.pages.items():
        print_table((), [["event", address, line.replace("\t", " ")] for line in page.events])
    print_table((), [["note", note] for note in facts.notes])


def _as_json(facts: Status) -> dict[str, object]:
    return {
        "cluster_id": facts.cluster_id,
        "is_ok": facts.is_ok,
        **facts.counts._asdict(),
        "lag": facts.lag,
        "brokers": [
            {
                "broker": row.node,
                "address": row.address,
                "state": facts.state_of(row),
                "leaders": row.leaders,
                "used": row.used,
                "usable": row.usable,
                "total": row.total,
                "http": str(facts.page_of[row.node]) if row.node in facts.page_of else None,
            }
            for row in facts.brokers
        ],
        "groups": [one._asdict() for one in facts.groups],
        "nodes": {str(address): page._asdict() for address, page in facts.pages.items()},
        "notes": facts.notes,
    }

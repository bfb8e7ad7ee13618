"""Transactions: those of all coordinators, one of them, and those that no coordinator will end."""

from typing import Final

from starlette.responses import Response

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.transactions import OpenTransaction, TransactionDescription, TransactionListing
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import TopicPartition
from sparklog_server.console.ask import Absent, Ask, Refused, get, post
from sparklog_server.operations.surveys import Answered, listed_by_all, missing_of

SHOWN_MAX: Final = 200
LONGER_THAN_MS: Final = 900_000
"""Brokers end older ones themselves (transaction.max.timeout.ms)."""
STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty")


async def transactions(ask: Ask) -> Response:
    """The transactional ids with state and producer; on demand, hanging transactions."""
    search, state, finds = ask.query("q"), ask.query("state"), ask.query("hanging") == "1"
    states = [state] if state in STATES else []

    def asked(admin: Admin) -> tuple[Answered[list[TransactionListing]], list[OpenTransaction] | None]:
        listing = listed_by_all(lambda: admin.list_transactions(states=states))
        return listing, admin.find_hanging_transactions(longer_than_ms=LONGER_THAN_MS) if finds else None

    listing, hanging = await ask.admin(asked)
    found = [one for one in listing.found if search.lower() in one.transactional_id.lower()]
    return ask.page(
        "transactions.html",
        rows=found[:SHOWN_MAX],
        count=len(found),
        search=search,
        state=state,
        states=STATES,
        hanging=hanging,
        missing=missing_of(listing.errors),
    )


async def transaction(ask: Ask) -> Response:
    """One transactional id."""
    name = ask.either("id")

    def described(admin: Admin) -> TransactionDescription:
        return admin.describe_transactions([name])[name]

    try:
        return ask.page("transaction.html", transaction=await ask.admin(described))
    except BrokerError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    existing = [one.transactional_id for one in await ask.admin(lambda admin: admin.list_transactions())]
    raise Absent("transactional id", name, existing, "/transaction?id=")


async def fence(ask: Ask) -> Response:
    """Fence the producer of an id: its open transaction is aborted."""
    name = ask.required("id", "the transactional id")
    if ask.field("confirm") != "yes":
        raise Refused("confirm that the producer is to be fenced", "confirm")
    await ask.cluster.change(lambda admin: admin.fence_producers([name]))
    return ask.moved("/transaction", "The producer is fenced, and its open transaction is aborted.", id=name)


async def abort(ask: Ask) -> Response:
    """Write the abort marker of a hanging transaction to its partition."""
    numbers = [ask.field(name) for name in ("partition", "producer", "epoch")]
    coordinator = ask.field("coordinator", "0").removeprefix("-")
    if not all(text.isdecimal() and len(text) < 20 for text in (*numbers, coordinator)):
        raise Refused("a hanging transaction is named by partition, producer id and epoch")
    at = TopicPartition(ask.required("topic", "the topic"), int(numbers[0]))
    await ask.cluster.change(
        lambda admin: admin.abort_transaction(
            at,
            producer_id=int(numbers[1]),
            producer_epoch=int(numbers[2]),
            coordinator_epoch=int(ask.field("coordinator", "0")),
        )
    )
    return ask.moved("/transactions", f"The transaction is aborted in {at}.", hanging=1)


ROUTES = [
    get("/transactions", transactions),
    get("/transaction", transaction),
    post("/transaction/fence", fence, form=transaction),
    post("/transactions/abort", abort, form=transactions),
]

"""Users with SCRAM passwords."""

from typing import Final, get_args

from starlette.responses import Response

from sparklog.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from sparklog_server.console.ask import Ask, Refused, get, post

MECHANISMS: Final[tuple[ScramMechanism, ...]] = get_args(ScramMechanism)
_PASSWORD_MAX: Final = 4096


async def users(ask: Ask) -> Response:
    """The users with their mechanisms."""
    described = await ask.admin(lambda admin: admin.describe_user_scram_credentials())
    rows = [(user, *one) for user, mechanisms in described.items() for one in mechanisms.items()]
    return ask.page("users.html", rows=rows, mechanisms=MECHANISMS)


async def set_password(ask: Ask) -> Response:
    """Add a user, or change a password."""
    user, password = ask.required("user", "the name"), ask.required("password", "the password")
    if password != ask.field("again"):
        raise Refused("the two passwords differ", "again")
    if len(password.encode()) > _PASSWORD_MAX or "\0" in password or "\n" in password:
        raise Refused(f"a password is one line of at most {_PASSWORD_MAX} bytes", "password")
    change = ScramUpsertion(user, password, mechanism=_mechanism(ask))
    await ask.cluster.change(lambda admin: admin.alter_user_scram_credentials([change]))
    return ask.moved("/users", f"The password of {user} is set.")


async def remove(ask: Ask) -> Response:
    """Remove the password of a user for one mechanism."""
    user = ask.required("user", "the name")
    change = ScramDeletion(user, _mechanism(ask))
    await ask.cluster.change(lambda admin: admin.alter_user_scram_credentials([change]))
    return ask.moved("/users", f"The password of {user} is removed. Access rules stay.")


def _mechanism(ask: Ask) -> ScramMechanism:
    text = ask.required("mechanism", "the mechanism")
    for known in MECHANISMS:
        if known == text:
            return known
    raise Refused(f"{text[:40]!r} is no mechanism; there are {', '.join(MECHANISMS)}", "mechanism")


ROUTES = [
    get("/users", users),
    post("/users", set_password, form=users),
    post("/users/remove", remove, form=users),
]

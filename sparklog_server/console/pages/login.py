"""Log in and out with the name and password of a user of the cluster."""

from starlette.responses import Response

from sparklog.client.failures import AuthenticationFailed
from sparklog_server.console.access import LIFETIME_S
from sparklog_server.console.ask import Ask, Refused, get, post
from sparklog_server.console.clusters import Cluster

_NAME_MAX = 1024


async def form(ask: Ask) -> Response:
    """The form; without login, the overview."""
    if not ask.console.needs_login:
        return ask.moved("/")
    return ask.page("login.html", next=_inside(ask.either("next") or "/"), name=ask.field("name")[:_NAME_MAX])


async def log_in(ask: Ask) -> Response:
    """Authenticate to the cluster; a session begins if it takes the name and the password."""
    console = ask.console
    name, password, following = ask.field("name"), ask.field("password"), _inside(ask.field("next", "/"))
    if not console.needs_login:
        return ask.moved("/")
    if not name or not password or len(name) > _NAME_MAX or len(password) > _NAME_MAX:
        raise Refused("Give a name and a password.", "name")
    cluster = Cluster(console.target.as_user(name, password), console.limiter)
    try:
        async with console.logins:
            await cluster.admin(lambda admin: admin.describe_cluster())
    except AuthenticationFailed:
        cluster.close()
        raise Refused("The cluster does not accept this name and password.", "password", 403) from None
    except BaseException:
        cluster.close()
        raise
    cookie = console.sessions.new_id()
    session_id = console.sessions.read(cookie)
    assert session_id is not None
    console.sessions.end(ask.session_id)
    console.sessions.begin(session_id, name, cluster)
    response = ask.moved(following)
    # A new id, so that one set before the login is worth nothing.
    console.set_cookie(response, console.cookie, cookie, LIFETIME_S)
    return response


async def log_out(ask: Ask) -> Response:
    """End the session."""
    ask.console.sessions.end(ask.session_id)
    response = ask.moved("/login")
    response.delete_cookie(ask.console.cookie)
    return response


def _inside(path: str) -> str:
    """The address within the console; `/` in place of one that leads elsewhere."""
    is_path = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_path else "/"


ROUTES = [
    get("/login", form, is_open=True),
    post("/login", log_in, form=form, is_open=True),
    post("/logout", log_out, is_open=True),
]

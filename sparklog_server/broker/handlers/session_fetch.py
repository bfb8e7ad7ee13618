"""Fetch in a session of a consumer (KIP-227): which partitions it reads, and what its response says.

    full fetch ──► reads the partitions it names ──► the response says all, with the id of a new session
    incremental fetch ──► reads all partitions of the session ──► the response says what is new

See `broker/consumer_sessions.py` for the sessions.
"""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog_server.broker.session import Call
from sparklog_server.replica.fetch_sessions import FULL_FETCH, NO_SESSION, epoch_after, key_of, refusal_of

if TYPE_CHECKING:
    from sparklog_server.broker.consumer_sessions import ConsumerSession, ConsumerSessions
    from sparklog_server.broker.ports import FetchPort

_TOPIC_IDS_SINCE = 13


class BeginningSession:
    """A full fetch, whose response begins a session if there is room: a fetch that is abandoned before leaves
    none.
    """

    __slots__ = ("_request", "_sessions", "_uses_topic_ids")

    def __init__(self, sessions: "ConsumerSessions", request: FetchRequest, *, uses_topic_ids: bool) -> None:
        self._sessions = sessions
        self._request = request
        self._uses_topic_ids = uses_topic_ids

    def told(self, response: FetchResponse, now: Instant) -> FetchResponse:
        """The response, with the id of the new session."""
        asked = self._request.topics
        if self._sessions.make_room(sum(len(topic.partitions) for topic in asked), now):
            uses_topic_ids = self._uses_topic_ids
            parts = {}
            for topic, read in zip(asked, response.responses, strict=True):
                for part, data in zip(topic.partitions, read.partitions, strict=True):
                    key = key_of(topic.topic, topic.topic_id, part.partition, uses_topic_ids=uses_topic_ids)
                    parts[key] = self._sessions.part(part, data)
            response.session_id = self._sessions.begin(parts, now, uses_topic_ids=uses_topic_ids).id
        return response


class ResumedSession:
    """An incremental fetch, whose response says what is new."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: "ConsumerSession") -> None:
        self._session = session
        self._epoch = session.epoch

    def told(self, response: FetchResponse, now: Instant) -> FetchResponse:
        """What is new in the response; an error if another request has resumed the session meanwhile."""
        session = self._session
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
        response.session_id = session.id
        response.responses = session.tell(response.responses)
        return response


def in_session(
    context: "FetchPort", call: Call, request: FetchRequest, now: Instant
) -> BeginningSession | ResumedSession | FetchResponse | None:
    """The session of a request that has an id or an epoch of one: then `request` names all partitions that
    are to be read. None for a full fetch without a session; the response if there is nothing to read.
    """
    sessions = context.consumer_sessions
    uses_topic_ids = call.version >= _TOPIC_IDS_SINCE
    if request.session_epoch in (FULL_FETCH, NO_SESSION):
        sessions.end(request.session_id)
        if request.session_epoch == FULL_FETCH and sessions.slots:
            return BeginningSession(sessions, request, uses_topic_ids=uses_topic_ids)
        return None
    session = sessions.find(request.session_id)
    if session is None:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    refusal = refusal_of(session, request.session_epoch, uses_topic_ids=uses_topic_ids)
    if refusal is not None:
        return FetchResponse(error_code=refusal)
    session.epoch = epoch_after(session.epoch)
    for topic in request.topics:
        for asked in topic.partitions:
            key = key_of(topic.topic, topic.topic_id, asked.partition, uses_topic_ids=uses_topic_ids)
            session.ask(key, asked)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            key = key_of(forgotten.topic, forgotten.topic_id, index, uses_topic_ids=uses_topic_ids)
            session.parts.pop(key, None)
    if not session.parts:
        sessions.end(session.id)
        return FetchResponse()
    if not sessions.resumed(session, now):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request.topics = session.topics()
    return ResumedSession(session)

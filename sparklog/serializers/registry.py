"""The client of a schema registry with the HTTP interface of Confluent's: ids for schemas, schemas by ids.

Schemas never change under their id, so both directions are kept, a limited number of them. Replies are
bounded, redirects are refused, and a request that the first address does not answer goes to the next one.
"""

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final, Literal, NamedTuple, TypeVar

from sparklog.client.http_replies import LOCAL_HOSTS, NoRedirect, body_of, object_of
from sparklog.errors import SettingsError, SparklogError

K = TypeVar("K")
V = TypeVar("V")
SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]

KEPT_MAX: Final = 1000
REPLY_BYTES_MAX: Final = 4 << 20
_ERROR_CHARACTERS_MAX: Final = 300
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SERIALIZED: Final = "?format=serialized"
_INT32_MAX: Final = (1 << 31) - 1


class RegistryError(SparklogError):
    """The registry refuses a request, or does not answer."""


class RegistryUnavailable(RegistryError):
    """No address of the registry answers."""


class Reference(NamedTuple):
    """Another schema that a schema names, by its subject and version there."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema of the registry."""

    schema_id: int
    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """A schema registry at `url`, or at several addresses of one. Safe for use from several threads."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        """Authenticate by username and password, or by a bearer token. `ca_file` has certificates in PEM
        that are trusted in place of those of the system. Raises SettingsError.
        """
        self._urls = [_checked(one) for one in ([url] if isinstance(url, str) else url)]
        self._timeout_s = timeout_ms / 1000
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        secret = _authorization(username, password, token)
        if secret is not None:
            for one in self._urls:
                parts = urllib.parse.urlsplit(one)
                if parts.scheme != "https" and parts.hostname not in LOCAL_HOSTS:
                    raise SettingsError(f"{one}: credentials are sent only to an URL of https://")
            self._headers["Authorization"] = secret
        handlers: list[urllib.request.BaseHandler] = [NoRedirect()]
        if any(one.startswith("https:") for one in self._urls):
            try:
                context = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise SettingsError(f"ca_file={ca_file!r} has no certificates in PEM: {error}") from error
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._by_id: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str, tuple[Reference, ...]], int] = {}

    def register(
        self, subject: str | None, schema: str, schema_type: SchemaType, references: Sequence[Reference] = ()
    ) -> int:
        """The id of a schema under a subject, which is registered if it is new there. Raises RegistryError if
        the schema is invalid or not compatible.
        """
        return self._id_of("versions", subject, schema, schema_type, references)

    def look_up(
        self, subject: str | None, schema: str, schema_type: SchemaType, references: Sequence[Reference] = ()
    ) -> int:
        """The id of a schema that is registered under a subject. Raises RegistryError if it is not."""
        return self._id_of("", subject, schema, schema_type, references)

    def version_of(
        self, subject: str, schema: str, schema_type: SchemaType, references: Sequence[Reference] = ()
    ) -> int:
        """The version of a schema that is registered under a subject."""
        reply = self._call(_path("subjects", subject), _body_of(schema, schema_type, references))
        return _number(reply, "version")

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id."""
        found = self._by_id.get(schema_id)
        if found is None:
            reply = self._call(_path("schemas", "ids", str(schema_id)), None)
            found = _registered(reply, schema_id)
            keep(self._by_id, schema_id, found, KEPT_MAX)
        return found

    def descriptor_by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema of Protobuf with this id as a FileDescriptorProto in base64."""
        return _registered(self._call(_path("schemas", "ids", str(schema_id)) + _SERIALIZED, None), schema_id)

    def descriptor_of(self, reference: Reference) -> RegisteredSchema:
        """The schema of Protobuf that another one names, as a FileDescriptorProto in base64."""
        path = _path("subjects", reference.subject, "versions", str(reference.version))
        reply = self._call(path + _SERIALIZED, None)
        return _registered(reply, _number(reply, "id"))

    def _id_of(
        self,
        place: str,
        subject: str | None,
        schema: str,
        schema_type: SchemaType,
        references: Sequence[Reference],
    ) -> int:
        if not subject:
            raise SettingsError("a schema is registered under a subject: set subject, such as 'orders-value'")
        key = (subject, schema_type, schema, tuple(references))
        found = self._ids.get(key)
        if found is None:
            path = _path("subjects", subject, *([place] if place else []))
            reply = self._call(path, _body_of(schema, schema_type, references))
            found = _number(reply, "id")
            keep(self._ids, key, found, KEPT_MAX)
        return found

    def _call(self, path: str, body: Mapping[str, object] | None) -> dict[str, Any]:
        """The reply of the first address that has one."""
        failure: RegistryError | None = None
        for url in self._urls:
            try:
                return self._answer(f"{url}{path}", body)
            except _Unavailable as error:
                failure = RegistryUnavailable(str(error))
        assert failure is not None, "there is an address"
        raise failure from None

    def _answer(self, url: str, body: Mapping[str, object] | None) -> dict[str, Any]:
        headers = dict(self._headers) if body is None else {**self._headers, "Content-Type": _CONTENT_TYPE}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - the scheme was checked
        deadline_s = time.monotonic() + self._timeout_s
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply:
                return object_of(body_of(reply, REPLY_BYTES_MAX, deadline_s))
        except urllib.error.HTTPError as error:
            with error:  # it holds the connection
                reason = _refusal(error, deadline_s)
            reason_of_refusal = f"the schema registry refuses {url}: HTTP {error.code}{reason}"
            raise (
                _Unavailable(reason_of_refusal) if error.code >= 500 else RegistryError(reason_of_refusal)
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = str(error.reason if isinstance(error, urllib.error.URLError) else error)
            raise _Unavailable(f"the schema registry does not answer {url}: {reason}") from None


class _Unavailable(Exception):
    """An address without an answer; another one may have it."""


def _checked(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{url!r} is not the URL of a schema registry, as https://host:port")
    if parts.username is not None or parts.password is not None:
        raise SettingsError("the URL of a schema registry has no credentials: use username and password")
    return url.rstrip("/")


def _authorization(username: str | None, password: str | None, token: str | None) -> str | None:
    if token is not None:
        if username is not None:
            raise SettingsError("username and token exclude each other: set one")
        return f"Bearer {token}"
    if username is None:
        return None
    pair = f"{username}:{password or ''}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _path(*parts: str) -> str:
    return "".join(f"/{urllib.parse.quote(part, safe='')}" for part in parts)


def _body_of(schema: str, schema_type: SchemaType, references: Sequence[Reference]) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema}
    if schema_type != "AVRO":  # the default, and all that old registries know
        body["schemaType"] = schema_type
    if references:
        body["references"] = [one._asdict() for one in references]
    return body


def _registered(fields: Mapping[str, Any], schema_id: int) -> RegisteredSchema:
    schema = fields.get("schema")
    if not isinstance(schema, str):
        raise RegistryError(f"the schema registry tells no schema for id {schema_id}")
    references = tuple(map(_reference, fields.get("references") or ()))
    return RegisteredSchema(schema_id, str(fields.get("schemaType", "AVRO")), schema, references)


def _reference(fields: object) -> Reference:
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise RegistryError("the schema registry tells a reference without a version")
    return Reference(str(fields.get("name")), str(fields.get("subject")), fields["version"])


def _number(fields: Mapping[str, Any], name: str) -> int:
    number = fields.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _INT32_MAX:
        raise RegistryError(f"the schema registry tells no {name} of the schema")
    return number


def keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Add what was found, and give up the oldest beyond `most`."""
    while len(kept) >= most:
        kept.pop(next(iter(kept)), None)
    kept[key] = value


def _refusal(error: urllib.error.HTTPError, deadline_s: float) -> str:
    """The reason that the registry gives, as `, reason`, or an empty text."""
    try:
        message = object_of(body_of(error, REPLY_BYTES_MAX, deadline_s)).get("message")  # type: ignore[arg-type]
    except (OSError, HTTPException, ValueError):
        return ""
    return f", {' '.join(str(message).split())[:_ERROR_CHARACTERS_MAX]}" if message else ""

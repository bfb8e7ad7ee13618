"""The TLS contexts of a node: one for each listener with TLS, and one for its links to the other nodes.

    settings ─► read the files ─► contexts in use ◄── a job: changed files or settings ─► new contexts
                     │                                      └── not usable: logged, the old ones stay
                     └── not usable at the start: the node does not start

A connection keeps the context of its handshake, so a change closes none.
"""

import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from sparklog.errors import SettingsError
from sparklog.tls.contexts import client_context, server_context
from sparklog.tls.keys import TlsKeys
from sparklog.tls.stores import Material, blocks, read_material
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.tls_settings import (
    TlsSettings,
    encrypted_listeners,
    linked_listeners,
    stores_of,
    tls_of,
)
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.security.principals import PrincipalRules

FLIGHTS_MAX: Final = 10
"""The flights of a handshake between two contexts in one process."""

Run = Callable[[Job, Done], None]
_Stamps = tuple[tuple[int, int, int], ...]


class Contexts(msgspec.Struct, frozen=True, eq=False):
    """The contexts of one listener, and what they were made from."""

    tls: TlsSettings
    material: Material
    stamps: _Stamps
    server: ssl.SSLContext | None
    rules: PrincipalRules


class Certificates:
    """Invariant: `_by_listener` holds contexts that were usable when they were read."""

    def __init__(self, settings: BrokerSettings, trace: Callable[..., None]) -> None:
        """Read the stores of every listener with TLS; raises SettingsError."""
        self._trace = trace
        self._refused: dict[str, str] = {}
        self._is_running = False
        self._next: BrokerSettings | None = None  # to read when the job is done
        self._served = {one.name for one in encrypted_listeners(settings)}
        self._linked = linked_listeners(settings)
        self._known = settings
        self._by_listener = {
            name: _read(name, settings, name in self._served) for name in sorted(self._served | self._linked)
        }
        self._clients: dict[str, ssl.SSLContext] = {}

    def of_listener(self, name: str) -> Contexts | None:
        """The contexts of a listener; None if its connections are plain."""
        return self._by_listener.get(name)

    def of_links(self, name: str) -> ssl.SSLContext | None:
        """The context of links to that listener of other nodes; None if they are plain."""
        contexts = self._by_listener.get(name)
        if contexts is None:
            return None
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = client_context(stores_of(contexts.tls), contexts.material)
        return client

    def follow(self, settings: BrokerSettings, run: Run) -> None:
        """Use the present settings if they have changed, files that were written under the same name
        included.
        """
        if settings is not self._known:
            self._known = settings
            self.refresh(settings, run, is_changed=True)

    def refresh(self, settings: BrokerSettings, run: Run, *, is_changed: bool) -> None:
        """Use the present settings and files, after a job has read them, which `run` runs. If no
        setting has changed, a file is read only if its time or size has changed.
        """
        if self._is_running:
            self._next = settings if is_changed else self._next
            return
        self._is_running = True
        run(
            partial(
                _read_again,
                dict(self._by_listener),
                settings,
                self._served,
                self._linked,
                is_changed=is_changed,
            ),
            partial(self._was_read, run),
        )

    def refusal(self, settings: BrokerSettings) -> str | None:
        """Why the certificates of these settings cannot replace those in use; None if they can. For jobs."""
        found = _read_again(dict(self._by_listener), settings, self._served, self._linked, is_changed=True)
        return next((one for one in found.values() if isinstance(one, str)), None)

    def _was_read(self, run: Run, result: object) -> None:
        assert isinstance(result, dict), result
        self._is_running = False
        for name, found in result.items():
            if isinstance(found, Contexts):
                self._by_listener[name] = found
                self._clients.pop(name, None)
                self._refused.pop(name, None)
                self._trace("certificates-changed", listener=name)
            elif self._refused.get(name) != found:
                self._refused[name] = found
                self._trace("certificates-refused", listener=name, reason=found)
        if self._next is not None:
            settings, self._next = self._next, None
            self.refresh(settings, run, is_changed=True)


def _read(name: str, settings: BrokerSettings, is_served: bool) -> Contexts:
    tls = tls_of(settings, name)
    keys = stores_of(tls)
    try:
        keys.check()
        stamps = _stamps(keys)
        material = read_material(keys)
        contexts = Contexts(
            tls,
            material,
            stamps,
            server_context(keys, material) if is_served else None,
            PrincipalRules(tls.ssl_principal_mapping_rules),
        )
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None
    except (ValueError, TypeError, OSError) as error:  # of a library that is stricter than another
        raise SettingsError(f"{name}: the certificate cannot be read ({type(error).__name__})") from None
    return contexts


def _read_again(
    known: dict[str, Contexts],
    settings: BrokerSettings,
    served: set[str],
    linked: set[str],
    *,
    is_changed: bool,
) -> dict[str, Contexts | str]:
    """A job: the contexts that have changed, or why new ones cannot be used."""
    found: dict[str, Contexts | str] = {}
    for name, before in known.items():
        tls = tls_of(settings, name)
        try:
            if not is_changed and _stamps(stores_of(tls)) == before.stamps:
                continue
            after = _read(name, settings, name in served)
            if after.tls == before.tls and after.material == before.material:
                continue
            if name in served:
                _check_successor(before, after)
            if name in linked and after.server is not None:
                _check_trust(after.server, client_context(stores_of(after.tls), after.material))
        except SettingsError as error:
            found[name] = str(error)
        else:
            found[name] = after
    return found


def _stamps(keys: TlsKeys) -> _Stamps:
    """What changes when a file is replaced or written; zeros for one that is missing."""
    found = []
    for path in keys.files:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _check_successor(before: Contexts, after: Contexts) -> None:
    """Raises SettingsError for a certificate that must not replace the present one: it is not valid now, or
    has another subject or fewer names.
    """
    from cryptography import x509  # imported at the first change: it takes as long as half of a start

    try:
        old, new = (
            x509.load_pem_x509_certificate(blocks(one.material.identity or "", "CERTIFICATE")[0].encode())
            for one in (before, after)
        )
        lost = _names(old) - _names(new)
        subjects = [one.subject.rfc4514_string() for one in (old, new)]
    except (
        ValueError,
        TypeError,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise SettingsError(f"the new certificate cannot be read ({type(error).__name__})") from None
    now = datetime.now(UTC)
    if not new.not_valid_before_utc <= now <= new.not_valid_after_utc:
        raise SettingsError(
            f"the new certificate is valid from {new.not_valid_before_utc:%Y-%m-%d %H:%M} to "
            f"{new.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, which is not now"
        )
    if not after.tls.ssl_allow_dn_changes and old.subject != new.subject:
        raise SettingsError(
            f"the new certificate has the subject {subjects[1]} instead of {subjects[0]}: set "
            f"ssl.allow.dn.changes=true to accept it"
        )
    if not after.tls.ssl_allow_san_changes and lost:
        raise SettingsError(
            f"the new certificate lacks the names {', '.join(sorted(lost))}: set ssl.allow.san.changes=true "
            f"to accept it"
        )


def _names(certificate: object) -> set[str]:
    from cryptography import x509

    assert isinstance(certificate, x509.Certificate)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _check_trust(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises SettingsError unless this node would accept itself as its peer: the other nodes have the same
    trust store.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname = False
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(FLIGHTS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise SettingsError(
                    f"the trust store does not accept the new certificate: {error.reason}"
                ) from None
        if not ends:
            return
    raise SettingsError("the new certificate does not complete a handshake with itself")

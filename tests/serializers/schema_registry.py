"""A schema registry on loopback, with the part of Confluent's HTTP interface that clients use, and messages
for it.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2


class Registry(ThreadingHTTPServer):
    """`asked` has the requests as (method, path, authorization); `fixed` the answers by path that take the
    place of those below. A schema that contains `incompatible` is refused.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, str | None]] = []
        self.fixed: dict[str, tuple[int, bytes]] = {}
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that ends a connection is part of the tests."""

    def register(self, subject: str, schema: dict[str, Any]) -> tuple[int, object]:
        if "incompatible" in schema["schema"]:
            return 409, {"error_code": 409, "message": "Schema being registered\nis incompatible"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return 200, {"id": schema_id}

    def look_up(self, subject: str, schema: dict[str, Any]) -> tuple[int, object]:
        versions = self.subjects.get(subject, [])
        if schema not in self.schemas or self.schemas.index(schema) + 1 not in versions:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        schema_id = self.schemas.index(schema) + 1
        return 200, {"subject": subject, "id": schema_id, "version": versions.index(schema_id) + 1, **schema}

    def by_id(self, schema_id: int) -> tuple[int, object]:
        if not 0 < schema_id <= len(self.schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self.schemas[schema_id - 1]

    def by_version(self, subject: str, version: int) -> tuple[int, object]:
        versions = self.subjects.get(subject, [])
        if not 0 < version <= len(versions):
            return 404, {"error_code": 40402, "message": "Version not found"}
        schema_id = versions[version - 1]
        return 200, {"subject": subject, "id": schema_id, "version": version, **self.schemas[schema_id - 1]}


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        if found := re.fullmatch(r"/schemas/ids/(\d+)(\?format=serialized)?", self.path):
            self._reply(self.server.by_id(int(found[1])))
        elif found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)\?format=serialized", self.path):
            self._reply(self.server.by_version(unquote(found[1]), int(found[2])))
        else:
            self._reply((404, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = re.fullmatch(r"/subjects/([^/]+)(/versions)?", self.path)
        if found is None:
            self._reply((404, {}))
            return
        asked = self.server.register if found[2] else self.server.look_up
        self._reply(asked(unquote(found[1]), body))

    def _reply(self, answer: tuple[int, object]) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        status, told = answer
        content = json.dumps(told).encode()
        if self.path in self.server.fixed:
            status, content = self.server.fixed[self.path]
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"{self.server.url}/schemas/ids/1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def running() -> Iterator[Registry]:
    with Registry() as registry:
        thread = Thread(target=registry.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield registry
        registry.shutdown()
        thread.join()


def messages() -> tuple[Any, Any]:
    """A message that another file has too, and one within it."""
    pool = descriptor_pool.DescriptorPool()
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    pool.Add(wrappers)
    text = descriptor_pb2.FieldDescriptorProto(
        name="text", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL"
    )
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="t", syntax="proto3")
    base.message_type.add(name="Base").field.append(text)
    pool.Add(base)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto",
        package="t",
        syntax="proto3",
        dependency=["base.proto", "google/protobuf/wrappers.proto"],
    )
    order.message_type.add(name="First").field.append(text)
    outer = order.message_type.add(name="Order")
    outer.field.append(text)
    outer.field.add(name="base", number=2, type="TYPE_MESSAGE", type_name=".t.Base", label="LABEL_OPTIONAL")
    outer.nested_type.add(name="Line").field.append(text)
    pool.Add(order)
    kinds = (pool.FindMessageTypeByName(name) for name in ("t.Order", "t.Order.Line"))
    made = tuple(map(message_factory.GetMessageClass, kinds))
    return made[0], made[1]

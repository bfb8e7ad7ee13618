"""The messages of the protocol, one file per API, named after it: `<Api>Request`, `<Api>Response` and the
structs inside them.

The classes are the schema (see `sparklog.wire.schema`). Names are Kafka's, fields in snake case; import
the modules one by one.
"""

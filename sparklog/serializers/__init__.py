"""Ready serializers and deserializers of keys and values: JSON, Avro and Protobuf, plain or with the prefix
of a schema registry.

Each is a function of one argument, as `Producer(value_serializer=…)` and `Consumer(value_deserializer=…)`
take it. None is a record without a value in both directions. The libraries of Avro and Protobuf come with
`sparklog[formats]`, and load when a serializer is made.

    registry         the client of a schema registry, over HTTP
    json             by msgspec: plain types, dataclasses and structs
    avro, protobuf   by fastavro, and by Google's library
"""

"""The streaming log for Python and Spark.

The public names load on first use: importing sparklog imports neither pyspark, pyarrow nor the server, and
takes less than a millisecond.
"""

# Type checkers know the name; importing it from `typing` would take longer than all the rest.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from sparklog import errors
    from sparklog.arrow.formats.decoded import UndecodableRecord
    from sparklog.arrow.ranges import DataLoss
    from sparklog.arrow.topic_read import TopicRead, read
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.async_admin import AsyncAdmin
    from sparklog.client.admin.calls import ItemsFailed
    from sparklog.client.admin.topics import (
        CreatedTopic,
        ListedOffset,
        NewPartitions,
        NewTopic,
        Partition,
        Topic,
    )
    from sparklog.client.consumer.async_consumer import AsyncConsumer
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.consumer.records import ConsumerRecord, FetchedBatches, Record
    from sparklog.client.failures import (
        AuthenticationFailed,
        BrokerGone,
        BufferExhausted,
        ClientClosed,
        CommitFailed,
        CorruptRecords,
        DeliveryFailed,
        FencedInstance,
        LogTruncated,
        NoOffset,
        OffsetOutOfRange,
        ProducerFenced,
        RebalanceInProgress,
        RecordTooLarge,
        TopicMadeAnew,
        TransactionAbortable,
        TransactionError,
        TransactionFatal,
        UnknownTopic,
        WrongProtocol,
        WrongTransactionState,
    )
    from sparklog.client.membership.member import GroupMetadata
    from sparklog.client.membership.offsets import OffsetAndMetadata
    from sparklog.client.producer.async_producer import AsyncDeliveries, AsyncDelivery, AsyncProducer
    from sparklog.client.producer.producer import Producer
    from sparklog.client.producer.promises import Deliveries, Delivery
    from sparklog.client.producer.records import ProducerRecord, RecordMetadata, WrittenRange
    from sparklog.client.settings import ClientSettings
    from sparklog.errors import (
        BrokerError,
        ConnectionFailed,
        DecodeError,
        ErrorCode,
        RequestTimeout,
        SettingsError,
        SparklogError,
    )
    from sparklog.local_broker import embedded
    from sparklog.model import TopicPartition
    from sparklog.serializers.avro import AvroDeserializer, AvroSerializer
    from sparklog.serializers.json import JsonDeserializer, JsonSerializer
    from sparklog.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
    from sparklog.serializers.registry import RegistryError, SchemaRegistry
    from sparklog.spark import register

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDeliveries",
    "AsyncDelivery",
    "AsyncProducer",
    "AuthenticationFailed",
    "AvroDeserializer",
    "AvroSerializer",
    "BrokerError",
    "BrokerGone",
    "BufferExhausted",
    "ClientClosed",
    "ClientSettings",
    "CommitFailed",
    "ConnectionFailed",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecords",
    "CreatedTopic",
    "DataLoss",
    "DecodeError",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "ErrorCode",
    "FencedInstance",
    "FetchedBatches",
    "GroupMetadata",
    "ItemsFailed",
    "JsonDeserializer",
    "JsonSerializer",
    "ListedOffset",
    "LogTruncated",
    "NewPartitions",
    "NewTopic",
    "NoOffset",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "Partition",
    "Producer",
    "ProducerFenced",
    "ProducerRecord",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RebalanceInProgress",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "RegistryError",
    "RequestTimeout",
    "SchemaRegistry",
    "SettingsError",
    "SparklogError",
    "Topic",
    "TopicMadeAnew",
    "TopicPartition",
    "TopicRead",
    "TransactionAbortable",
    "TransactionError",
    "TransactionFatal",
    "UndecodableRecord",
    "UnknownTopic",
    "WrittenRange",
    "WrongProtocol",
    "WrongTransactionState",
    "embedded",
    "errors",
    "read",
    "register",
]

_NAMES = {
    "sparklog.arrow.formats.decoded": "UndecodableRecord",
    "sparklog.arrow.ranges": "DataLoss",
    "sparklog.arrow.topic_read": "TopicRead read",
    "sparklog.client.admin.admin": "Admin",
    "sparklog.client.admin.calls": "ItemsFailed",
    "sparklog.client.admin.topics": "CreatedTopic ListedOffset NewPartitions NewTopic Partition Topic",
    "sparklog.client.admin.async_admin": "AsyncAdmin",
    "sparklog.client.consumer.async_consumer": "AsyncConsumer",
    "sparklog.client.producer.async_producer": "AsyncDeliveries AsyncDelivery AsyncProducer",
    "sparklog.client.consumer.consumer": "Consumer",
    "sparklog.client.consumer.records": "ConsumerRecord FetchedBatches Record",
    "sparklog.client.failures": (
        "AuthenticationFailed BrokerGone BufferExhausted ClientClosed CommitFailed CorruptRecords "
        "DeliveryFailed FencedInstance LogTruncated NoOffset OffsetOutOfRange ProducerFenced "
        "RebalanceInProgress RecordTooLarge TopicMadeAnew TransactionAbortable TransactionError "
        "TransactionFatal UnknownTopic WrongProtocol WrongTransactionState"
    ),
    "sparklog.client.membership.member": "GroupMetadata",
    "sparklog.client.membership.offsets": "OffsetAndMetadata",
    "sparklog.client.producer.producer": "Producer",
    "sparklog.client.producer.records": "ProducerRecord RecordMetadata WrittenRange",
    "sparklog.client.producer.promises": "Deliveries Delivery",
    "sparklog.client.settings": "ClientSettings",
    "sparklog.errors": (
        "BrokerError ConnectionFailed DecodeError ErrorCode RequestTimeout SettingsError SparklogError"
    ),
    "sparklog.local_broker": "embedded",
    "sparklog.model": "TopicPartition",
    "sparklog.serializers.avro": "AvroDeserializer AvroSerializer",
    "sparklog.serializers.json": "JsonDeserializer JsonSerializer",
    "sparklog.serializers.protobuf": "ProtobufDeserializer ProtobufSerializer",
    "sparklog.serializers.registry": "RegistryError SchemaRegistry",
    "sparklog.spark": "register",
}


def __getattr__(name: str) -> object:
    import importlib

    if name == "errors":
        return importlib.import_module("sparklog.errors")
    home = next((home for home, names in _NAMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'sparklog' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

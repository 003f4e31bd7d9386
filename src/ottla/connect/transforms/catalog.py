"""Every transform and predicate by its name without Kafka's package."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.connect.transforms import fields, routing, values
from ottla.connect.transforms.base import Options, Predicate, Transform


class Maker(NamedTuple):
    """How a transform is made. sided: whether it is one of the key or of the value ("Key" or "Value" is passed on)."""

    build: Callable[[Options, str], Transform]
    sided: bool


TRANSFORMS: Final[Mapping[str, Maker]] = {
    "Cast": Maker(values.cast, sided=True),
    "DropHeaders": Maker(routing.drop_headers, sided=False),
    "ExtractField": Maker(fields.extract_field, sided=True),
    "Filter": Maker(routing.filter_, sided=False),
    "Flatten": Maker(fields.flatten, sided=True),
    "HeaderFrom": Maker(routing.header_from, sided=True),
    "HoistField": Maker(fields.hoist_field, sided=True),
    "InsertField": Maker(fields.insert_field, sided=True),
    "InsertHeader": Maker(routing.insert_header, sided=False),
    "MaskField": Maker(fields.mask_field, sided=True),
    "RegexRouter": Maker(routing.regex_router, sided=False),
    "ReplaceField": Maker(fields.replace_field, sided=True),
    "SetSchemaMetadata": Maker(fields.set_schema_metadata, sided=True),
    "TimestampConverter": Maker(values.timestamp_converter, sided=True),
    "TimestampRouter": Maker(routing.timestamp_router, sided=False),
    "ValueToKey": Maker(fields.value_to_key, sided=False),
}

PREDICATES: Final[Mapping[str, Callable[[Options], Predicate]]] = {
    "HasHeaderKey": routing.has_header_key,
    "RecordIsTombstone": routing.record_is_tombstone,
    "TopicNameMatches": routing.topic_name_matches,
}


def transform_names() -> list[str]:
    """The class names of all transforms, as Kafka Connect lists them."""
    package = "org.apache.kafka.connect.transforms."
    sides = {name: ("$Key", "$Value") if make.sided else ("",) for name, make in TRANSFORMS.items()}
    return [f"{package}{name}{side}" for name, each in sides.items() for side in each]


def predicate_names() -> list[str]:
    """The class names of all predicates."""
    return [f"org.apache.kafka.connect.transforms.predicates.{name}" for name in PREDICATES]

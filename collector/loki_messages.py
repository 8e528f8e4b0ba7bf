"""The messages of Loki's push API in protobuf (``pkg/push/push.proto``), parsed by the library.

Only the fields used here are declared. Strings are declared as bytes: invalid UTF-8 is kept with replacement marks,
where the library would refuse the whole request.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "faultline.loki"
#: The fields of each message: name, number, and the nested message (bytes or int64 if there is none).
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "PushRequest": (("streams", 1, "[Stream]"),),
    "Stream": (("labels", 1, "bytes"), ("entries", 2, "[Entry]")),
    "Entry": (("timestamp", 1, "Timestamp"), ("line", 2, "bytes"), ("metadata", 3, "[Label]")),
    "Label": (("name", 1, "bytes"), ("value", 2, "bytes")),
    "Timestamp": (("seconds", 1, "int64"), ("nanos", 2, "int64")),
}


def _field(name: str, number: int, kind: str) -> FieldDescriptorProto:
    held = kind.strip("[]")
    found = FieldDescriptorProto(name=name, number=number)
    found.label = found.LABEL_REPEATED if kind.startswith("[") else found.LABEL_OPTIONAL
    found.type = {"bytes": found.TYPE_BYTES, "int64": found.TYPE_INT64}.get(held, found.TYPE_MESSAGE)
    if found.type == found.TYPE_MESSAGE:
        found.type_name = f".{_PACKAGE}.{held}"
    return found


def _push_request() -> Any:
    pool = DescriptorPool()
    messages = [
        DescriptorProto(name=name, field=[_field(*field) for field in fields]) for name, fields in _MESSAGES.items()
    ]
    pool.Add(FileDescriptorProto(name="faultline/loki.proto", package=_PACKAGE, syntax="proto3", message_type=messages))
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.PushRequest"))


#: ``PushRequest.FromString(data)`` reads a request; raises ``google.protobuf.message.DecodeError``.
PushRequest = _push_request()

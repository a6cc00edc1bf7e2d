"""The messages of `dispatcher.proto`, built from its descriptor.

The code that protoc generates works with two major versions of protobuf only, and so would conflict
with the pins of other packages. A descriptor works with all of them.
"""

from pathlib import Path

from wheelsched.errors import MissingExtra

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as error:
    raise MissingExtra(
        "protobuf is not installed; install it with `pip install 'wheelsched[grpc]'`"
    ) from error

_SET = descriptor_pb2.FileDescriptorSet.FromString(
    Path(__file__).with_name("dispatcher.binpb").read_bytes()
)
_POOL = descriptor_pool.Default()
_POOL.AddSerializedFile(_SET.file[0].SerializeToString())

DESCRIPTOR = _POOL.FindFileByName(_SET.file[0].name)

for _name, _descriptor in DESCRIPTOR.message_types_by_name.items():
    _class = message_factory.GetMessageClass(_descriptor)
    _class.__module__ = __name__
    globals()[_name] = _class

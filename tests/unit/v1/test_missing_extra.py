"""The messages say which extra they need."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from wheelsched.errors import MissingExtra
from wheelsched.v1 import dispatcher_pb2


def test_messages_without_protobuf_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    spec = spec_from_file_location("dispatcher_pb2_again", dispatcher_pb2.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(MissingExtra, match=r"pip install 'wheelsched\[grpc\]'"):
        spec.loader.exec_module(module_from_spec(spec))

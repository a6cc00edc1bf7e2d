"""What is checked in is what `dispatcher.proto` generates."""

import ast
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

import wheelsched
from wheelsched.v1 import dispatcher_pb2

PACKAGE = Path(wheelsched.__file__).parent
PROTO = "wheelsched/v1/dispatcher.proto"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make proto` would write."""
    target = tmp_path_factory.mktemp("generated")
    options = (f"-I{PACKAGE.parent}", f"--descriptor_set_out={target}/set", f"--pyi_out={target}")
    assert protoc.main(["", *options, PROTO]) == 0
    return target


def fields(stub: Path) -> dict[str, dict[str, str]]:
    """The classes of a stub and their fields. Versions of protoc differ in the rest."""
    return {
        made.name: {
            each.target.id: ast.unparse(each.annotation)
            for each in made.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for made in ast.parse(stub.read_text()).body
        if isinstance(made, ast.ClassDef)
    }


def test_the_descriptor_is_that_of_the_file(generated: Path) -> None:
    checked_in = (PACKAGE / "v1/dispatcher.binpb").read_bytes()
    assert FileDescriptorSet.FromString(checked_in) == FileDescriptorSet.FromString(
        (generated / "set").read_bytes()
    ), "run `make proto`"


def test_the_stub_is_that_of_the_file(generated: Path) -> None:
    checked_in = fields(PACKAGE / "v1/dispatcher_pb2.pyi")
    assert checked_in == fields(generated / "wheelsched/v1/dispatcher_pb2.pyi"), "run `make proto`"
    assert set(checked_in) == set(dispatcher_pb2.DESCRIPTOR.message_types_by_name)


def test_every_message_can_be_imported() -> None:
    for name in dispatcher_pb2.DESCRIPTOR.message_types_by_name:
        assert getattr(dispatcher_pb2, name).DESCRIPTOR.name == name
        assert getattr(dispatcher_pb2, name).__module__ == "wheelsched.v1.dispatcher_pb2"


def test_the_fields_of_the_contract_keep_their_numbers() -> None:
    """Workers in other languages were built with them."""
    numbers = {
        name: {field.name: field.number for field in message.fields}
        for name, message in dispatcher_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    claim = ("worker_id", "max_tasks", "lease_duration_seconds", "queues", "claim_id", "wait_ms")
    task = (
        *("trigger_id", "job_id", "tenant_id", "job_type", "payload_json"),
        *("scheduled_time_epoch", "attempt_id"),
    )
    update = ("attempt_id", "trigger_id", "status", "error_message")
    for message, names in (
        ("ClaimTriggersRequest", claim),
        ("TaskPayload", task),
        ("ClaimTriggersResponse", ("tasks",)),
        ("UpdateAttemptRequest", update),
        ("UpdateAttemptResponse", ("success",)),
    ):
        expected = {name: number for number, name in enumerate(names, 1)}
        assert {name: numbers[message][name] for name in names} == expected

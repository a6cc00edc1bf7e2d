"""Policies of documents, read and written back."""

import pytest
from tests.unit.jobs.documents import as_document

from wheelsched.core.policies.policy_json import Policies
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.policies import describe_misfire, normalize_policy, parse_policies
from wheelsched.wire.job import MisfireDocument


def test_a_document_without_policies_has_the_defaults() -> None:
    assert parse_policies(as_document()) == Policies()


def test_all_policies_are_read_and_all_problems_reported() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_policies(as_document(misfire={"grace": "x"}, retry={"max": "y"}, timeout="z"))
    assert sorted(each.pointer for each in refused.value.errors) == [
        *("/misfire/grace", "/retry/max", "/timeout")
    ]


def test_a_normalized_policy_has_one_spelling_and_no_gaps() -> None:
    normal = normalize_policy("misfire", MisfireDocument(grace="60000ms"))
    assert normal == describe_misfire(Policies().misfire)
    assert normal.grace == "1m"
    assert normalize_policy("timeout", "120s") == "2m"

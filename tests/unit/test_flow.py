"""Inboxes keep the order and their bound; sets of things to do coalesce."""

import asyncio

import pytest

from wheelsched.errors import InboxFull
from wheelsched.flow import Inbox, Pending


async def test_an_inbox_gives_the_oldest_first_up_to_a_limit() -> None:
    inbox: Inbox[int] = Inbox(10)
    for number in range(5):
        inbox.put(number)
    assert await inbox.take(3) == [0, 1, 2]
    assert await inbox.take(3) == [3, 4]
    assert len(inbox) == 0


async def test_a_reader_waits_until_something_is_put() -> None:
    inbox: Inbox[str] = Inbox(1)
    reader = asyncio.ensure_future(inbox.take())
    await asyncio.sleep(0)
    assert not reader.done()
    inbox.put("a run")
    assert await reader == ["a run"]


async def test_an_inbox_does_not_grow_beyond_its_bound() -> None:
    inbox: Inbox[int] = Inbox(1)
    inbox.put(1)
    with pytest.raises(InboxFull):
        inbox.put(2)
    assert await inbox.take() == [1]


async def test_what_is_put_twice_is_taken_once() -> None:
    pending: Pending[str] = Pending()
    pending.put("a", "b")
    pending.put("a")
    assert "a" in pending
    assert await pending.take() == ["a", "b"]
    assert "a" not in pending
    reader = asyncio.ensure_future(pending.take())
    await asyncio.sleep(0)
    assert not reader.done()
    pending.put("a")
    assert await reader == ["a"]


async def test_putting_nothing_wakes_no_stage() -> None:
    pending: Pending[str] = Pending()
    pending.put()
    reader = asyncio.ensure_future(pending.wait())
    await asyncio.sleep(0)
    assert not reader.done()
    reader.cancel()

import pytest

from wheelsched.closing import Closing


class Door(Closing):
    is_open = True

    async def close(self) -> None:
        self.is_open = False


async def test_it_is_closed_at_the_end_of_the_block_and_not_before() -> None:
    async with Door() as door:
        assert door.is_open
    assert not door.is_open


async def test_it_is_closed_when_the_block_fails_and_hides_nothing() -> None:
    door = Door()
    with pytest.raises(ValueError, match="a draught"):
        async with door:
            raise ValueError("a draught")
    assert not door.is_open

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.token import MAX_COUNTER, MAX_EPOCH, first_token, next_token, split_token

epochs = st.integers(1, MAX_EPOCH)
counters = st.integers(0, MAX_COUNTER)


@given(epochs, counters, epochs, counters)
def test_tokens_are_ordered_as_their_epochs_and_counters(
    epoch: int, counter: int, other_epoch: int, other_counter: int
) -> None:
    token = first_token(epoch) + counter
    other = first_token(other_epoch) + other_counter
    assert (token < other) == ((epoch, counter) < (other_epoch, other_counter))


@given(epochs, counters)
def test_what_is_joined_is_split_again(epoch: int, counter: int) -> None:
    assert split_token(first_token(epoch) + counter) == (epoch, counter)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=20))
def test_tokens_grow_strictly_across_owners(owners: list[tuple[int, int]]) -> None:
    """Each owner raises the epoch by one or more and issues some tokens."""
    issued = []
    epoch = 0
    for raised_by, count in owners:
        epoch += raised_by
        token = first_token(epoch)
        issued.append(token)
        for _ in range(count):
            token = next_token(token)
            issued.append(token)
    assert all(earlier < later for earlier, later in pairwise(issued))

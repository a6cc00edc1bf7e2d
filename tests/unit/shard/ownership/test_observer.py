"""What an observer concludes from looks at the backends of other shards."""

from uuid import UUID

from wheelsched.core.lease import Backend
from wheelsched.ports import BackendView
from wheelsched.shard.ownership.takeover import Observer

OWN, OTHER = UUID(int=1), UUID(int=2)
OWN_BACKEND, BACKEND, NEXT_BACKEND = (Backend(pid, pid, 7) for pid in (1, 2, 3))
LOOK_US = 100_000


class Looks:
    """An observer who looks every tenth of a second."""

    def __init__(self) -> None:
        self.observer = Observer(OWN)
        self.now_us = 0

    def look(self, *views: BackendView, own: BackendView | None = None) -> list[UUID]:
        own = own or BackendView(OWN, 1, OWN_BACKEND, is_alive=True)
        self.now_us += LOOK_US
        self.observer.look([own, *views], self.now_us, self.now_us)
        return [view.shard_id for view in self.observer.gone()]

    def look_often(self, view: BackendView) -> list[UUID]:
        """Looks for just less than a second, and returns whom it would take over in the end."""
        return [self.look(view) for _ in range(9)][-1]


def seen(backend: Backend = BACKEND, *, is_alive: bool, renewals: int = 1) -> BackendView:
    return BackendView(OTHER, renewals, backend, is_alive)


def test_a_backend_that_ends_is_gone_after_half_a_second() -> None:
    looks = Looks()
    assert looks.look(seen(is_alive=True)) == []
    first_us = looks.now_us + LOOK_US
    while not looks.look(seen(is_alive=False)):
        assert looks.now_us - first_us < 500_000
    assert looks.now_us - first_us == 500_000


def test_the_next_look_is_when_the_half_second_has_passed() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    assert looks.observer.next_look_us() is None
    looks.look(seen(is_alive=False))
    assert looks.observer.next_look_us() == 500_000
    looks.look(seen(is_alive=False))
    assert looks.observer.next_look_us() == 400_000


def test_a_backend_that_was_never_seen_alive_is_not_gone() -> None:
    looks = Looks()
    assert looks.look_often(seen(is_alive=False)) == []


def test_a_backend_that_lives_again_was_not_gone() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    looks.look(seen(is_alive=False))
    looks.look(seen(is_alive=True))  # a pid that is reused
    for _ in range(4):
        assert looks.look(seen(is_alive=False)) == []


def test_a_shard_that_renews_over_a_new_connection_is_not_gone() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    looks.look(seen(is_alive=False))
    assert looks.look_often(seen(NEXT_BACKEND, is_alive=True, renewals=2)) == []


def test_a_new_connection_must_be_seen_alive_too() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    assert looks.look_often(seen(NEXT_BACKEND, is_alive=False)) == []


def test_renewals_that_go_on_put_the_takeover_off() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    for renewals in range(9):
        assert looks.look(seen(is_alive=False, renewals=renewals)) == []


def test_an_observer_whose_own_backend_has_changed_starts_anew() -> None:
    """A crash of the server ends all connections, and the observer is the first who is back."""
    looks = Looks()
    looks.look(seen(is_alive=True))
    own = BackendView(OWN, 2, NEXT_BACKEND, is_alive=True)
    for _ in range(9):
        assert looks.look(seen(is_alive=False), own=own) == []


def test_an_observer_whose_own_backend_is_gone_or_unknown_concludes_nothing() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    own = BackendView(OWN, 1, OWN_BACKEND, is_alive=False)
    assert [looks.look(seen(is_alive=False), own=own) for _ in range(9)] == [[]] * 9
    unpublished = Looks()
    for is_alive in (True, *[False] * 9):
        unpublished.now_us += LOOK_US
        unpublished.observer.look([seen(is_alive=is_alive)], unpublished.now_us, unpublished.now_us)
        assert unpublished.observer.gone() == []


def test_the_half_second_begins_anew_after_a_time_without_looks() -> None:
    """A machine that was suspended gives the others on it time to renew."""
    looks = Looks()
    looks.look(seen(is_alive=True))
    looks.look(seen(is_alive=False))
    looks.now_us += 60_000_000
    assert looks.look(seen(is_alive=False)) == []
    assert looks.look_often(seen(is_alive=False)) == [OTHER]


def test_a_failed_look_forgets_the_earlier_ones() -> None:
    looks = Looks()
    looks.look(seen(is_alive=True))
    looks.observer.forget()
    assert looks.look_often(seen(is_alive=False)) == []

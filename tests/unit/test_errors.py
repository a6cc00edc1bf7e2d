from wheelsched import errors


def test_the_docstring_is_the_message() -> None:
    assert str(errors.WheelClosed()) == "the wheel is closed"


def test_a_message_of_its_own_wins() -> None:
    assert str(errors.ForeignHandle("handle 7 is foreign")) == "handle 7 is foreign"


def test_every_error_is_one_of_ours_and_says_what_it_means() -> None:
    for error in vars(errors).values():
        if isinstance(error, type):
            assert issubclass(error, errors.WheelschedError)
            assert error.__doc__

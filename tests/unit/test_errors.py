from wheelsched import errors


def test_the_docstring_is_the_message() -> None:
    assert str(errors.WheelClosed()) == "the wheel is closed"


def test_an_explicit_message_replaces_the_default() -> None:
    assert str(errors.ForeignHandle("handle 7 is foreign")) == "handle 7 is foreign"


def test_every_error_is_a_wheelsched_error_with_a_message() -> None:
    for error in vars(errors).values():
        if isinstance(error, type):
            assert issubclass(error, errors.WheelschedError)
            assert error.__doc__

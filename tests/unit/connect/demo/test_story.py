"""What a demo leaves behind."""

import pytest

from ottla.connect.demo.errors import DemoError
from ottla.connect.demo.story import _directory


def test_a_directory_that_nobody_asked_for_stays_only_if_the_demo_has_failed() -> None:
    with _directory(None) as made:
        assert made.is_dir()
    assert not made.exists()
    with pytest.raises(KeyboardInterrupt), _directory(None) as made:
        raise KeyboardInterrupt
    assert not made.exists()
    with (
        pytest.raises(DemoError, match=r"^no luck\nAll logs are in ") as failed,
        _directory(None) as made,
    ):
        raise DemoError("no luck")
    assert str(made) in str(failed.value)
    made.rmdir()

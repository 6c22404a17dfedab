"""A pickled error keeps its class, message, fields and notes in another process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from pto_core import errors
from pto_core.errors import PtoError

CLASSES = [
    member
    for member in vars(errors).values()
    if isinstance(member, type) and issubclass(member, PtoError)
]
VALUES = (7, -1, "text", True, 2.5, (1, 2), ["a"], 2**64 - 1)
WAYS: dict[str, Callable[[Any], Any]] = {
    **{
        f"protocol {protocol}": lambda error, protocol=protocol: pickle.loads(
            pickle.dumps(error, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
}


def with_all_fields(kind: type[PtoError]) -> PtoError:
    """Return an error with a value in each field; the values differ while there are enough."""
    fields = {name: VALUES[index % len(VALUES)] for index, name in enumerate(kind.fields)}
    return kind(f"what went wrong in {kind.__name__}", **fields)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CLASSES)
def test_round_trip(kind: type[PtoError], way: str) -> None:
    error = with_all_fields(kind)
    error.add_note("first note")
    error.add_note("second\nnote")
    again = WAYS[way](error)
    assert type(again) is kind
    assert (again.message, str(again), again.args) == (error.message, str(error), error.args)
    assert vars(again) == vars(error)
    assert again.__notes__ == ["first note", "second\nnote"]
    assert again.__notes__ is not error.__notes__
    assert again.exit_code == error.exit_code


@pytest.mark.parametrize("kind", CLASSES)
def test_round_trip_without_fields(kind: type[PtoError]) -> None:
    error = kind("only a message")
    again = pickle.loads(pickle.dumps(error))
    assert vars(again) == vars(error) == dict.fromkeys(kind.fields)
    assert not hasattr(again, "__notes__")


def test_every_class_is_tried() -> None:
    assert {PtoError, errors.TaskFailedError, errors.WrongResultError} <= set(CLASSES)


def test_a_traceback_names_a_class_as_programs_import_it() -> None:
    assert all(kind.__module__ == errors.__name__ for kind in CLASSES)

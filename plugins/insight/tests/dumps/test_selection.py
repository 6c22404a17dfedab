"""The selection of tasks, tensors and runs."""

from __future__ import annotations

import pytest

from pto_core.errors import UsageError
from pto_insight.dumps.selection import Selection, selects_tensor


@pytest.mark.parametrize(
    ("text", "selected", "others"),
    [
        ("", [("add", 0), ("add", None)], []),
        ("add", [("add", 0), ("add", 7)], [("scale", 0)]),
        ("add#3", [("add", 3), ("add", None)], [("add", 2), ("scale", 3), ("scale", None)]),
        ("#3-5", [("add", 3), ("scale", 5)], [("add", 2), ("add", 6)]),
        ("add#1, scale", [("add", 1), ("scale", 9)], [("add", 2)]),
    ],
)
def test_terms_select_tasks(text: str, selected: list, others: list) -> None:
    selection = Selection.of(text)
    assert all(selection.terms_of(*task) for task in selected)
    assert not any(selection.terms_of(*task) for task in others)


def test_terms_select_tensors_by_position_name_and_place() -> None:
    terms = Selection.of("add:c[0:64, 0:64],add:x,add:2").terms_of("add", 0)
    assert selects_tensor(terms, 0, "c[0:64, 0:64]")
    assert selects_tensor(terms, 1, "x[1:2]")
    assert selects_tensor(terms, 2, "y")
    assert not selects_tensor(terms, 0, "c[64:128, 0:64]")


def test_names_that_are_not_known_are_selected() -> None:
    terms = Selection.of("add:x,add:2").terms_of("add", None)
    assert selects_tensor(terms, 0, None)
    by_position = Selection.of("add:2").terms_of("add", None)
    assert [selects_tensor(by_position, at, None) for at in (1, 2)] == [False, True]


def test_terms_select_runs_and_kernels_to_record() -> None:
    selection = Selection.of("add@2,scale#1")
    assert selection.recorded == ("add", "scale")
    in_first, in_second = selection.of_run(1), selection.of_run(2)
    assert in_first is not None
    assert in_first.recorded == ("scale",)
    assert in_second == selection
    assert Selection.of("@2").of_run(1) is None
    assert Selection.of("add,#3").recorded == (), "any kernel may run task 3"


def test_a_task_id_selects_one_call() -> None:
    selection = Selection.of("#id17,add")
    assert selection.recorded == ("#17", "add")
    assert selection.terms_of("scale", 3, 17)
    assert not selection.terms_of("scale", 17, 3)


@pytest.mark.parametrize("text", ["add#x", "add#3#4", "add@", "a:b:c", "#5-"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not select tasks; write KERNEL#TASK:TENSOR@RUN"):
        Selection.of(text)

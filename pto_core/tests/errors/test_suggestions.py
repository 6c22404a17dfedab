"""Messages suggest only names that are similar to the misspelt name."""

from __future__ import annotations

import pytest

from pto_core.errors.values import suggestion

PLATFORMS = ("a2a3", "a2a3sim", "sim")


@pytest.mark.parametrize(
    ("name", "known", "suggested"),
    [
        ("a2a3simm", PLATFORMS, "a2a3sim"),
        ("a2a3smi", PLATFORMS, "a2a3sim"),
        ("smi", PLATFORMS, "sim"),
        ("hots_build_graph", ("host_build_graph", "aicpu_build_graph"), "host_build_graph"),
        ("tensormap_ringbuffer", ("tensormap_and_ringbuffer",), "tensormap_and_ringbuffer"),
    ],
)
def test_a_near_name_is_suggested(name: str, known: tuple[str, ...], suggested: str) -> None:
    assert suggestion(name, known) == f"; did you mean {suggested!r}?"


@pytest.mark.parametrize("name", ["a5", "a5sim", "cuda", "ascend910", "a", "", "simulation"])
def test_an_unrelated_platform_is_not_suggested(name: str) -> None:
    assert suggestion(name, PLATFORMS) == ""
    assert suggestion(name, ()) == ""

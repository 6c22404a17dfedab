"""pytest DIR --platform a2a3sim: run scene tests, each case as a test."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of scene tests."""
    group = parser.getgroup("scene tests")
    group.addoption("--platform", default="a2a3sim")
    group.addoption("--device", help="a device, or a range such as 0-7")
    group.addoption("--case", help="NAME or CLASS::NAME")
    group.addoption("--manual", choices=("exclude", "include", "only"), default="exclude")
    group.addoption("--rounds", type=int, default=1)
    group.addoption("--skip-golden", action="store_true")
    group.addoption("--hazards", help="hazards that order two tasks, as in pto run")


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Any:
    """Collect a scene test as one test for each selected case."""
    from pto_compat_simpler.scene import SceneTestCase

    if not (inspect.isclass(obj) and issubclass(obj, SceneTestCase) and obj is not SceneTestCase):
        return None
    return Scene.from_parent(collector, name=name, scene=obj)


class Scene(pytest.Collector):
    """The cases of one class."""

    def __init__(self, *, scene: Any, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._scene = scene

    def collect(self) -> Iterator[pytest.Item]:
        """Return a test for each selected case."""
        from pto_compat_simpler.scene import options_of

        options = options_of(vars(self.config.option))
        for case in self._scene.cases(options):
            yield SceneItem.from_parent(
                self, name=case["name"], run=lambda case=case: self._scene().run_case(case, options)
            )


class SceneItem(pytest.Item):
    """One case."""

    def __init__(self, *, run: Any, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._run = run

    def runtest(self) -> None:
        """Run the case."""
        self._run()

    def reportinfo(self) -> Any:
        """Return the file and the name of the test."""
        return self.path, None, f"{self.parent.name if self.parent else ''}::{self.name}"

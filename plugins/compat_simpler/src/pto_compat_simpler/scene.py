"""Scene tests: classes that describe a program, its cases and its expected results."""

from __future__ import annotations

import argparse
import enum
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from pto_compat_simpler.arguments import TaskArgsBuilder
from pto_compat_simpler.orchestrator import Orchestrator
from pto_compat_simpler.task_interface import (
    ArgDirection,
    CallConfig,
    RuntimeEnv,
    bytes_of,
    runtime_of,
)
from pto_compat_simpler.worker import HostWorker, shared_copy
from pto_core import open_device
from pto_core.cases.golden import compare, mismatch_error
from pto_core.chip import ChipCallable, CoreCallable, KernelSource, OrchestrationSource
from pto_core.config import Config, load_with_plugins
from pto_core.errors import PtoError, UsageError

API = "2026-08"
DEVICES = "0-7"
"""The devices of a command without ``-d``."""
_GRAPH_PARAMETERS = 3  # those of f(orch, args, config)
_Class = TypeVar("_Class", bound="type[SceneTestCase]")


class SceneTestLevel(enum.IntEnum):
    """The level of a scene test: one chip, or a Worker with chips as children."""

    CHIP = 2
    HOST = 3


def scene_test(level: int, runtime: str) -> Callable[[_Class], _Class]:
    """Declare the level and the runtime variant of a class."""
    runtime_of(runtime)

    def declare(scene: _Class) -> _Class:
        scene.LEVEL = int(level)
        scene.RUNTIME = runtime
        return scene

    return declare


def scene_level(scene: type[SceneTestCase]) -> int:
    """Return the level of a scene test."""
    return scene.LEVEL


@dataclass(frozen=True)
class Options:
    """The options of a command that runs scene tests."""

    platform: str = "a2a3sim"
    devices: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    case: str | None = None  # NAME, or CLASS::NAME
    manual: str = "exclude"  # exclude, include or only
    rounds: int = 1
    skip_golden: bool = False
    log_level: str | None = None
    hazards: str | None = None

    def selects(self, scene: type[SceneTestCase], case: Mapping[str, Any]) -> bool:
        """Return whether a case runs."""
        if self.platform not in case.get("platforms", [self.platform]):
            return False
        name = case["name"]
        if self.case is not None:
            return self.case in (name, f"{scene.__name__}::{name}")
        is_manual = _is_manual(case.get("manual", False), self.platform)
        return is_manual == (self.manual == "only") or self.manual == "include"


def _is_manual(manual: Any, platform: str) -> bool:
    """Return whether a case is manual: for all platforms, one platform, or those of a list."""
    if isinstance(manual, str):
        return manual == platform
    return platform in manual if isinstance(manual, list | tuple) else bool(manual)


class SceneTestCase:
    """A program with cases. Subclasses define the attributes and methods below."""

    LEVEL: ClassVar[int] = 2
    RUNTIME: ClassVar[str] = "tensormap_and_ringbuffer"
    CALLABLE: ClassVar[Mapping[str, Any]]
    CASES: ClassVar[Sequence[Mapping[str, Any]]]
    RTOL: ClassVar[float] = 1e-5
    ATOL: ClassVar[float] = 1e-5
    RUNTIME_ENV: ClassVar[Mapping[str, str]] = {}
    """Variables that are settings of the run; paths in them are relative to :meth:`folder`."""
    SKIP_GOLDEN: ClassVar[bool] = False

    def generate_args(self, params: Mapping[str, Any]) -> TaskArgsBuilder:
        """Return the arguments of a case."""
        raise NotImplementedError

    def compute_golden(self, args: TaskArgsBuilder, params: Mapping[str, Any]) -> None:
        """Write the expected results to the outputs of ``args``."""
        raise NotImplementedError

    def compare_outputs(
        self, actual: TaskArgsBuilder, expected: TaskArgsBuilder, params: Mapping[str, Any]
    ) -> None:
        """Raise an error if an output is wrong; a subclass may replace this."""
        for name in self._outputs(actual):
            report = compare(
                name,
                _array(actual[name]),
                _array(expected[name]),
                self.RTOL,
                self.ATOL,
                exact_integers=False,
            )
            if report.mismatches:
                raise mismatch_error(report)

    @classmethod
    def folder(cls) -> Path:
        """Return the folder of the file that defines the class."""
        return Path(inspect.getfile(cls)).resolve().parent

    @classmethod
    def cases(cls, options: Options) -> list[Mapping[str, Any]]:
        """Return the cases that run."""
        return [case for case in cls.CASES if options.selects(cls, case)]

    def chip(self, described: Mapping[str, Any], args: TaskArgsBuilder | None) -> ChipCallable:
        """Return the callable that a dictionary like :attr:`CALLABLE` describes.

        ``args``: the arguments of each run; None if tasks have different ones.
        """
        entry = described["orchestration"]
        kernels = {
            one["func_id"]: CoreCallable(
                KernelSource(
                    self.folder() / one["source"],
                    [f"-I{folder}" for folder in one.get("extra_include_dirs", ())],
                ),
                one["core_type"],
                name=one.get("name"),
            )
            for one in described["incores"]
        }
        source = OrchestrationSource(
            self.folder() / entry["source"], entry.get("function_name"), api=API
        )
        name = described.get("name", type(self).__name__)
        if args is None:
            return ChipCallable(source, kernels, _tensors_of(entry) or None, name)
        signature = [*self._directions(args), *("scalar" for _ in args.scalars())]
        return ChipCallable(source, kernels, signature, name, argument_names=list(args))

    def run_case(self, case: Mapping[str, Any], options: Options) -> None:
        """Run one case and compare its outputs; raises the first error."""
        params = case.get("params", {})
        config = case.get("config", {})
        args = self.generate_args(params)
        expected = args.clone()
        if self.LEVEL == SceneTestLevel.CHIP:
            self._run_on_chip(args, config, options)
        else:
            self._run_on_host(args, config, options)
        if options.skip_golden or case.get("skip_golden", self.SKIP_GOLDEN):
            return
        self.compute_golden(expected, params)
        self.compare_outputs(args, expected, params)

    def _run_on_chip(
        self, args: TaskArgsBuilder, config: Mapping[str, Any], options: Options
    ) -> None:
        chip = self.chip(self.CALLABLE, args)
        with open_device(config=self._config(config, options)) as device:
            for round_number in range(options.rounds):
                given = args if round_number == options.rounds - 1 else args.clone()
                values = [*given.tensors().values(), *given.scalars()]
                device.run(chip, *values, config=_call_config(config).core())

    def _run_on_host(
        self, args: TaskArgsBuilder, config: Mapping[str, Any], options: Options
    ) -> None:
        """Run a scene test of level 3: its arguments are copied to shared memory and back."""
        count = config.get("device_count", 1)
        if count > len(options.devices):
            raise UsageError(
                f"{type(self).__name__} needs {count} devices, and -d gives "
                f"{len(options.devices)}; pass -d 0-{count - 1}",
                name="device",
                value=options.devices,
            )
        with HostWorker(
            platform=options.platform,
            runtime=self.RUNTIME,
            device_ids=options.devices[:count],
            num_sub_workers=config.get("num_sub_workers", 0),
            config=self._config(config, options),
        ) as worker:
            callables = SimpleNamespace()
            for one in self.CALLABLE["callables"]:
                target = self.chip(one, None) if "orchestration" in one else _function_of(one)
                setattr(callables, one["name"], worker.register(target))
            shared = args.clone(lambda value: shared_copy(worker, value))
            graph = self.CALLABLE["orchestration"]
            takes_callables = len(inspect.signature(graph).parameters) > _GRAPH_PARAMETERS

            def run(orch: Orchestrator, _: object, options: CallConfig) -> None:
                orch.callables = callables
                graph(orch, *([callables] if takes_callables else []), shared, options)

            for _ in range(options.rounds):
                for name, value in args.tensors().items():
                    bytes_of(shared[name])[:] = bytes_of(value)
                worker.run(run, None, _call_config(config))
            for name, value in args.tensors().items():
                bytes_of(value)[:] = bytes_of(shared[name])

    def _outputs(self, args: TaskArgsBuilder) -> list[str]:
        if self.LEVEL == SceneTestLevel.HOST:
            return list(args.tensors())
        return [
            name
            for name, direction in zip(args.tensors(), self._directions(args), strict=True)
            if direction in (ArgDirection.OUT, ArgDirection.INOUT)
        ]

    def _directions(self, args: TaskArgsBuilder) -> list[ArgDirection]:
        found = _tensors_of(self.CALLABLE["orchestration"])
        names = list(args.tensors())
        if len(found) != len(names):
            raise UsageError(
                f"{type(self).__name__}: the signature of the orchestration lists {len(found)} "
                f"tensors, but generate_args() returns {len(names)}: {', '.join(names)}",
                name="signature",
            )
        return found

    def _config(self, config: Mapping[str, Any], options: Options) -> Config:
        rings = config.get("runtime_env", {})
        known = RuntimeEnv.__dataclass_fields__
        if unknown := set(rings) - set(known):
            raise UsageError(
                f"{type(self).__name__}: runtime_env has {', '.join(sorted(unknown))}; known: "
                f"{', '.join(known)}",
                name="runtime_env",
            )
        settings: dict[str, Any] = dict(RuntimeEnv(**rings).settings())
        settings |= {"backend": options.platform, "device": options.devices[0]}
        settings["runtime"] = runtime_of(self.RUNTIME)
        for name in ("log_level", "hazards"):
            if getattr(options, name) is not None:
                settings[name] = getattr(options, name)
        environment = {
            name: str(self.folder() / value) if name.endswith(("_DIR", "_PATH")) else str(value)
            for name, value in self.RUNTIME_ENV.items()
        }
        return load_with_plugins(settings, case_environ=environment)

    @classmethod
    def run_module(cls, module_name: str, arguments: Sequence[str] | None = None) -> None:
        """Run the scene tests of a module as a command, and end the process."""
        sys.exit(run_scenes(scenes_of(vars(sys.modules[module_name])), _parse(arguments)))


def scenes_of(names: Mapping[str, Any]) -> list[type[SceneTestCase]]:
    """Return the scene tests among the names of a module."""
    return [
        one
        for one in names.values()
        if isinstance(one, type) and issubclass(one, SceneTestCase) and one is not SceneTestCase
    ]


def run_scenes(scenes: Sequence[type[SceneTestCase]], options: Options) -> int:
    """Run the selected cases, print a line for each, and return the exit status."""
    failed = run = 0
    for scene in scenes:
        for case in scene.cases(options):
            run += 1
            name = f"{scene.__name__}::{case['name']}"
            try:
                scene().run_case(case, options)
            except PtoError as error:
                failed += 1
                print(f"{name}: FAILED\n{error}")  # noqa: T201
            except Exception:  # noqa: BLE001 - a mistake of the class itself
                failed += 1
                print(f"{name}: FAILED\n{traceback.format_exc()}")  # noqa: T201
            else:
                print(f"{name}: PASSED")  # noqa: T201
    if run == 0:
        what = f"no case runs on {options.platform} (--manual {options.manual}); cases:"
        print(what)  # noqa: T201
        for scene in scenes:
            for case in scene.CASES:
                platforms = ", ".join(case.get("platforms", ["all platforms"]))
                print(f"  {scene.__name__}::{case['name']} ({platforms})")  # noqa: T201
        return 2
    print(f"{run - failed} passed, {failed} failed")  # noqa: T201
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description="Run the scene tests of this file.")
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", default=DEVICES, help="a device, or a range such as 0-7")
    parser.add_argument("--case", help="NAME or CLASS::NAME")
    parser.add_argument("--manual", choices=("exclude", "include", "only"), default="exclude")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--skip-golden", action="store_true")
    parser.add_argument("--log-level")
    parser.add_argument("--hazards", help="hazards that order two tasks, as in pto run")
    try:
        return options_of(vars(parser.parse_args(arguments)))
    except UsageError as error:
        parser.error(str(error))


def _devices(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    try:
        return tuple(range(int(first), int(last) + 1) if last else map(int, first.split(",")))
    except ValueError:
        raise UsageError(
            f"the device is {text!r}; pass a number, a list such as 0,2, or a range such as 0-7",
            name="device",
            value=text,
        ) from None


def options_of(given: Mapping[str, Any]) -> Options:
    """Return the options of a command line. A scene test of level 2 uses the first device."""
    fields = {name: given[name] for name in Options.__dataclass_fields__ if name in given}
    fields["devices"] = _devices(str(given.get("device") or DEVICES))
    level = (fields.get("log_level") or "").lower()
    fields["log_level"] = {"warn": "warning", "timing": "info"}.get(level, level) or None
    return Options(**fields)


def _tensors_of(entry: Mapping[str, Any]) -> list[ArgDirection]:
    """Return the directions of the tensors in the signature of an orchestration."""
    return [one for one in entry["signature"] if one is not ArgDirection.SCALAR]


def _function_of(described: Mapping[str, Any]) -> Any:
    """Return the function of a SUB child that an entry of ``"callables"`` contains."""
    return next(value for value in described.values() if callable(value))


def _call_config(config: Mapping[str, Any]) -> CallConfig:
    names = [name for name in ("block_dim", "aicpu_thread_num") if name in config]
    return CallConfig(**{name: config[name] for name in names})


def _array(tensor: Any) -> Any:
    """Return a NumPy array with the elements of a torch tensor or another array."""
    import numpy as np

    if hasattr(tensor, "detach"):
        plain = tensor.detach().cpu()
        if str(plain.dtype) in ("torch.bfloat16", "torch.float16"):
            plain = plain.float()
        return plain.numpy()
    return np.asarray(tensor)

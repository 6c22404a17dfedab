"""The inputs of a case, the reference for its outputs, and the comparison with that reference.

``golden.py`` defines the inputs and computes the reference. Arrays and tensors are viewed, not
copied.
"""

from __future__ import annotations

import ctypes
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pto_core._native import number
from pto_core.cases.report import OutputReport
from pto_core.cases.user_module import blaming, load_module, required, warn_of_misspelt
from pto_core.errors import UsageError, WrongResultError
from pto_core.errors.plain_functions import require_executed, require_plain
from pto_core.errors.values import shown, suggestion
from pto_core.kernels import DataType
from pto_core.kernels.data_type import ML_DTYPES

DEFAULT_TOLERANCE = 1e-5
DEFAULT_NAME = "default"
_OPTIONAL = (
    *("ALL_CASES", "DEFAULT_CASE", "RTOL", "ATOL", "TENSOR_ORDER", "__outputs__"),
    "compute_intermediates",
)


@dataclass(frozen=True)
class Inputs:
    """The arguments of one run, in order, and the names of the tensors that are outputs.

    ``outputs`` is empty until the reference has run if ``golden.py`` names no outputs: then the
    outputs are the tensors that the reference changes. ``trailing`` is used for the older dict
    form, which appends sizes to the arguments: the size of each tensor in bytes, then the number of
    elements of the first tensor.
    """

    arguments: tuple[TensorArgument | ScalarArgument, ...]
    outputs: tuple[str, ...]
    trailing: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[TensorArgument, ...]:
        """The tensor arguments, in order."""
        return tuple(
            argument for argument in self.arguments if isinstance(argument, TensorArgument)
        )

    @property
    def values(self) -> list[Any]:
        """What the orchestration receives: the arrays, the numbers, and ``trailing``."""
        values = (a.array if isinstance(a, TensorArgument) else a.value for a in self.arguments)
        return [*values, *self.trailing]

    def array(self, name: str) -> Any:
        """Return the array of a tensor argument."""
        return next(tensor.array for tensor in self.tensors if tensor.name == name)


@dataclass(frozen=True)
class Golden:
    """The checked content of ``golden.py``."""

    path: Path
    cases: Mapping[str, Mapping[str, Any]]
    default_case: str
    rtol: float
    atol: float
    exact_integers: bool
    """Whether integer outputs must equal the reference; true unless the file states a tolerance."""
    _generate: Callable[[dict[str, Any]], Any]
    _compute: Callable[[dict[str, Any], dict[str, Any]], Any] | None
    _order: tuple[str, ...] | None
    _outputs: tuple[str, ...] | None
    _intermediates: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None

    def names(self, case: str | None, every: bool) -> list[str]:
        """List the names of the cases to run; raises UsageError for an unknown name."""
        if every:
            return list(self.cases)
        if case is None:
            return [self.default_case]
        if case not in self.cases:
            raise UsageError(
                f"{self.path} has no case {shown(case)}; its cases are {', '.join(self.cases)}"
                f"{suggestion(case, self.cases)}",
                name="case",
                value=case,
                expected=", ".join(self.cases),
            )
        return [case]

    def params(self, case: str) -> dict[str, Any]:
        """Return the parameters that the file's functions receive, including the case's name."""
        return {**self.cases[case], "name": case}

    def generate(self, case: str) -> Inputs:
        """Call ``generate_inputs`` and check the values that it returns."""
        where = f"{self.path}: generate_inputs"
        with blaming(self.path, f"failed in generate_inputs for case {shown(case)}"):
            given = self._generate(self.params(case))
        require_executed(f"{self.path}: function", self._generate, given)
        by_name = isinstance(given, Mapping)
        pairs = self._ordered(given) if by_name else _checked_pairs(given, where)
        arguments = tuple(as_argument(name, value, where) for name, value in pairs)
        tensors = [argument.name for argument in arguments if isinstance(argument, TensorArgument)]
        outputs = self._output_names(tensors)
        arguments = tuple(
            contiguous(argument, written=argument.name in outputs, where=where)
            if isinstance(argument, TensorArgument)
            else argument
            for argument in arguments
        )
        inputs = Inputs(arguments, outputs, _sizes(arguments) if by_name else ())
        if outputs or self._compute is not None:
            return inputs
        writable = tuple(t.name for t in inputs.tensors if t.array.flags.writeable)
        return replace(inputs, outputs=writable)

    def compute(self, inputs: Inputs, tensors: dict[str, Any], case: str) -> dict[str, Any]:
        """Call ``compute_golden`` with ``tensors``, which are copies made before the run.

        Returns the expected outputs by name, as arrays. If ``inputs`` has no outputs, the tensors
        of ``inputs`` must still have the values from before the run.
        """
        assert self._compute is not None, "the caller must not compute a missing reference"
        with blaming(self.path, f"failed in compute_golden for case {shown(case)}"):
            returned = self._compute(tensors, self.params(case))
        require_executed(f"{self.path}: function", self._compute, returned)
        expected: dict[str, Any] = {}
        for name in inputs.outputs or (tensor.name for tensor in inputs.tensors):
            array = as_array(tensors.get(name))
            if array is None:
                raise UsageError(
                    f"{self.path}: compute_golden left no array in tensors[{name!r}], but "
                    f"{type(tensors.get(name)).__name__}; fill it in place",
                    name=name,
                    expected="an array",
                )
            expected[name] = array
        return expected if inputs.outputs else self._changed(inputs, expected)

    def compare(self, name: str, actual: Any, expected: Any) -> OutputReport:
        """Compare two arrays with the tolerance of the file; see :func:`compare`."""
        exact_integers = self.exact_integers
        return compare(name, actual, expected, self.rtol, self.atol, exact_integers=exact_integers)

    @property
    def has_intermediates(self) -> bool:
        """Whether the file has references for the outputs of single tasks."""
        return self._intermediates is not None

    def intermediates(self, tensors: dict[str, Any], case: str) -> dict[str, list[list[Any]]]:
        """Call ``compute_intermediates`` with ``tensors``, which are copies made before the run.

        Returns the expected outputs of the tasks of each kernel, in the order of submits. None
        stands for an output or a task without a reference.
        """
        assert self._intermediates is not None, "the caller has asked has_intermediates"
        where = f"{self.path}: compute_intermediates"
        with blaming(self.path, f"failed in compute_intermediates for case {case!r}"):
            returned = self._intermediates(tensors, self.params(case))
        require_executed(f"{self.path}: function", self._intermediates, returned)
        if not isinstance(returned, Mapping):
            raise _not_intermediates(where, returned)
        found: dict[str, list[list[Any]]] = {}
        for kernel, tasks in returned.items():
            if not isinstance(kernel, str) or not isinstance(tasks, list):
                raise _not_intermediates(where, tasks)
            outputs = [list(task) if isinstance(task, tuple) else [task] for task in tasks]
            found[kernel] = [[_intermediate(where, one) for one in task] for task in outputs]
        return found

    def _changed(self, inputs: Inputs, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return the arrays whose bytes or shape differ from the tensors of ``inputs``."""
        changed = {
            tensor.name: arrays[tensor.name]
            for tensor in inputs.tensors
            if not _is_same(tensor.array, arrays[tensor.name])
        }
        if not changed:
            raise UsageError(
                f"{self.path}: compute_golden changes none of the tensors {', '.join(arrays)}, and "
                "no __outputs__ names the outputs; write the expected outputs into "
                "tensors[name], in place",
                name="compute_golden",
                expected="a changed tensor",
            )
        return changed

    def _ordered(self, given: Mapping[Any, Any]) -> list[tuple[str, Any]]:
        order = self._order
        if order is None:
            raise UsageError(
                f"{self.path}: generate_inputs returns a dict without TENSOR_ORDER; "
                "add TENSOR_ORDER = [...], or return a list of (name, value)",
                name="TENSOR_ORDER",
                expected="a list of names",
            )
        for name in order:
            if name not in given:
                raise UsageError(
                    f"{self.path}: TENSOR_ORDER names {name!r}, which generate_inputs does not "
                    f"return{suggestion(name, map(str, given))}",
                    name="TENSOR_ORDER",
                    value=name,
                )
        left = [name for name in given if name not in order]
        if left:
            raise UsageError(
                f"{self.path}: generate_inputs returns {left[0]!r}, which TENSOR_ORDER does not "
                "name; add it to TENSOR_ORDER",
                name="TENSOR_ORDER",
                value=str(left[0]),
            )
        return [(name, given[name]) for name in order]

    def _output_names(self, tensors: list[str]) -> tuple[str, ...]:
        if not tensors:
            raise UsageError(
                f"{self.path}: generate_inputs returns no tensor, so the case has no output; add "
                "an array for each output",
                name="generate_inputs",
                expected="at least one tensor",
            )
        if self._outputs is None:
            return tuple(name for name in tensors if name.startswith("out_"))
        for name in self._outputs:
            if name not in tensors:
                raise UsageError(
                    f"{self.path}: __outputs__ names {name!r}, which is not a tensor of "
                    f"generate_inputs (it returns {', '.join(tensors)}){suggestion(name, tensors)}",
                    name="__outputs__",
                    value=name,
                    expected=", ".join(tensors),
                )
        return self._outputs


def load_golden(path: Path, *, reference: bool = True) -> Golden:
    """Execute and check ``golden.py``. Without ``reference``, ``compute_golden`` may be missing.

    Then all writable tensors count as outputs if the file names none.
    """
    module = load_module(path)
    warn_of_misspelt(module, _OPTIONAL, path)
    generate = required(module, "generate_inputs", "def generate_inputs(params)")
    functions = {"generate_inputs": generate}
    compute = None
    if reference:
        compute = required(module, "compute_golden", "def compute_golden(tensors, params)")
        functions["compute_golden"] = compute
    intermediates = getattr(module, "compute_intermediates", None) if reference else None
    if intermediates is not None:
        functions["compute_intermediates"] = intermediates
    for name, function in functions.items():
        if not callable(function):
            raise _wrong(path, name, function, "a function")
        require_plain(f"{path}: function", function)
    cases = _cases(path, getattr(module, "ALL_CASES", {DEFAULT_NAME: {}}))
    default = getattr(module, "DEFAULT_CASE", next(iter(cases)))
    if not isinstance(default, str) or default not in cases:
        raise _wrong(path, "DEFAULT_CASE", default, f"one of {', '.join(cases)}")
    return Golden(
        path=path,
        cases=cases,
        default_case=default,
        rtol=_tolerance(path, "RTOL", getattr(module, "RTOL", DEFAULT_TOLERANCE)),
        atol=_tolerance(path, "ATOL", getattr(module, "ATOL", DEFAULT_TOLERANCE)),
        exact_integers=not (hasattr(module, "RTOL") or hasattr(module, "ATOL")),
        _generate=generate,
        _compute=compute,
        _order=_names(path, "TENSOR_ORDER", getattr(module, "TENSOR_ORDER", None)),
        _outputs=_names(path, "__outputs__", getattr(module, "__outputs__", None)),
        _intermediates=intermediates,
    )


def _cases(path: Path, raw: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(raw, Mapping) or not raw:
        raise _wrong(path, "ALL_CASES", raw, "a dict of parameters for each case name, not empty")
    for name, params in raw.items():
        if not isinstance(name, str) or not isinstance(params, Mapping):
            raise _wrong(path, f"ALL_CASES[{shown(name)}]", params, "a dict of parameters")
    return raw


def _tolerance(path: Path, name: str, value: Any) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        tolerance = float(value) if is_number else math.nan
    except (OverflowError, ValueError):
        tolerance = math.nan
    if not 0 <= tolerance < math.inf:
        raise _wrong(path, name, value, "a finite number, at least 0")
    return tolerance


def _names(path: Path, name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if not is_list or not value:
        raise _wrong(path, name, value, "a list with at least one tensor name")
    return tuple(value)


def _checked_pairs(given: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(given, list | tuple):
        raise UsageError(
            f"{where} returns {type(given).__name__}; expected a list of (name, value)",
            name="generate_inputs",
            value=type(given).__name__,
            expected="a list of (name, value)",
        )
    pairs: dict[str, Any] = {}
    for index, item in enumerate(given):
        is_pair = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
        if not is_pair or item[0] in pairs:
            problem = f"uses the name {item[0]!r} twice" if is_pair else "is not a pair"
            raise UsageError(
                f"{where}: item {index} {problem}; expected (name, value) pairs with "
                "distinct names",
                name="generate_inputs",
                value=index,
                expected="a list of (name, value)",
            )
        pairs[item[0]] = item[1]
    return list(pairs.items())


def _intermediate(where: str, value: Any) -> Any:
    array = None if value is None else as_array(value)
    if value is not None and array is None:
        raise _not_intermediates(where, value)
    return array


def _not_intermediates(where: str, value: Any) -> UsageError:
    expected = (
        "a dict from the names of kernels to lists with an item for each task: an array, a tuple "
        "of arrays for several outputs, or None"
    )
    return UsageError(
        f"{where} returns {type(value).__name__}; expected {expected}",
        name="compute_intermediates",
        value=type(value).__name__,
        expected=expected,
    )


def _is_same(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> bool:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return False
    old, new = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (before, after))
    return np.array_equal(old, new)


def _sizes(arguments: tuple[TensorArgument | ScalarArgument, ...]) -> tuple[int, ...]:
    tensors = [argument.array for argument in arguments if isinstance(argument, TensorArgument)]
    return (*(array.nbytes for array in tensors), tensors[0].size if tensors else 0)


def _wrong(path: Path, name: str, value: Any, expected: str) -> UsageError:
    return UsageError(
        f"{path}: {name} is {shown(value)}; expected {expected}",
        name=name,
        value=shown(value),
        expected=expected,
    )


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument: ``value`` is the user's object, ``array`` a view of its memory."""

    name: str
    value: Any
    array: np.ndarray[Any, Any]

    def copied(self) -> Any:
        """Return a copy: a torch tensor for a torch tensor, otherwise an array."""
        if _is_torch(self.value):
            return self.value.detach().clone()
        return self.array.copy()


@dataclass(frozen=True)
class ScalarArgument:
    """A scalar argument: a number of Python, ctypes or NumPy."""

    name: str
    value: Any


def as_argument(name: str, value: Any, where: str) -> TensorArgument | ScalarArgument:
    """Wrap one value. Raises a UsageError with its name if it is neither tensor nor scalar."""
    try:
        is_scalar = number(value) is not None
    except UsageError:
        raise _wrong_value(name, f"the int {value}", where, "a number of at most 64 bits") from None
    if is_scalar:
        return ScalarArgument(name, value)
    is_other_scalar = isinstance(value, np.generic | ctypes._SimpleCData)
    array = None if is_other_scalar else as_array(value)
    if array is None:
        raise _wrong_value(name, type(value).__name__, where, "an array, a tensor or a number")
    _check_type(name, array, where)
    return TensorArgument(name, value, array)


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return a view of a tensor of any kind as an array; None if the value is not a tensor."""
    if isinstance(value, np.ndarray):
        return value
    if _is_torch(value):
        return _torch_view(value)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value)
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError):
        return None


def contiguous(tensor: TensorArgument, *, written: bool, where: str) -> TensorArgument:
    """Return a contiguous tensor: a copy if needed; UsageError for an output (``written``)."""
    array = tensor.array
    if written and not array.flags.writeable:
        raise _wrong_value(tensor.name, "a read-only array", where, "an output that can be written")
    if array.flags.c_contiguous:
        return tensor
    if written:
        shown = f"an array of shape {array.shape} with strides {array.strides}"
        way = "tensor.contiguous()" if _is_torch(tensor.value) else "numpy.ascontiguousarray(array)"
        raise _wrong_value(
            tensor.name, shown, where, f"a contiguous output; return {way} in its place"
        )
    return TensorArgument(tensor.name, tensor.value, np.ascontiguousarray(array))


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _torch_view(tensor: Any) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise UsageError(
            f"a tensor is on the device {tensor.device}; move it to host memory with .cpu()",
            name="device",
            value=str(tensor.device),
            expected="cpu",
        )
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in ML_DTYPES:
        array: np.ndarray[Any, Any] = tensor.numpy()
        return array
    import ml_dtypes

    torch = import_module("torch")

    bits: np.ndarray[Any, Any] = tensor.view(getattr(torch, f"int{8 * tensor.itemsize}")).numpy()
    return bits.view(getattr(ml_dtypes, name))


def _dlpack_view(value: Any) -> np.ndarray[Any, Any]:
    """View the memory of a DLPack exporter. Memory is writable unless it is marked as read-only."""
    array = np.from_dlpack(value)
    if array.flags.writeable or not array.flags.c_contiguous:
        return array
    try:
        versioned = "versioned" in repr(value.__dlpack__(max_version=(1, 0)))
    except TypeError:
        versioned = False
    if versioned:
        return array
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory._owner = value  # type: ignore[attr-defined]  # lives as long as the view
    whole: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(array.dtype)
    return whole.reshape(array.shape)


def _check_type(name: str, array: np.ndarray[Any, Any], where: str) -> None:
    if not array.dtype.isnative:
        raise _wrong_value(
            name, f"an array of {array.dtype.str}", where, "the machine's byte order"
        )
    try:
        DataType.of(array.dtype)
    except UsageError:
        known = ", ".join(member.name.lower() for member in DataType)
        what = f"an array of {array.dtype}"
        raise _wrong_value(name, what, where, f"one of {known}") from None


def _wrong_value(name: str, what: str, where: str, expected: str) -> UsageError:
    return UsageError(
        f"{where}: {name!r} is {what}; expected {expected}",
        name=name,
        value=what,
        expected=expected,
    )


_CHUNK = 1 << 18


def compare(
    name: str,
    actual: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    rtol: float,
    atol: float,
    *,
    exact_integers: bool = True,
) -> OutputReport:
    """Compare an output with its reference, element by element.

    Booleans must be equal, and with ``exact_integers`` integers must be equal too. Other elements
    may differ by at most ``atol + rtol * abs(expected)``. An infinity equals itself, and NaN is
    correct where the reference has NaN. Raises UsageError if the reference has another shape.
    """
    if actual.shape != expected.shape:
        raise UsageError(
            f"output {name!r} has shape {actual.shape}, but its reference {expected.shape}; "
            "compute_golden must fill the tensor that it receives in place",
            name=name,
            value=str(expected.shape),
            expected=str(actual.shape),
        )
    exact_kinds = "biu" if exact_integers else "b"
    exact = actual.dtype.kind in exact_kinds and expected.dtype.kind in exact_kinds
    rtol, atol = (0.0, 0.0) if exact else (rtol, atol)
    tally = _Tally()
    left, right = actual.reshape(-1), expected.reshape(-1)
    for start in range(0, left.size, _CHUNK):
        piece = slice(start, start + _CHUNK)
        if exact:
            tally.add(*_exact(left[piece], right[piece]), start)
        else:
            tally.add(*_close(left[piece], right[piece], rtol, atol), start)
    first = tally.first
    return OutputReport(
        name=name,
        shape=tuple(actual.shape),
        dtype=actual.dtype.name,
        total=actual.size,
        mismatches=tally.mismatches,
        max_error=tally.max_error,
        max_error_index=_index(tally.worst, actual.shape),
        first_index=_index(first, actual.shape),
        first_actual=None if first is None else left[first].item(),
        first_expected=None if first is None else right[first].item(),
        rtol=rtol,
        atol=atol,
    )


def mismatch_error(output: OutputReport, verdict: str = "is wrong") -> WrongResultError:
    """Return an error that describes the differences of an output from its reference."""
    tolerance = (
        f"rtol {output.rtol:g}, atol {output.atol:g}" if output.rtol or output.atol else "exact"
    )
    return WrongResultError(
        f"output {output.name!r} {verdict} in {output.mismatches} of {output.total} elements; "
        f"first at {_shown(output.first_index)}: got {output.first_actual!r}, expected "
        f"{output.first_expected!r}; largest error {output.max_error:g} at "
        f"{_shown(output.max_error_index)}; tolerance {tolerance}",
        tensor=output.name,
        index=output.first_index,
        actual=output.first_actual,
        expected=output.first_expected,
        mismatches=output.mismatches,
        total=output.total,
        rtol=output.rtol,
        atol=output.atol,
    )


@dataclass
class _Tally:
    mismatches: int = 0
    first: int | None = None
    worst: int | None = None
    max_error: float = 0.0

    def add(self, wrong: np.ndarray[Any, Any], error: np.ndarray[Any, Any], start: int) -> None:
        count = int(np.count_nonzero(wrong))
        if count and self.first is None:
            self.first = start + int(np.argmax(wrong))
        self.mismatches += count
        place = int(np.argmax(error))
        if self.worst is None or error[place] > self.max_error:
            self.worst, self.max_error = start + place, float(error[place])


def _exact(actual: Any, expected: Any) -> tuple[Any, Any]:
    wrong = actual != expected
    error = np.zeros(actual.shape, np.float64)
    if wrong.any():
        error = np.abs(actual.astype(np.longdouble) - expected.astype(np.longdouble))
    return wrong, error


def _close(actual: Any, expected: Any, rtol: float, atol: float) -> tuple[Any, Any]:
    wide = _wide(actual, expected)
    left, right = actual.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(left - right)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
        # For an infinite reference, the formula would allow every difference. Allow none.
        allowed = np.where(np.isinf(right), 0.0, atol + rtol * np.abs(right))
        return ~same & ~(error <= allowed), error


def _wide(actual: Any, expected: Any) -> Any:
    """Return a type that can represent every value of both types."""
    kinds = actual.dtype.kind + expected.dtype.kind
    if "c" in kinds:
        return np.complex128
    return np.longdouble if set(kinds) <= set("iu") else np.float64


def _index(flat: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if flat is None else tuple(int(i) for i in np.unravel_index(flat, shape))


def _shown(index: tuple[int, ...] | None) -> str:
    return "[" + ", ".join(map(str, index or ())) + "]"

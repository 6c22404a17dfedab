"""``golden.py``: both forms of inputs, all kinds of values, and every mistake."""

from __future__ import annotations

import array
import ctypes
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pto_core.cases.golden import (
    ScalarArgument,
    TensorArgument,
    as_argument,
    as_array,
    contiguous,
    load_golden,
)
from pto_core.errors import UsageError

HEAD = "import ctypes\nimport numpy as np\n"
LIST = """
def generate_inputs(params):
    return [("a", np.ones(4, np.float32)), ("out_f", np.zeros(4, np.float32)),
            ("n", ctypes.c_int64(4))]

def compute_golden(tensors, params):
    tensors["out_f"][:] = tensors["a"] * 2
"""


@pytest.fixture
def golden(tmp_path: Path):
    def load(text: str, **options: bool):
        path = tmp_path / f"golden_{abs(hash(text)):x}.py"
        path.write_text(HEAD + textwrap.dedent(text))
        return load_golden(path, **options)

    return load


def test_list_form(golden) -> None:
    loaded = golden(LIST)
    assert loaded.names(None, every=False) == ["default"]
    assert (loaded.rtol, loaded.atol, loaded.exact_integers) == (1e-5, 1e-5, True)
    inputs = loaded.generate("default")
    assert [argument.name for argument in inputs.arguments] == ["a", "out_f", "n"]
    assert inputs.outputs == ("out_f",)
    assert inputs.trailing == ()
    copies = {tensor.name: tensor.copied() for tensor in inputs.tensors}
    expected = loaded.compute(inputs, copies, "default")
    np.testing.assert_array_equal(expected["out_f"], np.full(4, 2, np.float32))
    assert not inputs.tensors[1].array.any(), "the reference changed the run's own tensors"


def test_dict_form_appends_sizes_and_count(golden) -> None:
    inputs = golden("""
        TENSOR_ORDER = ["b", "out_a"]
        def generate_inputs(params):
            return {"out_a": np.zeros(3, np.float64), "b": np.ones((2, 5), np.float32)}
        def compute_golden(tensors, params): pass
    """).generate("default")
    assert [argument.name for argument in inputs.arguments] == ["b", "out_a"]
    assert inputs.trailing == (40, 24, 10)


def test_cases_and_their_names(golden) -> None:
    loaded = golden(
        LIST + 'ALL_CASES = {"one": {"n": 1}, "two": {"n": 2}}\nDEFAULT_CASE = "two"\nRTOL = 0\n'
    )
    assert loaded.names(None, every=False) == ["two"]
    assert loaded.names(None, every=True) == ["one", "two"]
    assert loaded.names("one", every=False) == ["one"]
    assert loaded.params("one") == {"n": 1, "name": "one"}
    assert (loaded.rtol, loaded.exact_integers) == (0.0, False)
    with pytest.raises(UsageError, match="its cases are one, two; did you mean 'one'"):
        loaded.names("on", every=False)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("ALL_CASES = {}", "ALL_CASES is {}; expected a dict"),
        ("ALL_CASES = {'a': 1}", r"ALL_CASES\['a'\] is 1"),
        ("DEFAULT_CASE = 'x'", "DEFAULT_CASE is 'x'; expected one of default"),
        ("RTOL = 'x'", "RTOL is 'x'; expected a finite number"),
        ("ATOL = -1", "ATOL is -1"),
        ("ATOL = float('nan')", "ATOL is nan"),
        ("__outputs__ = []", r"__outputs__ is \[\]"),
        ("__outputs__ = 'a'", "__outputs__ is 'a'; expected a list"),
        ("TENSOR_ORDER = 3", "TENSOR_ORDER is 3"),
        ("generate_inputs = 3", "generate_inputs is 3; expected a function"),
        ("del generate_inputs", "has no generate_inputs"),
        ("generate_input = generate_inputs; del generate_inputs", "did you mean"),
        ("del compute_golden", "has no compute_golden"),
    ],
)
def test_mistake_in_the_file(golden, extra: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        golden(LIST + extra + "\n")
    assert "golden_" in caught.value.message, "the message does not name the file"


def test_name_similar_to_an_optional_name_is_warned_about(golden, capsys) -> None:
    golden(LIST + "ALL_CASE = {'a': {}}\n__output__ = ['a']\n")
    shown = capsys.readouterr().err
    assert "did you mean 'ALL_CASES'" in shown
    assert "did you mean '__outputs__'" in shown


def test_reference_may_be_missing_when_it_is_skipped(golden) -> None:
    assert golden(LIST + "del compute_golden\n", reference=False).generate("default").outputs


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "returns int; expected a list"),
        ("return {'a': np.ones(1)}", "TENSOR_ORDER"),
        ("return [('out_a', np.ones(1)), 3]", r"item 1 is not a pair"),
        ("return [('out_a', np.ones(1)), ('out_a', np.ones(1))]", "'out_a' twice"),
        ("return [('out_a', [1, 2])]", "'out_a' is list; expected an array"),
        ("return [('out_a', None)]", "'out_a' is NoneType"),
        ("return [('out_a', np.array(['x']))]", "'out_a' is an array of <U1"),
        ("return [('out_a', np.array([object()]))]", "an array of object"),
        ("return [('out_a', np.ones(2, np.longdouble))]", "an array of .*128; expected one of fl"),
        (
            "import ml_dtypes; return [('out_a', np.ones(2, ml_dtypes.float8_e3m4))]",
            "an array of float8_e3m4; expected one of float32",
        ),
        ("return [('out_a', np.ones(2, '>f4'))]", "byte order"),
        ("return [('a', ctypes.c_int(1))]", "returns no tensor, so the case has no output"),
        (
            "return [('out_a', np.ones((4, 4))[:, 1])]",
            "output; return numpy.ascontiguousarray",
        ),
        ("a = np.ones(4); a.flags.writeable = False; return [('out_a', a)]", "read-only"),
        (
            "return [('out_a', np.ones(1)), ('s', ctypes.c_char(b'x'))]",
            "expected an array, a tensor or a number",
        ),
        ("return [('out_a', np.ones(1)), ('s', np.datetime64('2020'))]", "'s' is"),
        ("return [('out_a', np.ones(1)), ('s', 2**70)]", "'s' is the int 1180.*at most 64 bits"),
        ("return [('out_a', np.ones(1), 3)]", r"item 0 is not a pair"),
        ("raise ValueError('mine')", r"golden_\w+\.py:4: .*generate_inputs.*ValueError: mine"),
        ("import torchh", "ModuleNotFoundError"),
    ],
)
def test_mistake_in_generated_inputs(golden, body: str, message: str) -> None:
    text = f"def generate_inputs(params):\n    {body}\ndef compute_golden(tensors, params): pass\n"
    loaded = golden(text)
    with pytest.raises(UsageError, match=message):
        loaded.generate("default")


def test_a_scene_test_is_recognised(golden) -> None:
    with pytest.raises(UsageError, match="install ptorun-compat-simpler and run `python golden"):
        golden("raise ModuleNotFoundError(name='simpler_setup')  # as if it were not installed")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("['out_a', 'c']", "TENSOR_ORDER names 'c'"),
        ("['out_a']", "returns 'b', which TENSOR_ORDER does not name"),
    ],
)
def test_order_that_does_not_fit(golden, order: str, message: str) -> None:
    loaded = golden(f"""
        TENSOR_ORDER = {order}
        def generate_inputs(params): return {{"out_a": np.ones(1), "b": np.ones(1)}}
        def compute_golden(tensors, params): pass
    """)
    with pytest.raises(UsageError, match=message):
        loaded.generate("default")


UNNAMED = """
def generate_inputs(params):
    return [("a", np.full(4, np.nan)), ("out", np.zeros(4)), ("n", ctypes.c_int64(4)),
            ("state", np.zeros((2, 3), np.int8).T), ("fixed", np.frombuffer(b"12", np.int8))]

def compute_golden(tensors, params):
"""


def computed(loaded):
    inputs = loaded.generate("default")
    assert inputs.outputs == ()
    return loaded.compute(inputs, {t.name: t.copied() for t in inputs.tensors}, "default")


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("tensors['out'][3] = 2", ["out"]),
        ("tensors['out'] = np.ones(4)", ["out"]),
        ("tensors['out'][:] = -0.0", ["out"]),
        ("tensors['state'][2, 1] = 1; tensors['out'][:] = 3", ["out", "state"]),
        ("tensors['out'] = tensors['out'][:2]", ["out"]),
    ],
)
def test_unnamed_outputs_are_the_tensors_that_the_reference_changes(golden, body, outputs) -> None:
    assert list(computed(golden(f"{UNNAMED}    {body}\n"))) == outputs


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "changes none of the tensors a, out, state, fixed.*write the expected outputs"),
        ("tensors['ouput'] = np.ones(4)", "changes none of the tensors a, out, state"),
        ("tensors['out'] = None", r"left no array in tensors\['out'\]"),
    ],
)
def test_reference_without_an_output_is_refused(golden, body: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        computed(golden(f"{UNNAMED}    {body}\n"))


def test_without_a_reference_unnamed_outputs_are_the_writable_tensors(golden) -> None:
    loaded = golden(UNNAMED + "    pass\n", reference=False)
    assert loaded.generate("default").outputs == ("a", "out", "state")


def test_output_that_is_not_generated(golden) -> None:
    loaded = golden(LIST + "__outputs__ = ['out_g']\n")
    with pytest.raises(UsageError, match=r"names 'out_g'.*did you mean 'out_f'"):
        loaded.generate("default")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('b')", r"golden_\w+\.py:4: .*compute_golden.*KeyError"),
        ("tensors['out_f'] = None", r"left no array in tensors\['out_f'\], but NoneType"),
        ("del tensors['out_f']", "left no array"),
    ],
)
def test_mistake_in_the_reference(golden, body: str, message: str) -> None:
    start = LIST.partition("def compute_golden")[0].strip().replace("\n", "\n")
    loaded = golden(f"def compute_golden(tensors, params):\n    {body}\n{start}\n")
    inputs = loaded.generate("default")
    copies = {tensor.name: tensor.copied() for tensor in inputs.tensors}
    message = message.replace(":4:", ":4:")
    with pytest.raises(UsageError, match=message):
        loaded.compute(inputs, copies, "default")


class Foreign:
    """An exporter that supports only DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: object):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OldForeign(Foreign):
    """An old exporter, which cannot report read-only memory."""

    def __dlpack__(self, stream=None):
        return self.values.__dlpack__()


@pytest.mark.parametrize("kind", [Foreign, OldForeign])
def test_dlpack_is_viewed_and_can_be_written(kind) -> None:
    memory = np.arange(6, dtype=np.float32).reshape(2, 3)
    viewed = as_array(kind(memory))
    assert viewed.shape == (2, 3)
    assert viewed.flags.writeable
    viewed[1, 2] = 9
    assert memory[1, 2] == 9


def test_read_only_dlpack_stays_read_only() -> None:
    memory = np.ones(3)
    memory.flags.writeable = False
    assert not as_array(Foreign(memory)).flags.writeable


def test_buffer_protocol_is_viewed() -> None:
    memory = array.array("f", [1, 2])
    as_array(memory)[0] = 5
    assert memory[0] == 5
    assert as_array("text") is None


class Device:
    type = "cpu"


class StandIn:
    """The part of a torch tensor that the code under test uses."""

    __module__ = "torch"
    device = Device()
    dtype = "torch.float32"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def detach(self):
        return self

    def clone(self):
        return StandIn(self.values.copy())

    def numpy(self):
        return self.values


def test_torch_tensor_is_viewed_and_copied_as_a_torch_tensor() -> None:
    memory = np.ones(3, np.float32)
    argument = as_argument("t", StandIn(memory), "here")
    assert isinstance(argument, TensorArgument)
    assert argument.array is memory
    assert type(argument.copied()) is StandIn


def test_non_contiguous_torch_output_is_refused_with_advice_for_torch() -> None:
    argument = as_argument("t", StandIn(np.ones((4, 4), np.float32)[:, 1]), "here")
    assert isinstance(argument, TensorArgument)
    with pytest.raises(UsageError, match=r"return tensor.contiguous\(\) in its place"):
        contiguous(argument, written=True, where="here")


@pytest.mark.parametrize(
    "value",
    [ctypes.c_float(1.5), 1.5, True, np.uint64(2**63), np.bool_(True), np.float16(1.0)],
)
def test_numbers_of_every_kind_are_passed_unchanged(value) -> None:
    argument = as_argument("s", value, "here")
    assert isinstance(argument, ScalarArgument)
    assert argument.value is value


OTHER_TYPES = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize(
    "dtype",
    [*OTHER_TYPES, np.float16, np.int8, np.uint64, np.bool_, np.complex64, complex],
)
def test_data_types(dtype) -> None:
    assert isinstance(as_argument("t", np.zeros(2, dtype), "here"), TensorArgument)


def test_input_that_is_not_contiguous_is_copied(golden) -> None:
    inputs = golden("""
        def generate_inputs(params):
            return [("a", np.arange(6.0).reshape(2, 3).T), ("out_b", np.zeros(0))]
        def compute_golden(tensors, params): pass
    """).generate("default")
    first = inputs.tensors[0].array
    assert first.flags.c_contiguous
    np.testing.assert_array_equal(first, np.arange(6.0).reshape(2, 3).T)


@pytest.mark.parametrize("name", ["generate_inputs", "compute_golden"])
def test_a_function_that_a_call_would_not_run_is_refused(golden, name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"golden_\w+\.py: function '{name}' is an async function"
    ):
        golden(LIST.replace(f"def {name}", f"async def {name}"))


@pytest.mark.filterwarnings("error")
def test_a_reference_that_returns_a_coroutine_is_refused(golden) -> None:
    text = LIST.replace("def compute_golden", "async def later").rstrip()
    loaded = golden(
        f"{text}\n\ndef compute_golden(tensors, params):\n    return later(tensors, params)\n"
    )
    inputs = loaded.generate("default")
    with pytest.raises(UsageError, match=r"'compute_golden' returned .* whose body did not run"):
        loaded.compute(inputs, {one.name: one.copied() for one in inputs.tensors}, "default")

"""Data type codes are the same in Python, in the header and in the native module."""

from __future__ import annotations

import re
from importlib.resources import files

import ml_dtypes
import numpy as np
import pytest

import pto_core
from pto_core import DataType
from pto_core.errors import UsageError


def header(name: str) -> str:
    """Read a header of the installed core, or of the checkout if it is installed from there."""
    package = files(pto_core)
    for place in (package / "include", package / ".." / ".." / "include"):
        found = place / "pto" / "abi" / name
        if found.is_file():
            return found.read_text()
    raise FileNotFoundError(name)


def test_codes_are_those_of_the_header() -> None:
    codes = re.findall(r"PTO_DTYPE_(\w+) = (\d+)", header("dtype.h"))
    assert {name: int(code) for name, code in codes} == {t.name: t.value for t in DataType}


@pytest.mark.parametrize("data_type", list(DataType))
def test_numpy_and_back(data_type: DataType) -> None:
    assert DataType.of(data_type.numpy) is data_type
    assert DataType.of(data_type.name.lower()) is data_type
    assert DataType.of(data_type) is data_type
    assert data_type.nbytes == data_type.numpy.itemsize


def test_bfloat16_is_that_of_ml_dtypes() -> None:
    assert DataType.BFLOAT16.numpy == np.dtype(ml_dtypes.bfloat16)
    assert DataType.of(ml_dtypes.bfloat16) is DataType.BFLOAT16


def test_another_byte_order_is_named() -> None:
    with pytest.raises(UsageError, match="its byte order is not that of this machine; use one of"):
        DataType.of(np.dtype("f4").newbyteorder())


@pytest.mark.parametrize("dtype", ["text", "O", "S3", ">f4", "M8[s]", ml_dtypes.int4, object()])
def test_other_types_are_refused(dtype: object) -> None:
    with pytest.raises(UsageError, match="use one of float32, float16"):
        DataType.of(dtype)

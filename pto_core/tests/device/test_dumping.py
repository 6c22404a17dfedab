"""Which runs are dumped, and the backends that cannot do it."""

from __future__ import annotations

import pytest

from pto_core import CallConfig
from pto_core.config import load_core
from pto_core.device.dumping import Dumping
from pto_core.errors import UnsupportedError

ON = CallConfig(enable_dump_tensor=1, output_prefix="x")


@pytest.mark.parametrize(("config", "dump"), [(None, True), (None, "add#3"), (ON, False)])
def test_a_backend_without_dumps_refuses_them(config: CallConfig | None, dump: object) -> None:
    dumping = Dumping(load_core({"backend": "a2a3"}), can_dump=False)
    with pytest.raises(UnsupportedError, match="the backend 'a2a3' cannot dump the arrays"):
        dumping.begin(config, dump, 1)
    assert dumping.begin(None, False, 1) is None
    assert dumping.begin(CallConfig(), False, 1) is None

# What stubgen cannot see: the methods that take their arguments as a vectorcall gives them. And the
# name that NumPy users look for.
pto_core._native.Graph.submit$:
    def submit(self, task: object, /, *args: Any, cluster: int | None = None, after: int | Sequence[int] = ()) -> int: ...

pto_core._native.Graph.submit_block$:
    def submit_block(self, task: object, /, *args: Any, block_dim: int, clusters: Sequence[int] | None = None, after: int | Sequence[int] = ()) -> int: ...

pto_core._native.DeviceArray.T$:
    @property
    def T(self) -> DeviceArray: ...  # noqa: N802

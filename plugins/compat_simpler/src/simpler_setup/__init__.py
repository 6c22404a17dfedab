"""The module ``simpler_setup`` of the published runtime: scene tests, over ptorun.

A scene test is a class in a file beside its C++ sources::

    @scene_test(level=2, runtime="tensormap_and_ringbuffer")
    class TestVector(SceneTestCase):
        CALLABLE = {"orchestration": {...}, "incores": [{...}]}
        CASES = [{"name": "default", "platforms": ["a2a3sim"]}]

        def generate_args(self, params): ...
        def compute_golden(self, args, params): ...

``python FILE -p a2a3sim`` and ``pytest FOLDER --platform a2a3sim`` run it.
"""

import simpler as _simpler  # noqa: F401 - refuses modules of another distribution
from pto_compat_simpler.arguments import (
    Scalar as Scalar,
    TaskArgsBuilder as TaskArgsBuilder,
    TensorArg as TensorArg,
)
from pto_compat_simpler.compiler import KernelCompiler as KernelCompiler
from pto_compat_simpler.scene import (
    SceneTestCase as SceneTestCase,
    SceneTestLevel as SceneTestLevel,
    scene_level as scene_level,
    scene_test as scene_test,
)

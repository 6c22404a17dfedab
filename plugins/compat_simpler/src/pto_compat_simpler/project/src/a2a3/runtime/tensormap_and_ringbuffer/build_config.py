"""The include folders of kernels for this runtime."""

from pto_compat_simpler.compiler import incore_include_dirs

BUILD_CONFIG = {"aicore": {"include_dirs": [str(folder) for folder in incore_include_dirs()]}}

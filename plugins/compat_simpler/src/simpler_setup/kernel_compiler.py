"""The compiler of kernels and orchestrations."""

from pto_compat_simpler.compiler import KernelCompiler as KernelCompiler

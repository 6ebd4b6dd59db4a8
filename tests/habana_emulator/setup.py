"""Builds the device: a C++ extension of torch."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCE = "src/habana_frameworks/torch/_hpu_device.cpp"

setup(
    ext_modules=[CppExtension("habana_frameworks.torch._hpu_device", [SOURCE], extra_compile_args=["-O1", "-g0"])],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)

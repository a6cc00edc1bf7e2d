"""Builds the extension modules; everything else is declared in pyproject.toml.

WHEELSCHED_SANITIZE=1 builds it with the address and undefined-behaviour sanitizers.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

PACKAGE = Path("src/wheelsched")
SANITIZE = os.environ.get("WHEELSCHED_SANITIZE") == "1"


def compile_flags() -> list[str]:
    if SANITIZE:
        sanitizers = "-fsanitize=address,undefined"
        return [
            "-O1",
            "-g",
            sanitizers,
            "-fno-sanitize-recover=all",
            "-fno-omit-frame-pointer",
            "-fwrapv",
        ]
    return ["-O3", "-fno-strict-aliasing", "-fwrapv"]


def link_flags() -> list[str]:
    return ["-fsanitize=address,undefined"] if SANITIZE else []


def extension(path: str, depends: list[str] | None = None) -> Extension:
    return Extension(
        f"wheelsched.{path.replace('/', '.')}",
        [f"src/wheelsched/{path}.pyx"],
        depends=depends or [],
        extra_compile_args=compile_flags(),
        extra_link_args=link_flags(),
    )


setup(
    ext_modules=cythonize(
        [
            extension("_wheel", [str(part) for part in PACKAGE.glob("_*/*.px[di]")]),
            extension("aio/_callbacks"),
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
            "auto_pickle": False,
            "autotestdict": False,
        },
    )
)

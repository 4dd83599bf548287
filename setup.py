"""Build script. `make test` and `make demo` install by themselves; see README.md otherwise."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    text = (ROOT / "fairseq_casrnn" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def long_description() -> str:
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


DEMO = ["num2words>=0.5.13"]
PLOTS = ["matplotlib>=3.8"]
DEV = [
    *DEMO,
    "hypothesis>=6.100",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "ruff>=0.12",
    "scipy>=1.11",
    "tensorboardX>=2.6",
]

setup(
    name="fairseq-casrnn",
    version=version(),
    description="LSTMs whose cells flow between layers, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["fairseq_casrnn", "fairseq_casrnn.*"]),
    ext_modules=[],
    install_requires=[
        "fairseq-fixed==0.12.3.1",
        "numpy>=1.26",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        "sentencepiece>=0.2",
        "subword-nmt>=0.3.8",
        "torch>=2.6",
    ],
    extras_require={"demo": DEMO + PLOTS, "plots": PLOTS, "dev": DEV},
    entry_points={"console_scripts": ["casrnn = fairseq_casrnn.cli:main"]},
    zip_safe=False,
)

# Every target installs what it needs. Requirements: Python >= 3.11, a C++ compiler and make.
#
#   make demo       train a small German-English translator and try it (2 minutes after installation)
#   make test       run all but the slow tests
#   make test-full  run the tests that make test leaves out; make test-all runs both
#   make test-triton  compile the GPU kernels with the oldest Triton that is supported; a minute
#   make test-avx2  compile the C++ engine for processors that have AVX2 and no more, and test it here;
#                   3 minutes
#   make mutants    plant bugs one by one and check that make test notices each; 15 minutes
#   make fuzz       try 2,000 damaged files per reader and 2,000 random settings per engine, and kill
#                   20 trainings per role at random moments; 5 minutes (FUZZ=N: N, N and N/100)
#   make lint       check style and types, and that docs/results/ is rendered from results/
#   make docs       build the documentation into site/; a broken link is an error
#   make bench      measure speed and memory on the CPU, compared with fairseq's lstm and torch.nn.LSTM,
#                   into benchmarks/results/; on an idle machine, 45 minutes (QUICK=1: 15)
#   make gpu        check every GPU kernel against float64, then measure speed compared with cuDNN and
#                   fairseq's lstm, into benchmarks/results/; 5 minutes (SECTIONS=check,layers: only these)
#
# Variables:
#   DATA         data-bin of a translation recipe for make bench and make gpu (default: random sentences)
#   PYTHON       interpreter to build .venv from (default: the first suitable one on PATH)
#   TORCH_INDEX  index to search for torch besides PyPI, or empty. The default is the index of CPU
#                builds, which are a tenth of the size; with an NVIDIA GPU it is empty.

VENV := .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
    $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
    && { echo $$p; exit; }; done; echo python3)
TORCH_INDEX ?= $(shell nvidia-smi -L >/dev/null 2>&1 || echo https://download.pytorch.org/whl/cpu)

PIP := $(VENV)/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt
COMPILER := { command -v "$${CXX:-c++}" || command -v g++; } >/dev/null
# setuptools_scm: seqeval has no wheel either.
BUILD_TOOLS := numpy cython setuptools setuptools_scm wheel
STAMP := $(VENV)/.installed
TRITON := $(VENV)/.installed-triton
OLDEST_TRITON := $(VENV)/triton-3.6.0
AVX2 := $(VENV)/avx2
MKDOCS := $(VENV)/.installed-mkdocs
CPP := $(wildcard fairseq_casrnn/csrc/* fairseq_casrnn/cells/*.h fairseq_casrnn/cells/*/*.h)

.PHONY: demo test test-full test-all test-triton test-avx2 mutants fuzz lint docs bench gpu install clean

demo: $(STAMP)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" examples/quickstart/run.sh

test: $(TRITON)
	$(VENV)/bin/python -m pytest

test-full: $(TRITON)
	$(VENV)/bin/python -m pytest -m full

test-all: test test-full

test-triton: $(OLDEST_TRITON)
	PYTHONPATH=$(OLDEST_TRITON) $(VENV)/bin/python -m pytest -m "" tests/models/test_compiling.py \
	    $(addprefix tests/recurrence/test_triton_,compiling.py beam.py launching.py)

$(OLDEST_TRITON): $(TRITON)
	rm -rf $@
	$(VENV)/bin/python -m pip install --disable-pip-version-check -q --no-deps --target $@ triton==3.6.0

# The processor may still have more: products of bfloat16 are chosen when they run.
test-avx2: $(AVX2)/lib
	rm -rf $(AVX2)/fairseq_casrnn
	cp -r fairseq_casrnn $(AVX2)
	cp $(AVX2)/lib/fairseq_casrnn/_cpp.* $(AVX2)/fairseq_casrnn
	PYTHONPATH=$(AVX2) $(VENV)/bin/pytest -m "" tests/layers/test_sentence_state.py tests/test_int8.py \
	    $(patsubst %,tests/recurrence/test_%.py,cpp cross_entropy engines next_words products ragged routed)

$(AVX2)/lib: $(STAMP)
	rm -rf $(AVX2)
	CASRNN_MARCH=x86-64-v3 $(VENV)/bin/python setup.py -q build_ext --build-lib $@ \
	    --build-temp $(AVX2)/temp

mutants: $(TRITON)
	$(VENV)/bin/python tests/mutants/run.py

fuzz: $(STAMP)
	CASRNN_FUZZ=$(or $(FUZZ),2000) $(VENV)/bin/python -m pytest --dist load -m "" -q tests/fuzz

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/casrnn results render --check
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP)

docs: $(MKDOCS)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: $(STAMP)
	$(VENV)/bin/python benchmarks/run.py $(if $(QUICK),--quick) $(DATA)

gpu: $(STAMP)
	$(VENV)/bin/python benchmarks/gpu.py $(if $(SECTIONS),--sections $(SECTIONS)) $(DATA)

install: $(STAMP)

# fairseq has no wheel and must be compiled against the torch that it will run with. So torch is
# installed first, and pip's build isolation, which would fetch another torch, is off. A second run
# finds the pinned versions in place and only updates the package's own metadata.
$(STAMP): setup.py pyproject.toml constraints.txt $(CPP)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "error: Python >= 3.11 is needed; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; \
	    sys.exit(not os.path.exists(s.get_paths()["include"] + "/Python.h"))' || { \
	    echo "error: Python.h is missing; install Python's headers (python3-dev)" >&2; exit 1; }
	@$(COMPILER) || echo "warning: no C++ compiler: engine 'cpp' is left out, and fairseq can only" \
	    "be installed from a cached wheel; install g++ or clang++" >&2
	@[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): torch, about 200 MB (1 of 3)"
	@# Without dependencies, because an unresponsive index already costs a minute for these two. If
	@# this fails, the next line installs everything from PyPI.
	@[ -z "$(TORCH_INDEX)" ] || $(PIP) --no-deps --extra-index-url "$(TORCH_INDEX)" \
	    --timeout 15 --retries 1 torch torchaudio || true
	@$(PIP) torch torchaudio $(BUILD_TOOLS)
	@echo "installing into $(VENV): fairseq, compiled from source, about 2 minutes (2 of 3)"
	@# Building the extensions in parallel, without debug information, takes half the time. With ninja
	@# they are built one by one, because torch's build gives them all the same build.ninja.
	@printf '[build_ext]\nparallel = %s\n' "$$(command -v ninja > /dev/null && echo 1 || \
	    echo "$${MAX_JOBS:-$$(getconf _NPROCESSORS_ONLN)}")" > $(VENV)/build.cfg
	@CFLAGS="-g0 $$CFLAGS" DIST_EXTRA_CONFIG="$(CURDIR)/$(VENV)/build.cfg" \
	    $(PIP) --no-build-isolation fairseq-fixed || { $(COMPILER) || \
	    echo "error: fairseq must be compiled; install g++ or clang++" >&2; exit 1; }
	@echo "installing into $(VENV): fairseq-casrnn, its C++ engine and its tools (3 of 3)"
	@PYTHONWARNINGS=ignore $(PIP) --no-build-isolation -e '.[dev,plots,serve]'
	@touch $@

# CUDA builds of torch include Triton, CPU builds do not.
$(TRITON): $(STAMP)
	@echo "installing into $(VENV): Triton, about 200 MB, whose interpreter runs the GPU kernels in tests"
	@$(PIP) triton && touch $@ || echo "warning: no Triton: the tests of the GPU kernels are skipped" >&2

$(MKDOCS): $(STAMP)
	@$(PIP) mkdocs mkdocs-material mkdocstrings-python && touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info

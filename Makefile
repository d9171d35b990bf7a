# make demo: set up and run the main job.  make test: the whole check.  make full: with all seeds and examples.
# make quick: lint, types and the tests of what changed since the last commit, in about a minute.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
# Compiled bytecode makes every start faster; some environments switch it off.
export PYTHONDONTWRITEBYTECODE :=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test quick changed full lint types pytest fuzz bench docs lock clean

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lawful needs Python 3.11 or newer (make PYTHON=python3.11 ...)"; exit 1; }
	@test -x $(BIN)/python || { echo "Making .venv ..."; $(PYTHON) -m venv .venv; }
	@echo "Installing lawful and its dependencies (about a minute the first time) ..."
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,data,onnx]' 2> >(grep -v '^WARNING: Location' >&2)
	@touch $@

.venv/developer: .venv/installed
	@echo "Installing the tools of the tests ..."
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]' 2> >(grep -v '^WARNING: Location' >&2)
	@touch $@

# The pages are tested in a real browser: Debian's chromium.
.venv/browser: .venv/developer
	@command -v chromium >/dev/null || { echo "Installing chromium for the tests of the pages ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || { echo "The tests of the pages need chromium: install it (apt-get install chromium, as root) and run make test again"; exit 1; }
	@touch $@

demo: .venv/installed
	@$(BIN)/lawful demo --out out/demo

# The tests run beside types and site; they run the notebooks, examples and pages, which the site then only lays out.
test: lint .venv/browser
	@LAWFUL_DOCS=quick $(MAKE) --no-print-directory --jobs 2 pytest types docs

# mypy keeps what it knows of unchanged files; the first run takes longer.
quick: lint
	@$(MAKE) --no-print-directory --jobs 2 types changed

changed: .venv/developer
	@tests=$$($(BIN)/python tests/changed.py); test -z "$$tests" && echo "nothing changed since the last commit" \
	  || OMP_NUM_THREADS=1 $(BIN)/pytest $$tests

# Property tests try a part of their seeds and examples every day; here all of them.
full:
	@LAWFUL_TESTS=full $(MAKE) --no-print-directory test

lint: .venv/developer
	@$(BIN)/ruff format --quiet --check . || { echo "run: $(BIN)/ruff format"; exit 1; }
	@$(BIN)/ruff check --quiet .

types: .venv/developer
	@$(BIN)/mypy

pytest: .venv/browser
	@OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile # one thread each; tests of a file share what they make

# Damaged files of every kind against every reader and verifier: make fuzz N=10000 SEED=0
N ?= 10000
SEED ?= 0
fuzz: .venv/developer
	@$(BIN)/python tests/fuzz --count $(N) --seed $(SEED) --keep out/fuzz
	@$(BIN)/python tests/fuzz/guided.py --count $(N) --seed $(SEED)

bench: .venv/developer
	@$(BIN)/python -m benchmarks

docs: .venv/developer
	@$(BIN)/sphinx-build -q -W -b html docs docs/_build
	@$(BIN)/python docs/links.py docs/_build
	@echo "docs/_build/index.html"

# The versions that the tests ran with; `make` installs these.
lock: .venv/developer
	@{ echo "# The versions that the tests ran with (make lock). PyTorch is its CPU build: an unpinned one brings gigabytes of CUDA."; \
	  $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' | grep -v -e '^#' -e ' @ '; } > constraints.txt

clean:
	rm -rf .venv docs/_build docs/generated docs/jupyter_execute docs/_static/schemas docs/_static/notebooks docs/_static/touch docs/_static/try build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis out
	find . -name __pycache__ -prune -exec rm -rf {} +

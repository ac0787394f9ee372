# make demo: set up and train the main example.   make check: lint, layout, docs.   make test: the test suite.
# Needs Python ≥ 3.11 and pip; another interpreter is named by PYTHON=python3.12, another environment by VENV=.venv312.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo check test test-slow lint setup clean

demo: setup
	$(BIN)/python train.py dates

check: lint
	$(BIN)/python -m pytest -q tests/test_layout.py tests/test_docs.py -k "not snippets"

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadgroup --durations=15

test-slow: setup
	XLA_FLAGS= $(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "qkv needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) .cache build *.egg-info

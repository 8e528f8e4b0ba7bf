# make demo | run | test | test-long | test-cluster | fuzz | lint | bench. All of them share .venv, made once from the pinned constraints.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PARSERS := $(VENV)/.parsers
COMPILED := $(VENV)/.compiled
# Tests beside each other: many wait for a process or a page. Each worker takes seconds of CPU to collect all tests and to
# make what a process makes once (docs/testing.md).
WORKERS ?= 3
# A process that crashes is named, and the run ends: with another one in its place, xdist 3.8 waits for ever for what it had not run.
BESIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Random examples of each property in `make fuzz`.
EXAMPLES ?= 1000
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# What is installed first: all of it at once where the tests will need it.
EXTRAS := agent,server
test test-long test-cluster fuzz lint conformance bench: EXTRAS := dev
# Folders of packages that nothing of ours loads, or few processes: their bytecode is half of all, six seconds of CPU.
RARE := /(tests|pip|pandas|mypy|schemathesis|pygments|datastore|graphql)/
PREPARE := from parsers.engine import prepare; prepare()

.PHONY: demo run test test-long test-cluster fuzz lint bench conformance clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-compile -e '.[$(EXTRAS)]'
	-$(BIN)/python -m compileall -q -x '$(RARE)' $(VENV)/lib
	echo '$(EXTRAS)' >$@

$(PARSERS): $(STAMP)  # the demo receives nothing
	@echo "compiling the parsers, once (about half a minute)"
	$(BIN)/python -c '$(PREPARE)'
	touch $@

$(COMPILED): $(PARSERS)
	@echo "compiling the receivers, once (about half a minute)"
	$(BIN)/python -m collector.compile_receivers
	touch $@

$(DEV): $(STAMP)  # a second engine and a browser's driver weigh more than all the rest: only for the tests
	test "$$(cat $(STAMP))" = dev || $(INSTALL) -e '.[dev]'
	touch $@

demo: $(PARSERS)  ## load the bundled real capture, serve the pages, print the address
	$(BIN)/faultline demo

run: $(COMPILED)  ## the service on 127.0.0.1:8514 with data in ./faultline-data
	$(BIN)/faultline serve

# Hundreds of processes start in a run: bytecode that is not kept would be compiled in each of them.
test test-long test-cluster fuzz: export PYTHONDONTWRITEBYTECODE =
test: $(DEV) $(COMPILED)  ## everything that takes seconds; installs Chromium and Slurm where it may, says what it skipped where not
	sh tests/prepare.sh
	$(BIN)/python -m pytest $(BESIDE)

test-long: $(DEV) $(COMPILED)  ## kill storms, slow-connection storms, fuzzing for cost: what takes minutes each
	sh tests/prepare.sh
	$(BIN)/python -m pytest -m long $(BESIDE)

test-cluster: $(DEV) $(COMPILED)  ## a real Slurm, for a nightly run as root: hooks installed, a week's faults injected, seconds until each word and verdict
	sh tests/prepare.sh
	FAULTLINE_LIVE_FAULTS=1 $(BIN)/python -m pytest -m long tests/cluster

# Compiled code checks its indices here: elsewhere a wrong one reads other memory, and seldom shows.
fuzz: $(DEV) $(COMPILED)  ## property tests with random examples instead of the fixed ones of `make test`
	NUMBA_BOUNDSCHECK=1 FAULTLINE_FUZZ=$(EXAMPLES) $(BIN)/python -m pytest -m hypothesis -n $(WORKERS) --max-worker-restart 0

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

conformance: $(DEV) $(PARSERS)  ## pass rates of KQL per tier over ../shared/data/kql; says so where that is missing
	$(BIN)/python -m pytest tests/queries/kql/test_cases.py -k conformance -m long -n 0 -rs

# Those that measure something without an argument (tests/test_house.py holds the list); docs/benchmarks.md has the others.
BENCH := agent archive calibration captures correlation endings fleet gate hooks house ingest parsers peers queries readers soak ui

bench: $(DEV) $(PARSERS)  ## all of them, one after the other; one that fails is named at the end and stops no other
	failed=; for b in $(BENCH); do echo "== $$b"; $(BIN)/python benchmarks/$$b.py || failed="$$failed $$b"; done; \
	  test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info

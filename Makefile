# What people type: `make bench` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two processes, one for each core; a failure is shown at once and a test that hangs fails.
PARALLEL := --numprocesses 2 --instafail --durations 25 --timeout 1200
QUICK := not deep and not long
DEEP := deep and not long
# Only wheels with the hashes of a lock: nothing is built, and nothing else is downloaded.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
FROM_LOCK := --require-hashes --only-binary :all: --requirement
# `make locks` keeps the versions in the locks, and ignores files that were uploaded after this day.
# So it changes nothing as long as pyproject.toml stays. For newer versions, set the day to
# yesterday and run `make locks UPGRADE=--upgrade`, or UPGRADE="--upgrade-package numpy" for one.
LOCKED_ON := 2026-11-29
PIN := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --only-binary :all: --no-annotate --exclude-newer $(LOCKED_ON) $(UPGRADE) \
  --custom-compile-command 'make locks'

.PHONY: help bench test test-deep test-all coverage mutants golden overhead gpu-bundle gpu-rehearsal series replay prediction tuning million versus-native versus-tuned studies verify-all fuzz audit locks lint types environments clean docs docs-serve input schema settings screenshots

#@ Use

help: ## List the targets.
	@awk -F ':.*## ' '/^#@ / { print "\n" substr($$0, 4) } /^[a-z-]+:.*## / { printf "  %-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bench: $(VENV)/installed ## Measure four frameworks on two small networks, print the tables.
	$(BIN)/xfbench run

studies: $(VENV)/installed ## Every study at its smallest size, reports in build/studies (20 to 60 minutes).
	mkdir -p build/studies
	for name in $$($(BIN)/python -c 'from xfbench.planning import experiment; print(*experiment.list_names())'); do \
	  $(BIN)/xfbench study run $$name --results build/studies/results --resume > /dev/null && \
	  $(BIN)/xfbench study report $$name --results build/studies/results --output build/studies/$$name.html \
	    || exit; done
	$(BIN)/xfbench report --results build/studies/results --output build/studies/report.html
	$(BIN)/xfbench results export build/studies/records.tar.gz --results build/studies/results

verify-all: $(VENV)/installed ## Prove all networks equal in every framework and kernel; hours.
	$(BIN)/xfbench verify --workload all --kernel all --again --format markdown
	$(BIN)/xfbench verify --self-test --seeds 5

gpu-bundle: $(VENV)/installed ## Write build/gpu-kit, to be run on a lent machine with a GPU.
	$(BIN)/python -m tests.measuring.kit build/gpu-kit

environments: $(VENV)/installed ## Make every framework's environment now.
	$(BIN)/xfbench env create caffe mxnet tensorflow torch

audit: $(VENV)/installed ## Compare all locks with published flaws: make audit ADVISORIES="FILE ...".
	$(BIN)/xfbench env audit $(addprefix --advisories ,$(ADVISORIES))

#@ Test

test: $(VENV)/developed lint types ## Quick tests with one real run of each kind (limit: 12 minutes).
	$(BIN)/pytest -m 'alone and $(QUICK)' --timeout 300 tests
	$(BIN)/pytest -m 'not alone and $(QUICK)' $(PARALLEL) --session-timeout 2400 tests

test-deep: $(VENV)/developed docs ## Deep tests, which a change must pass too (limit: 55 minutes).
	$(BIN)/pytest -m 'alone and $(DEEP)' --timeout 1200 tests xfbench/benchmarks
	$(BIN)/pytest -m 'not alone and $(DEEP)' $(PARALLEL) --session-timeout 3900 tests

test-all: $(VENV)/developed lint types ## Quick, deep and long tests, `make fuzz`, before a release (hours).
	$(BIN)/pytest -m alone --timeout 3600 tests xfbench/benchmarks
	$(BIN)/pytest -m 'not alone' $(PARALLEL) --timeout 3600 tests
	$(MAKE) fuzz

lint: $(VENV)/developed ## Style and simple mistakes.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

settings: $(VENV)/developed ## Writes the files that follow from xfbench/model/settings.py.
	$(BIN)/python -m xfbench.rendering.setting_files
	mkdir -p build && $(BIN)/python -m tests.docs.cli_page > build/cli.md && mv build/cli.md docs/reference/cli.md

screenshots: $(VENV)/developed ## Take the pictures of the example report in docs/report/ again.
	$(BIN)/python -m tests.docs.screenshots

types: $(VENV)/developed ## mypy --strict, on the installed package and from outside the checkout.
	rm -rf build && mkdir -p build/outside
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --target build/outside .
	cd build/outside && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml --python-executable ../../$(BIN)/python --cache-dir ../../.mypy_cache -p xfbench

fuzz: $(VENV)/developed ## Ten minutes for each reader of others' files; findings lie in build/fuzz (5 hours).
	failed=0; for name in $(or $(FUZZ_TARGETS),$$($(BIN)/python -c 'from tests.fuzz.targets import TARGETS; print(*TARGETS)')); do \
	  $(BIN)/python -m tests.fuzz $$name $(or $(FUZZ_SECONDS),600) build/fuzz/$$name || failed=1; \
	done; exit $$failed

coverage: $(VENV)/developed ## Lines and branches of the driver that `make test` runs.
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m 'alone and $(QUICK)' tests
	$(BIN)/coverage run -m pytest -m 'not alone and $(QUICK)' $(PARALLEL) tests
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

mutants: $(VENV)/developed ## Try 20 drawn mutations of the source against the quick tests (hours).
	$(BIN)/python -m tests.mutants

gpu-rehearsal: $(VENV)/installed ## Rehearse the GPU kit on this CPU, without network (10 minutes, root).
	$(BIN)/python -m tests.measuring.kit.rehearsal build/gpu-rehearsal

#@ Write generated files

golden: $(VENV)/developed ## Write tests/golden anew; read the diff before you commit it.
	$(BIN)/python -m tests.golden

schema: $(VENV)/installed ## Write docs/schema.md and xfbench/model/record.schema.json anew.
	mkdir -p build
	$(BIN)/python -m xfbench.rendering.schema_page > build/schema.md && mv build/schema.md docs/schema.md
	$(BIN)/python -m xfbench.model.record > build/schema.json && mv build/schema.json xfbench/model/record.schema.json

docs: $(VENV)/developed ## Build the documentation in build/site; a broken link is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/developed ## Show the documentation in a browser while you write.
	$(BIN)/mkdocs serve

locks: $(VENV)/developed ## Pin what xfbench and its development need (UPGRADE=--upgrade: newer versions).
	echo 'setuptools>=77' | $(PIN) pyproject.toml - --output-file requirements/xfbench.lock >/dev/null
	$(PIN) pyproject.toml --all-extras --output-file requirements/development.lock >/dev/null

#@ Measure xfbench itself

overhead: $(VENV)/developed ## Measure what the harness adds to a step (10 minutes, a quiet machine).
	$(BIN)/python -m tests.measuring.overhead

input: $(VENV)/developed ## Measure what input costs a step (a quarter of an hour, a quiet machine).
	$(BIN)/python -m tests.measuring.input

versus-native: $(VENV)/developed ## Adapters against what each framework's users write (an hour, a quiet machine).
	$(BIN)/python -m tests.measuring.versus
	$(BIN)/python -m tests.measuring.versus --ranks 2 --network lenet,alexnet

series: $(VENV)/developed ## Record launches to try methods of measuring on (an hour, quiet).
	$(BIN)/xfbench run --framework caffe,mxnet,tensorflow,torch --workload lenet,convnet \
	  --launches 40 --warmup 0 --warmup-time 0 --results results/series
	$(BIN)/python -m tests.measuring.series results/series

replay: $(VENV)/developed ## Try methods for intervals on the recorded series and on simulations.
	$(BIN)/python -m tests.measuring.replay

prediction: $(VENV)/developed ## What `predict` says of held-out numbers of ranks (half an hour, root).
	$(BIN)/python -m tests.measuring.prediction

versus-tuned: $(VENV)/developed ## What `run --tuned` uses against what users write (an hour, after `xfbench tune`).
	$(BIN)/python -m tests.measuring.versus_tuned results

tuning: $(VENV)/developed ## What `tune` finds against exhaustive search (hours, a quiet machine; see --help).
	$(BIN)/python -m tests.measuring.tune results/tuning

million: $(VENV)/developed ## What a million records take: 5 GB below build/, some minutes, quiet.
	$(BIN)/python -m tests.measuring.results build/million
	rm -rf build/million

#@ Clean up

clean: ## Remove what was built here; results and the cache of environments stay.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "xfbench needs Python 3.11 or later: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { test "$$(id -u)" = 0 && \
	  apt-get update -qq && apt-get install -y -qq python3-venv; } || \
	  { echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml requirements/xfbench.lock
	$(PIP_INSTALL) $(FROM_LOCK) requirements/xfbench.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/developed: $(VENV)/bin/python pyproject.toml requirements/development.lock
	$(PIP_INSTALL) $(FROM_LOCK) requirements/development.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	touch $@ $(VENV)/installed

# Everything runs in .venv, which is made once from requirements.lock. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GAUDI := .venv-gaudi
GAUDI_STAMP := $(GAUDI)/.installed
GAUDI_SOURCES := $(shell find tests/habana_emulator -type f -not -path '*/__pycache__/*' 2>/dev/null)
LOCK_TORCH ?= 2.13.0
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

# Nothing here reports to anybody
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := true
export MLFLOW_DISABLE_TELEMETRY := true
export RAY_USAGE_STATS_ENABLED := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help setup sweep test test-fast test-faults test-gpu test-gaudi test-gaudi-sweep test-kill mutants lint up down status bench bench-nightly bench-coverage bench-scale lock pin-images clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from requirements.lock (the other targets do it by themselves)

sweep: $(STAMP) ## run suite bridgetower, profile smoke, on this machine's CPU
	$(BIN)/sweep run bridgetower --profile smoke

test: $(STAMP) ## all tests but test-faults and test-gaudi, 10 to 16 minutes on two cores, by how fast these are
	$(BIN)/python -m pytest -n 3 --dist loadgroup --ignore=tests/faults  # one more than cores: many wait for servers

test-fast: $(STAMP) ## the tests that start no server
	$(BIN)/python -m pytest -m "not integration and not fault"

test-faults: $(STAMP) ## the tests that break things under running sweeps: processes, servers, nodes, disks; 7 to 11 minutes
	$(BIN)/python -m pytest -n 3 --dist loadgroup tests/faults

test-gpu: $(STAMP) ## what only a GPU can run: kernels, the sampler's view of it; skipped without one
	$(BIN)/python -m pytest tests/gpu

test-gaudi: $(STAMP) $(GAUDI_STAMP) ## the Gaudi path: real optimum-habana on an emulated device, some minutes
	$(GAUDI)/bin/python -m pytest tests/gaudi

test-gaudi-sweep: $(STAMP) $(GAUDI_STAMP) ## whole sweeps over the emulated pool, embedded and as a Ray cluster
	SWEEPBENCH_GAUDI=1 $(BIN)/python -m pytest tests/gaudi

test-kill: $(STAMP) ## kill -9 at random moments, embedded (SERVERS=1: with the servers of make up): ROUNDS=100 SEED=0 OUT=folder, half a minute a round
	@$(BIN)/python -m tests.kill --rounds $(or $(ROUNDS),100) --seed $(or $(SEED),0) --out $(or $(OUT),build/test-kill) $(if $(SERVERS),--servers)

mutants: $(STAMP) ## which small changes to the code the fast tests notice, by module: an hour or more (MUTANTS=pattern for a part)
	@$(BIN)/python -m pip install -qq "mutmut==3.8.1"
	@$(BIN)/python .ci/mutants.py $(MUTANTS)

lint: $(STAMP) ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

up: $(STAMP) ## start the stack on loopback: Prefect server and worker, MLflow server, Ray head (DATABASE=postgresql)
	@$(if $(DATABASE),SWEEPBENCH_DATABASE=$(DATABASE)) $(BIN)/python -m cluster.stack up

down: ## stop exactly what `make up` started
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m cluster.stack down; else echo "the stack is not running: there is no $(VENV)"; fi

status: $(STAMP) ## how the stack's components are
	@$(BIN)/python -m cluster.stack status

bench: $(STAMP) ## run benchmarks/*.py and print what they measured
	@$(BIN)/python .ci/bench.py benchmarks

bench-nightly: $(STAMP) ## false alarms and detection of nightly verdicts beside other rules, simulated: some minutes
	@$(BIN)/python -m benchmarks.bench_nightly --markdown
	@$(BIN)/python -m benchmarks.bench_creep --markdown

bench-coverage: $(STAMP) ## how often intervals and verdicts are wrong, simulated: some minutes
	@$(BIN)/python -m benchmarks.bench_coverage --markdown
	@$(BIN)/python -m benchmarks.bench_sequential --markdown
	@$(BIN)/python -m benchmarks.bench_coverage_history --markdown
	@$(BIN)/python -m benchmarks.bench_coverage_steps --markdown
	@$(BIN)/python -m benchmarks.bench_parity --markdown

bench-scale: $(STAMP) ## what plan, show, report, resume and publishing take with 1,000 and 5,000 finished trials, and a site of 365 nights: some minutes (SCALE=options)
	@$(BIN)/python -m benchmarks.bench_scale --trials 1000 5000 --flow 1000 $(SCALE)
	@$(BIN)/python -m benchmarks.bench_site --cells 500 --nights 365

lock: ## write requirements.lock anew from pyproject.toml (LOCK_TORCH=version)
	@rm -rf build/lock && mkdir -p build && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -qq --dry-run --ignore-installed --report build/lock/report.json "torch==$(LOCK_TORCH)" ".[dev,postgresql]"
	$(PYTHON) .ci/lock.py < build/lock/report.json > build/lock/requirements.lock
	mv build/lock/requirements.lock requirements.lock
	sed -i 's/^torch==.*/torch==$(LOCK_TORCH)/' requirements-torch.lock
	@rm -rf build/lock

pin-images: ## pin the base images of cluster/images by digest; needs their registries
	@$(PYTHON) .ci/pin_images.py

clean: ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) $(GAUDI) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(STAMP): requirements.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 12) else 1)' 2>/dev/null || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there); sweepbench needs Python 3.11 or 3.12: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "making $(VENV) from requirements.lock: some minutes, once"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --no-compile --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --no-compile --prefer-binary -r requirements-torch.lock
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # as pip would, but on all cores; some packages ship files that do not compile
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@$(BIN)/python -m cluster.stack.empty_database
	@touch $@

# optimum-habana needs transformers 4.55, so it has an environment of its own. The emulated device is compiled here, once
$(GAUDI_STAMP): requirements-gaudi.lock requirements-torch.lock $(GAUDI_SOURCES) | $(STAMP)
	@command -v c++ >/dev/null || { echo "error: the emulated device is C++: a compiler is needed (on Debian and Ubuntu: apt install g++)" >&2; exit 1; }
	@echo "making $(GAUDI) from requirements-gaudi.lock: some minutes, once"
	@[ -x $(GAUDI)/bin/python ] || $(PYTHON) -m venv $(GAUDI)
	@$(GAUDI)/bin/python -m pip install -qq --no-compile --no-deps --require-hashes -r requirements-gaudi.lock
	@$(GAUDI)/bin/python -m pip install -qq --no-compile --no-deps --prefer-binary -r requirements-torch.lock
	@# Beside CUDA, torch takes no device of another kind, and PyPI's build for Linux is that of CUDA
	@! $(GAUDI)/bin/python -m pip show torch | grep '^Requires:.*nvidia' >/dev/null || \
	  $(GAUDI)/bin/python -m pip install -qq --no-compile --no-deps --force-reinstall --index-url $(TORCH_CPU_INDEX) -r requirements-torch.lock || \
	  { echo "error: the emulated device needs torch's CPU build, which pip did not get from $(TORCH_CPU_INDEX): name an index that has it, make test-gaudi TORCH_CPU_INDEX=URL" >&2; exit 1; }
	@mkdir -p build && rm -rf build/habana_emulator && cp -R tests/habana_emulator build/habana_emulator  # what pip builds stays out of tests/
	@$(GAUDI)/bin/python -m pip install -qq --no-deps --no-build-isolation --force-reinstall ./build/habana_emulator
	@$(GAUDI)/bin/python -m compileall -qq -j 0 $(GAUDI)/lib || true
	@touch $@

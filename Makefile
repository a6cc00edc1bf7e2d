# Every target sets up what it needs in .venv, and is quick the second time. PYTHON=python3.12 takes
# another interpreter, which has an environment of its own.
PYTHON ?= python3
ifneq ($(PYTHON),python3)
override PYTHON := $(shell .ci/interpreters $(PYTHON))
VENV   ?= .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
endif
VENV   ?= .venv
VENV   := $(VENV)
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
export PATH := $(abspath $(BIN)):$(PATH)

EXTENSION := setup.py $(wildcard src/wheelsched/*.pyx src/wheelsched/aio/*.pyx \
	src/wheelsched/_engine/* src/wheelsched/_classes/*)
WHEEL_TESTS := tests/unit/wheel tests/unit/aio tests/property/test_wheel.py tests/property/test_aio.py

.DEFAULT_GOAL := help
.PHONY: help setup proto demo quick test proof test-long test-asan test-postgres test-ha sim faults fuzz audit bench bench-full bench-peers
.PHONY: lint types dist wheels check clean walk test-package test-interpreters

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.built ## create .venv and build the extension

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group build
	$(BIN)/python -m pip install --quiet --no-build-isolation --group dev --editable '.[server]'
	@touch $@

# An installation builds the extension itself: what is older than it is built.
$(VENV)/.built: $(VENV)/.installed $(EXTENSION)
	@test -z "$$(find $(EXTENSION) -newer $<)" || $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

proto: setup ## derive the gRPC descriptor and stub from src/wheelsched/v1/dispatcher.proto
	cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --pyi_out=. \
	--descriptor_set_out=wheelsched/v1/dispatcher.binpb wheelsched/v1/dispatcher.proto

demo: setup ## 20,000 jobs at one instant, a shard killed in the middle, and what arrived
	$(BIN)/wheelsched demo

# Two more than there are cores: what waits for a lease to end needs none. The order is that of
# `tests/conftest.py`: the longest first.
CORES   := $(shell nproc 2>/dev/null || echo 2)
SPREAD  := -n $(shell expr $(CORES) + 2) --dist loadfile --no-loadscope-reorder
IN_TEST := not long and (smoke or not proof)
# On the shared machines of CI a failed test runs once more; the summary names it, as a fault to find.
RERUNS  := $(if $(CI),--reruns 1 --rerun-show-tracebacks -r aR)
LONG_TIMEOUT := -o timeout=1200  # a test that takes a minute may take ten on a busy machine

quick: setup ## the unit tests, a minute on two cores
	$(PYTEST) -m "$(IN_TEST)" -n $(CORES) --dist loadfile tests/unit

test: setup ## the tests, four minutes on two cores
	$(PYTEST) -m "$(IN_TEST)" $(RERUNS) $(SPREAD)

proof: setup ## what takes longer: the soak, simulated clusters, faults and processes; see CONTRIBUTING.md
	$(PYTEST) -m "proof and not smoke and not long" $(LONG_TIMEOUT) $(RERUNS) $(SPREAD)

walk: setup ## the path of one run through the code: module, function, in order
	@$(BIN)/python -m tests.walk

test-long: setup ## the tests with many more cases each: hours
	HYPOTHESIS_PROFILE=long $(PYTEST)

# The wheel is compiled, and the package is built, for each interpreter anew.
test-package: setup ## the tests of the timing wheel and of the packages, for PYTHON=python3.12
	$(PYTEST) -m "not long" $(LONG_TIMEOUT) $(RERUNS) $(SPREAD) $(WHEEL_TESTS) tests/e2e/test_packaging.py

test-interpreters: ## test-package on every interpreter of this machine but the default one
	@set -e; default=$$($(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	for python in $$(.ci/interpreters); do \
	case $$python in */$$default) ;; *) $(MAKE) PYTHON=$$python test-package;; esac; done

test-postgres: setup ## the store's tests on Postgres 15 to 18, five minutes each; VERSIONS="15 17"
	$(BIN)/python -m tests.servers $(VERSIONS)

# The sanitized extension is built beside the sources, in a copy of its own.
test-asan: setup ## the wheel's tests on a build with the address and undefined-behaviour sanitizers
	rm -rf build/asan && mkdir -p build/asan/src && cp -r src/wheelsched build/asan/src/
	find build/asan/src -name '*.so' -delete -o -name '*.c' -delete
	cp setup.py pyproject.toml README.md LICENSE build/asan/
	cd build/asan && WHEELSCHED_SANITIZE=1 $(abspath $(BIN))/python setup.py --quiet build_ext --inplace
	@nm -D build/asan/src/wheelsched/_wheel.*.so | grep -q __asan_init
	PYTHONPATH=build/asan/src PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	$(PYTEST) -m "not long" -p no:cacheprovider -o timeout=3000 $(WHEEL_TESTS)

sim: setup ## 10,000 simulated clusters, and the wheels against their models; SEEDS=1 FIRST=4711
	SIM_SEEDS=$(or $(SEEDS),10000) SIM_FIRST=$(or $(FIRST),0) $(PYTEST) -s tests/sim tests/checker
	HYPOTHESIS_PROFILE=long $(PYTEST) tests/property/test_wheel.py tests/property/test_aio.py

faults: setup ## every fault on real processes, 40 minutes; ONLY=SIGSTOP SOAK=3600 HOT=100000 MILLION=1000000
	FAULTS_SOAK=$(or $(SOAK),180) FAULTS_HOT=$(or $(HOT),100000) \
	FAULTS_MILLION=$(or $(MILLION),1000000) FAULTS_BACKLOG=$(or $(BACKLOG),100000) \
	$(BIN)/python -m tests.faults --only "$(ONLY)" --table build/faults.md

test-ha: setup ## Postgres that fails over: Patroni, etcd and three servers, 20 minutes; ONLY=frozen
	$(BIN)/python -m tests.ha --only "$(ONLY)" --table build/ha.md
	$(PYTEST) -m long tests/ha/test_mutants.py

# Minutes find little that the tests do not; SECONDS=3600 is a night for all of them.
FUZZ := bodies job patch bulk schedule small callback
fuzz: setup ## what strangers send, led by the code itself; SECONDS=10 each, ONLY=schedule
	@$(BIN)/python -c 'import atheris' 2>/dev/null || { \
	echo 'atheris is missing: $(BIN)/python -m pip install --group fuzz' >&2; exit 1; }
	@mkdir -p build/fuzz
	set -e; for target in $(or $(ONLY),$(FUZZ)); do \
	$(BIN)/python -m tests.fuzz.run $$target -max_total_time=$(or $(SECONDS),10) -timeout=20 \
	-artifact_prefix=build/fuzz/$$target- -verbosity=0 -print_final_stats=1; done

# In an environment of its own: what audits is not to be among what is audited.
AUDIT := build/audit/bin
audit: setup ## the dependencies against the advisories that are known; asks a service on the network
	@test -x $(AUDIT)/pip-audit || { $(PYTHON) -m venv build/audit \
	&& $(AUDIT)/python -m pip install --quiet --upgrade pip \
	&& $(AUDIT)/python -m pip install --quiet --group audit; }
	$(AUDIT)/pip-audit --strict --skip-editable --progress-spinner off --timeout 15 \
	--path $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	|| { echo 'not audited, or not clean: see above' >&2; exit 1; }

BENCH := cd benchmarks && ../$(BIN)/python -m pytest -o addopts= --tb=short \
	--benchmark-columns=min,median,rounds --benchmark-sort=name
SHORT := $(filter-out bench_peers.py,$(notdir $(wildcard benchmarks/bench_*.py)))

bench: setup ## the benchmarks, some minutes; ONLY=wheel runs one of them
	$(BENCH) $(if $(ONLY),bench_$(ONLY).py,$(SHORT))

# Each goes on when the one before has missed a target or failed; what it left is in results/.
bench-full: setup ## the benchmarks at the sizes they are designed for: hours, and 20 GB of disk
	-$(BENCH) bench_wheel.py bench_loop.py bench_calls.py bench_schedule.py bench_dispatch.py bench_link.py
	-export WHEELSCHED_BENCH_TIMERS=2000000 WHEELSCHED_BENCH_RUNS=100000; $(BENCH) bench_store.py
	-export WHEELSCHED_BENCH_RUNS=20000,100000,500000; $(BENCH) bench_hot_second.py
	-export WHEELSCHED_BENCH_SECONDS=60; $(BENCH) bench_lateness.py
	-export WHEELSCHED_BENCH_RUNS=20000,100000 WHEELSCHED_BENCH_SECONDS=60; $(BENCH) bench_queues.py
	-export WHEELSCHED_BENCH_RATE=2800 WHEELSCHED_BENCH_SECONDS=300; $(BENCH) bench_steady.py
	-export WHEELSCHED_BENCH_TIMERS=167000; $(BENCH) bench_takeover.py
	-$(BENCH) bench_api.py bench_reads.py
	-export WHEELSCHED_BENCH_SECONDS=30; $(BENCH) bench_api_load.py
	-export WHEELSCHED_BENCH_JOBS=10000000; $(BENCH) bench_restart.py

PEERS := build/peers
PYTHON_PEERS := procrastinate pgqueuer apscheduler3 apscheduler4
NODE_PEERS := pg-boss graphile-worker

$(PYTHON_PEERS:%=$(PEERS)/%/.installed): $(PEERS)/%/.installed: benchmarks/peers/python/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

$(NODE_PEERS:%=$(PEERS)/%/.installed): $(PEERS)/%/.installed: benchmarks/peers/npm/%/package-lock.json
	mkdir -p $(@D) && cp $(<D)/package.json $< $(@D)
	cd $(@D) && npm ci --no-audit --no-fund
	@touch $@

# One that cannot be installed is shown as failed.
bench-peers: setup ## what others do, on the same Postgres, with the same work: half an hour
	-$(MAKE) --keep-going $(PYTHON_PEERS:%=$(PEERS)/%/.installed) $(NODE_PEERS:%=$(PEERS)/%/.installed)
	$(BENCH) bench_peers.py

lint: setup ## ruff, cython-lint and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/cython-lint src
	$(BIN)/lint-imports --no-logo

types: setup ## mypy, and the stubs of the extensions against the extensions
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest wheelsched._wheel wheelsched.aio._callbacks

dist: setup ## build the sdist and the wheel
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

wheels: setup ## the sdist, and a wheel for each interpreter of this machine
	rm -rf dist build/wheels
	$(BIN)/python -m build --no-isolation --sdist --outdir dist
	set -e; for python in $$(.ci/interpreters); do \
	$$python -m venv --clear build/wheels; \
	build/wheels/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist dist/*.tar.gz; done
	@ls dist

check: setup ## what CI runs: lint, types, packages, test and proof, in 15 minutes on two cores
	$(MAKE) --jobs=2 --output-sync types dist lint
	$(MAKE) test
	$(MAKE) proof

clean: ## remove everything that was built
	rm -rf .venv .venv-* build dist src/*.egg-info
	find src -name '*.so' -delete -o -name '*.c' -delete

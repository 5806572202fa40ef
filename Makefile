# Every target installs what it lacks (scripts/setup says what and how) and
# then does its work; nothing else has to be run first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A toolchain that rustup put into the home directory is found without a new login.
export PATH := $(HOME)/.cargo/bin:$(PATH)
export CARGO_TERM_COLOR ?= auto

PYTHON := .venv/bin/python
DEBUG_BINARY := $(CURDIR)/target/debug/forebay
RELEASE_BINARY := $(CURDIR)/target/release/forebay

.PHONY: help
help: ## This list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 22

.PHONY: build
build: ## The binary, for use: target/release/forebay
	@scripts/setup build
	@echo 'building the release binary (some minutes the first time, seconds after)'
	cargo build --release --locked -p forebay

.PHONY: demo
demo: ## The main job on real flights: push, serve, push again under readers, diff, roll back
	@echo 'building forebay (some minutes the first time, seconds after)'
	scripts/setup demo cargo build --locked -p forebay
	@FOREBAY=$(DEBUG_BINARY) $(PYTHON) scripts/demo.py
	@echo "  These are times of a build for development; 'make demo-release' has those of one for use."

.PHONY: demo-release
demo-release: ## The same with the release binary
	@echo 'building the release binary (some minutes the first time, seconds after)'
	scripts/setup demo cargo build --release --locked -p forebay
	@FOREBAY=$(RELEASE_BINARY) $(PYTHON) scripts/demo.py

.PHONY: demo-cluster
demo-cluster: ## Five nodes in three zones: pushes, a node that dies, two tables swapped at once, under readers
	@echo 'building forebay (some minutes the first time, seconds after)'
	scripts/setup demo cargo build --locked -p forebay
	@FOREBAY=$(DEBUG_BINARY) $(PYTHON) scripts/demo_cluster.py
	@echo "  These are times of a build for development."

# Compiles the tests and the binary, and installs what they need meanwhile; then the Python package.
.PHONY: test-build
test-build:
	scripts/setup test,orchestration cargo test --workspace --locked --no-run
	cargo build --locked -p forebay
	scripts/wheel .venv .venv-orchestration

.PHONY: test
test: test-build ## Every test: Rust, the short run of the fuzz targets, the binary as its users use it, Python, the examples
	scripts/suite

.PHONY: test-fast
test-fast: ## Unit tests and simulators of all crates, 100 seeds of each: no servers, no Python
	@scripts/setup build
	FOREBAY_TEST_SEEDS=100 cargo test --workspace --locked --lib

.PHONY: test-nightly
test-nightly: test-build ## Every test there is, for the night and before a release: `make test` and those that it leaves out
	NIGHTLY=1 scripts/suite
	@$(MAKE) --no-print-directory test-large test-clients
	@$(MAKE) --no-print-directory test-failovers test-kills RESULTS=target/nightly
	@$(MAKE) --no-print-directory test-seeds SEEDS=$(NIGHTLY_SEEDS)
	FOREBAY_TEST_ROUNDS=$(NIGHTLY_ROUNDS) cargo test --locked -p forebay-engine --test engine live::

# Rounds, and busy processes beside them.
N ?= 10
LOAD ?= 8

.PHONY: test-shaken
test-shaken: test-build ## Every test N times with LOAD busy processes beside them, until one fails (N=10 LOAD=8)
	scripts/shaken --rounds $(N) --load $(LOAD)

.PHONY: test-binary
test-binary: ## Only the tests that drive the built binary (ARGS='-k swap' picks some)
	scripts/setup test cargo build --locked -p forebay
	FOREBAY=$(DEBUG_BINARY) scripts/pytest tests $(ARGS)

.PHONY: test-python
test-python: ## Only the tests of the Python package, installed from its wheel
	@scripts/setup test
	scripts/wheel .venv
	scripts/pytest python/tests $(ARGS)

.PHONY: test-orchestration
test-orchestration: ## Only the tests of examples/ (cron, dbt, Dagster, Airflow), in an environment of their own
	@scripts/setup orchestration
	scripts/wheel .venv-orchestration
	scripts/pytest tests/orchestration $(ARGS)

.PHONY: test-fuzz
test-fuzz: ## Only the short run of the fuzz targets (FOREBAY_FUZZ_SEED=n repeats one)
	@scripts/setup build
	cargo test --locked --workspace --test short

.PHONY: test-large
test-large: ## Tests that need 15 GiB of disk and some minutes; not part of `make test`
	scripts/setup test cargo build --release --locked -p forebay
	FOREBAY=$(RELEASE_BINARY) FOREBAY_TEST_LIMIT_S=1200 $(PYTHON) -m pytest tests/large $(ARGS)

.PHONY: test-clients
test-clients: ## Clients of Redis Cluster against five nodes that die and come back; not part of `make test` (ARGS='jedis ioredis' picks some)
	@scripts/setup clients
	cargo build --locked -p forebay
	FOREBAY=$(DEBUG_BINARY) $(PYTHON) tests/clients/run.py $(ARGS)

# Of Feast's tests; two of its own DynamoDB want a container.
FEAST_TESTS := online_store/test_universal_online.py online_store/test_universal_online_types.py online_store/test_universal_e2e.py \
  online_store/test_push_features_to_online_store.py materialization/test_universal_materialization.py offline_store/test_universal_materialization.py

.PHONY: test-feast
test-feast: ## Feast's own tests of online stores, from a checkout of Feast (FEAST=DIR), with its engine and ours; not part of `make test`
	@test -d "$(FEAST)/sdk/python/tests" || { echo "make test-feast FEAST=DIR: DIR is a checkout of Feast"; exit 2; }
	@scripts/setup feast
	scripts/wheel .venv-feast
	for engine in '' forebay.feast.ForebayEngine; do \
	  (cd "$(FEAST)/sdk/python" && FOREBAY_FEAST_ENGINE=$$engine FULL_REPO_CONFIGS_MODULE=feast_universal PYTHONPATH=$(CURDIR)/python/tests:. \
	    $(CURDIR)/.venv-feast/bin/python -m pytest -c pytest.ini -p no:cacheprovider -p feast_universal -W ignore --integration -q \
	    -k 'not dynamo' $(ARGS) $(addprefix tests/integration/,$(FEAST_TESTS))); \
	done

# Where test-failovers and test-kills leave their tables.
RESULTS ?= bench/results

.PHONY: test-failovers
test-failovers: ## 50 failovers of a live table under three client libraries, ten minutes; not part of `make test` (ARGS='--failovers 6 --seed 1')
	scripts/setup test cargo build --release --locked -p forebay
	@mkdir -p $(RESULTS)
	FOREBAY=$(RELEASE_BINARY) $(PYTHON) tests/failovers.py --results $(RESULTS)/$$(date +%F)-live-failovers.md $(ARGS)

.PHONY: test-kills
test-kills: ## 40 kills of nodes while plans of every kind are carried out, a quarter of an hour; not part of `make test` (ARGS='--kills 6 --seed 1')
	scripts/setup test cargo build --release --locked -p forebay
	@mkdir -p $(RESULTS)
	FOREBAY=$(RELEASE_BINARY) FOREBAY_TEST_LIMIT_S=300 $(PYTHON) tests/kills.py --results $(RESULTS)/$$(date +%F)-plans-killed.md $(ARGS)

# Of the replicas' simulator; the slower ones run fewer.
SEEDS ?= 100000
NIGHTLY_SEEDS ?= 20000
# Of the engine's lives under faults.
NIGHTLY_ROUNDS ?= 500
SEED_RUNS := sim_tests::runs::all_invariants_hold_for_every_seed

.PHONY: test-seeds
test-seeds: ## Many seeds of the simulators, for the night: half an hour of two cores (SEEDS=n for others than 100000); not part of `make test`
	scripts/setup build
	FOREBAY_TEST_SEEDS=$(SEEDS) cargo test --locked -p forebay-replica --lib $(SEED_RUNS) -- --nocapture
	FOREBAY_TEST_SEEDS=$$(($(SEEDS) / 25)) cargo test --locked -p forebay-replica --lib sim_tests::runs::the_real_engine_keeps_every -- --nocapture
	FOREBAY_TEST_SEEDS=$$(($(SEEDS) / 10)) cargo test --locked -p forebay-cluster --lib hold_for_every_seed -- --nocapture

# Nothing where clippy compiles the tests (.ci/run).
CLIPPY ?= cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: lint
lint: ## Formatting, clippy, licences and sources of dependencies, the repository's own lints, deploy/
	scripts/setup lint $(CLIPPY)
	cargo fmt --all --check
	PATH="$(CURDIR)/.venv-lint/bin:$$PATH" cargo deny --log-level error check licenses bans sources
	.venv-lint/bin/ruff check --quiet scripts tests python examples
	.venv-lint/bin/ruff format --check --quiet python examples
	.venv-lint/bin/pyright --pythonpath $(PYTHON) --project python
	MYPYPATH=python .venv-lint/bin/mypy --python-executable $(PYTHON) --strict --follow-imports silent \
	  --ignore-missing-imports --cache-dir target/mypy python/tests/typed
	scripts/lint-repository
	@$(MAKE) --no-print-directory check-deploy

.PHONY: check-deploy
check-deploy: ## The alert rules and their tests, the systemd unit, the container file, the Kubernetes manifest
	@scripts/setup deploy
	@scripts/check-deploy

.PHONY: advisories
advisories: ## Known vulnerabilities of dependencies; fetches the advisory database
	@scripts/setup lint
	PATH="$(CURDIR)/.venv-lint/bin:$$PATH" cargo deny check advisories

.PHONY: fmt
fmt: ## Formats every Rust file
	@scripts/setup lint
	cargo fmt --all

# The bench-* targets.
-include bench/bench.mk

# The side-by-side figures. Each is one command: it installs the peers, makes its data once (under
# bench/data), runs all contenders and writes bench/results/DATE-NAME.{json,md,svg}.
# TRIAL=1 takes a tenth of the records and one round, and writes under bench/data/trial instead.

BENCH_PYTHON := bench/.venv/bin/python
BENCH_ARGS := $(if $(TRIAL),--trial) $(ARGS)

.PHONY: bench-setup
bench-setup: ## What the bench-* targets need: peers, Python and Java packages, the harness itself
	@bench/setup

.PHONY: bench-read
bench-read: bench-setup ## Warm and cold gets in process beside cdb, LMDB, RocksDB, redb, Sparkey, Spock's format
	@$(BENCH_PYTHON) bench/driver/bench_read.py $(BENCH_ARGS)

.PHONY: bench-build
bench-build: bench-setup build ## Building stores, MariaDB's LOAD DATA (the paper's figure 7), Parquet to serving
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_build.py $(BENCH_ARGS)

.PHONY: bench-sources
bench-sources: build ## Pushes of Parquet, CSV, JSON lines, in turn with an older binary (BASELINE=FILE); parts of a push
	@bench/setup plan
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_sources.py $(BENCH_ARGS)

.PHONY: bench-profiles
bench-profiles: ## Builds of the binary in turn: pushes, GETs, live writes (BINARIES='now=FILE other=FILE')
	@bench/setup plan
	@$(BENCH_PYTHON) bench/driver/bench_profiles.py $(BENCH_ARGS)

.PHONY: bench-server
bench-server: bench-setup build ## The server beside Redis, memory that must stay, swaps and pushes under load
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_server.py $(BENCH_ARGS)

.PHONY: bench-live
bench-live: bench-setup build ## Random upserts, counting, the server's writes, beside RocksDB, fjall, LMDB, redb, Redis
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_live.py $(BENCH_ARGS)

.PHONY: bench-plan
bench-plan: build ## The planners: plans beside the optimum and bounds, placements as the paper's, times
	@bench/setup plan
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_plan.py $(BENCH_ARGS)
	@$(BENCH_PYTHON) bench/driver/bench_placement.py $(BENCH_ARGS)

.PHONY: bench-distributed
bench-distributed: build ## S3 beside plain copies, captures, the bulk insertion paper's table 1 on Spark, beside Parquet
	@bench/setup distributed
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_distributed.py $(BENCH_ARGS)

.PHONY: bench-cluster
bench-cluster: build ## Swaps through five nodes, bytes from the bucket, forwarded reads, reads while nodes move, beside Redis Cluster
	@bench/setup cluster
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_cluster.py $(BENCH_ARGS)

.PHONY: bench-insert
bench-insert: build ## Bulk insertion into a live cluster: planned, unplanned, rows one at a time; who waits; a partition moved
	@bench/setup cluster
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_insert.py $(BENCH_ARGS)

.PHONY: bench-place
bench-place: build ## The placement paper's workloads on a cluster: the layout it makes by itself, placement by load, loads that shift
	@bench/setup cluster
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_place.py $(BENCH_ARGS)

.PHONY: bench-cores
bench-cores: build ## How pushes, reads and writes grow with the processors
	@bench/setup cluster
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_cores.py $(BENCH_ARGS)

.PHONY: bench-requests
bench-requests: build ## Requests of pushes and idle nodes to an object store, what they cost, how soon nodes serve a swap
	@bench/setup cluster
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_requests.py $(BENCH_ARGS)

.PHONY: bench-python
bench-python: ## From Python: get, get_many, scans beside py-lmdb, sqlite3, redis-py, a dict, DuckDB; what other threads wait for
	@bench/setup python
	@$(BENCH_PYTHON) bench/driver/bench_python.py $(BENCH_ARGS)

.PHONY: bench-feast
bench-feast: build ## Feast's online stores: a million rows materialised, reads of 100 entities, beside SQLite and Redis
	@bench/setup feast
	@FOREBAY=$(RELEASE_BINARY) $(BENCH_PYTHON) bench/driver/bench_feast.py $(BENCH_ARGS)

.PHONY: bench-clean
bench-clean: ## Removes the data sets and stores that the benchmarks keep under bench/data
	rm -rf bench/data

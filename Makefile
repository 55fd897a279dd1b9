# Penstock's commands. Each makes the environment that it needs; the first run of each fetches and compiles, later runs
# and other clones reuse that (uv's and cargo's caches, and ~/.cache/penstock).

PYTHON ?= python3
FUZZ_SECONDS ?= 600
CHAOS_SECONDS ?= 540
PYTEST_ARGS ?=
# Tests wait for servers and child processes: one worker more than cores keeps the cores busy.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The workers share servers and each runs whole files; the tests marked `alone` follow in one process.
PARALLEL = .venv-test/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
ALONE = .venv-test/bin/python -m pytest
# With PYTEST_ARGS, one of the two runs may select no test (pytest's exit code 5).
NONE = $(if $(PYTEST_ARGS),|| [ $$? -eq 5 ])
LOCKED := $(if $(CI),--locked)
# With TURBO=1, JPEG is decoded by libjpeg-turbo, whose assembler takes cmake and nasm to compile: in wheels, wherever they are.
FEATURES = $(if $(TURBO),--features turbo)
wheel: TURBO ?= $(shell command -v cmake >/dev/null && command -v nasm)

export PYTHON
unexport PYTHONDONTWRITEBYTECODE VIRTUAL_ENV PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help demo dev test test-cluster test-all coverage services lint format bench fuzz sanitize chaos docs wheel sdist lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build penstock and take the tour (light: no TensorFlow, no torch)
	@scripts/need rust
	@scripts/venv demo
	@wheel=$$($(PYTHON) scripts/wheel.py $(LOCKED)) && \
		scripts/uv pip install --quiet --python .venv-demo/bin/python --no-deps --reinstall-package penstock-data "$$wheel"
	@.venv-demo/bin/python examples/demo.py

test: ## run the quick tests, Rust and Python, against the real peers
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test --release $(LOCKED)
	$(PYTHON) scripts/shared.py cargo test --quiet $(LOCKED) -p penstock-core
	@$(PYTHON) -m services build
	$(PARALLEL) -m "not slow and not alone" $(PYTEST_ARGS) $(NONE)
	$(ALONE) -m "alone and not slow" $(PYTEST_ARGS) $(NONE)

test-cluster: ## run the tests that start several hosts: a Ray cluster, torch.distributed, jax.distributed
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test --release $(LOCKED)
	@$(PYTHON) -m services build
	.venv-test/bin/python -m pytest -m cluster $(PYTEST_ARGS)

test-all: ## run all the tests, the slow ones too
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test --release $(LOCKED)
	$(PYTHON) scripts/shared.py cargo test --quiet $(LOCKED) -p penstock-core
	@$(PYTHON) -m services build
	$(PARALLEL) -m "not alone and not cluster" $(PYTEST_ARGS) $(NONE)
	$(ALONE) -m "alone or cluster" $(PYTEST_ARGS) $(NONE)

coverage: ## run the quick tests and report the lines of Python that they reach, in build/coverage/html too
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test --release $(LOCKED)
	@$(PYTHON) -m services build
	@mkdir -p build/coverage
	$(PARALLEL) -m "not slow and not alone" --cov --cov-report= $(PYTEST_ARGS) $(NONE)
	$(ALONE) -m "alone and not slow" --cov --cov-append --cov-report=term --cov-report=html $(PYTEST_ARGS) $(NONE)

services: ## start a real S3, AIStore, nginx and emulators on loopback, until Ctrl-C (builds them the first time)
	@scripts/need
	@$(PYTHON) -m services

dev: ## compile the Rust quickly, unoptimized, into .venv-test: then run pytest there
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test

lint: ## check style and types: ruff, mypy, rustfmt, clippy
	@scripts/need rust lint
	@scripts/venv lint
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy
	cargo fmt --all --check
	$(PYTHON) scripts/shared.py cargo clippy --quiet $(LOCKED) --workspace --all-targets -- -D warnings

format: ## rewrite the sources in the project's style
	@scripts/need rust lint
	@scripts/venv lint
	.venv-lint/bin/ruff check --fix --exit-zero .
	.venv-lint/bin/ruff format .
	cargo fmt --all

bench: ## measure against the peers; fails when a promised ratio is missed
	@scripts/need rust test
	@scripts/venv test
	@scripts/venv peers
	@scripts/install test --release $(LOCKED) $(FEATURES)
	.venv-test/bin/python -m benchmarks $(BENCH_ARGS)

fuzz: ## fuzz every target for FUZZ_SECONDS (600) each, or for FUZZ_TOTAL seconds in all
	@scripts/need rust fuzz
	@$(PYTHON) scripts/fuzz.py $(if $(FUZZ_TOTAL),--total $(FUZZ_TOTAL),--each $(FUZZ_SECONDS))

chaos: ## kill builds, damage files, fill disks, rebuild under readers, for CHAOS_SECONDS (540) in all
	@scripts/need rust test
	@scripts/venv test
	@scripts/install test --release $(LOCKED)
	@$(PYTHON) -m services build
	.venv-test/bin/python -m chaos --seconds $(CHAOS_SECONDS) $(CHAOS_ARGS)

sanitize: ## run the core's tests under ThreadSanitizer and AddressSanitizer, and the Python tests on the latter
	@scripts/need rust test
	@scripts/venv test
	@$(PYTHON) scripts/sanitize.py $(SANITIZERS)

docs: ## build the documentation into site/
	@scripts/need
	@scripts/venv docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

wheel: ## build the wheel, for any Python from 3.10 on, into dist/
	@scripts/need rust
	@scripts/venv demo
	@mkdir -p dist && wheel=$$($(PYTHON) scripts/wheel.py $(LOCKED) $(FEATURES)) && cp "$$wheel" dist/ && echo "dist/$${wheel##*/}"

sdist: ## pack the sources, from which pip builds, into dist/
	@scripts/need rust
	@scripts/venv demo
	@mkdir -p dist && .venv-demo/bin/maturin sdist --out dist

lock: ## choose the newest versions of what we test and build with
	@scripts/need
	scripts/lock

clean: ## remove what was made in this clone (the shared cache stays)
	rm -rf .venv-* build dist site target fuzz/target .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f src/penstock/_core*.so
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

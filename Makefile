# Everything a clone of Attune can be asked to do. `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help up test test-external check bench chaos soak upgrade console fmt lock clean setup setup-dev

SHELL := /bin/sh
PYTHON := python3
BIN := .venv/bin
PARALLEL := 2

# What the targets take: make up ARGS="--detach --port 9000", make test ARGS="-k outbox", make chaos SEED=7
ARGS :=
SEED :=
MINUTES :=
TRANSPORT :=
RATE :=
FROM :=

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 22

up: setup ## install what is needed and start Attune (ARGS="--detach --port 8080")
	@./attune up $(ARGS)

test: setup-dev ## run every test, on real PostgreSQL and RabbitMQ (ARGS="-k words")
	@$(PYTHON) tools/unpack.py rabbitmq >/dev/null || echo "make test: goes on without RabbitMQ"
	@for name in podman docker busybox-static; do \
	  $(PYTHON) tools/unpack.py $$name >/dev/null || echo "make test: goes on without $$name"; done
	@$(BIN)/python tools/unpack.py node >/dev/null || echo "make test: goes on without Node"
	@$(BIN)/pytest -n $(PARALLEL) -m "not external" $(ARGS)

test-external: setup-dev ## run the journeys on PostgreSQL 15 and RabbitMQ, both started by the tests
	@$(PYTHON) tools/unpack.py rabbitmq >/dev/null
	@$(PYTHON) tools/unpack.py postgresql-15 >/dev/null
	@$(BIN)/pytest -n $(PARALLEL) -m "external" $(ARGS)

check: setup-dev ## formatting, lint, types, layers, dependencies, tidiness
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy src tests tools bench
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/deptry .
	@$(BIN)/pytest -q tests/domain tests/test_tidy.py

bench: setup-dev ## measure Attune and its peers, kept in bench/results (ARGS="--quick", ARGS="--only W1,W2 --without peers")
	@$(BIN)/python -m bench.run $(ARGS)

chaos: setup-dev ## harm a platform while work flows (SEED= MINUTES= TRANSPORT=postgres|rabbitmq ARGS="--control")
	@$(BIN)/python -m tests.chaos.run --seed "$(SEED)" --minutes "$(MINUTES)" --transport "$(TRANSPORT)" $(ARGS)

soak: setup-dev ## work at an even pace and say what grows (MINUTES=60 RATE=50 TRANSPORT=postgres|rabbitmq)
	@$(BIN)/python -m tests.soak.run --minutes "$(MINUTES)" --rate "$(RATE)" --transport "$(TRANSPORT)" $(ARGS)

upgrade: setup-dev ## replace an older version by this one under load (FROM=revision MINUTES= TRANSPORT=)
	@$(BIN)/python -m tests.upgrade.run --from "$(FROM)" --minutes "$(MINUTES)" --transport "$(TRANSPORT)" $(ARGS)

console: setup ## build the web console
	@tools/when-present.sh console/package.json "The web console" $(MAKE) -C console build

fmt: setup-dev ## format the code and repair what lint can repair
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format .

lock: setup ## write the requirement locks afresh from pyproject.toml (ARGS=--upgrade)
	@$(PYTHON) tools/setup.py lock $(ARGS)

clean: ## remove the environment, caches and builds (not a platform's data)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

setup:
	@$(PYTHON) tools/setup.py runtime

setup-dev:
	@$(PYTHON) tools/setup.py dev

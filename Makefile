# Every target does the set-up it needs; ARGS="..." is passed on to the program behind a target.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
WORKERS ?= 2
NATIVE := src/ottla/records/_native.abi3.so

.DEFAULT_GOAL := help
.PHONY: help install native demo demo-cdc demo-cluster test check format bench compat simulate chaos soak kills clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(VENV)/.with-ottla ## Install the package and the `ottla` command into .venv
	@echo "Installed: $(BIN)/ottla"

native: $(NATIVE) ## Compile what is in C, in place; without a compiler Ottla does without

demo: $(VENV)/.with-demo ## Send 336,776 flights through the log and Spark, and out again
	@$(BIN)/python -m tests.support.requirements java
	@$(BIN)/ottla demo $(ARGS)

demo-cdc: $(VENV)/.with-cdc ## Take a database through topics and Spark into another one, and kill all of it once
	@$(BIN)/python -m tests.support.requirements java postgres
	@$(BIN)/ottla connect demo $(ARGS)

demo-cluster: $(VENV)/.with-ottla ## Kill brokers of a cluster under load, and count what is lost
	@$(BIN)/python -m tests.support.requirements java
	@$(BIN)/ottla cluster demo $(ARGS)

test: $(VENV)/.with-dev ## Run every test
	@$(BIN)/python -m tests.support.requirements java javac gcc mvn kcat postgres mariadbd
	@# As pip leaves a package: where PYTHONDONTWRITEBYTECODE is set, each of hundreds of processes compiles it all else.
	@$(BIN)/python -m compileall -qq src tests $(VENV)/lib || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --reruns 1 --reruns-delay 2 -raR $(ARGS)

soak: $(VENV)/.with-dev ## Run the tests that take minutes: clusters of processes, kills under Spark
	@$(BIN)/python -m tests.support.requirements java javac mvn kcat postgres
	$(BIN)/python -m pytest -m soak $(ARGS)

check: $(VENV)/.with-dev ## Check format, lint, types and the direction of the imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.with-dev ## Format, and mend what the linter can mend
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

bench: $(VENV)/.with-dev ## Measure Ottla beside Apache Kafka on this machine
	@$(BIN)/python -m tests.support.requirements java javac mvn postgres
	$(BIN)/python -m benches $(ARGS)

compat: $(VENV)/.with-dev ## Run the client suites of other projects against `ottla serve`
	@$(BIN)/python -m tests.support.requirements java javac mvn kcat
	$(BIN)/python -m pytest tests/compat $(ARGS)

simulate: $(VENV)/.with-dev ## Run two thousand simulated clusters, each from its seed
	$(BIN)/python -m tests.simulation --seeds 0:2000 --only-failures --summary $(ARGS)

chaos: $(VENV)/.with-dev ## Kill brokers and clients under load, and judge what the clients saw
	@$(BIN)/python -m tests.support.requirements java javac mvn
	$(BIN)/python -m tests.chaos $(ARGS)

kills: $(VENV)/.with-dev ## Kill a streaming query part by part, and count what it wrote
	@$(BIN)/python -m tests.support.requirements java
	$(BIN)/python -m tests.pipeline.kills $(ARGS)

clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) $(NATIVE) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist

# One stamp per set of dependencies, older than pyproject.toml when it must be done again.
$(VENV)/.with-ottla: pyproject.toml | $(BIN)/python $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.with-demo: pyproject.toml | $(BIN)/python $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[demo]'
	@touch $@ $(VENV)/.with-ottla

$(VENV)/.with-cdc: pyproject.toml | $(BIN)/python $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[connect,pipeline]'
	@touch $@ $(VENV)/.with-ottla

$(VENV)/.with-dev: pyproject.toml | $(BIN)/python $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[demo,test,dev]'
	@touch $@ $(VENV)/.with-ottla $(VENV)/.with-demo $(VENV)/.with-cdc

# Also rebuilt in an existing installation, so that the module fits a source that was just pulled.
$(NATIVE): src/ottla/records/_native.c hatch_build.py | $(BIN)/python
	@$(BIN)/python hatch_build.py

# The first interpreter on PATH (or PYTHON=...) that is new enough and can make a virtual environment.
$(BIN)/python:
	@for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3; do \
	    $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    echo "Creating $(VENV) with $$($$candidate --version)"; \
	    exec $$candidate -m venv --clear $(VENV); \
	done; \
	if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Python is new enough but has no venv module (Debian: apt-get install python3-venv)." >&2; \
	else \
	    found=$$(python3 --version 2>/dev/null) || found=none; \
	    echo "Ottla needs Python 3.11 or newer and found $$found" \
	        "(Debian 12 or newer: apt-get install python3 python3-venv; or make PYTHON=/path/to/python3.12 ...)." >&2; \
	fi; \
	exit 1

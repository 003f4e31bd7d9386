# Every target does the set-up it needs; ARGS="..." is passed on to the program behind a target.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Pytest's processes: most tests wait for brokers and virtual machines, so that two cores have work for four.
WORKERS ?= 4
# What the tests, compat and bench need of the system (tests/support/requirements.py names the packages).
PROGRAMS := java javac gcc Python.h mvn kcat postgres mariadbd prometheus chromium krb5kdc kinit
# The versions of all dependencies that this source is tested with.
LOCK := requirements/constraints.txt
NATIVE_SOURCES := src/ottla/records/_native.c src/ottla/spark/_columns.c src/ottla/connect/converters/_json.c \
    src/ottla/connect/connectors/relational/_copy.c
NATIVE := $(NATIVE_SOURCES:.c=.abi3.so)
# Installs Ottla with $(EXTRAS) and the versions of the lock: by uv, in a third of the time of pip, or by pip where uv
# does not run.
INSTALL = { $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(LOCK) --editable '.$(EXTRAS)'; } || \
	$(PIP) --use-pep517 --constraint $(LOCK) --editable '.$(EXTRAS)'
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Hundreds of processes would each compile every module, and pytest every test, where this is set.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install native demo demo-cdc demo-cluster programs unit test coverage check format bench compat simulate chaos soak kills docs dist lock clean

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
	@$(BIN)/ottla cluster demo $(ARGS)

programs: | $(BIN)/python ## Install the system packages that tests need, where this user may
	@$(BIN)/python -m tests.support.requirements --install $(PROGRAMS)

unit: $(VENV)/.with-dev ## Run the tests that need neither a system package nor the network, in about a minute
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak and not thorough" tests/unit $(ARGS)

test: programs $(VENV)/.with-dev ## Run every test; what this machine lacks is installed, or left out and named at the end
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20 $(ARGS)

soak: programs $(VENV)/.with-dev ## Run the tests that take minutes: clusters of processes, kills under Spark
	$(BIN)/python -m pytest -m soak $(ARGS)

# Tracing makes tests slower, so that none may time out, and those that compare times are left out.
coverage: $(VENV)/.with-dev ## Run all unit tests and measure coverage; a pure package below its threshold fails
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal -o timeout=600 -m "not soak and not timed" tests/unit $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/python -m tests.support.pure_coverage

check: $(VENV)/.with-dev ## Check format, lint, types and the direction of the imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers auto
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

docs: $(VENV)/.with-docs ## Build the documentation as a site in site/; a dead link or anchor fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "Built: site/index.html (read it with: python3 -m http.server -d site)"

dist: $(VENV)/.with-dev ## Build wheel and sdist in dist/, install each into an empty environment, and try it
	$(BIN)/python -m tools.dist $(ARGS)

lock: | $(BIN)/python ## Choose the versions of all dependencies anew, in requirements/constraints.txt (ARGS=--upgrade for newer ones)
	$(PIP) uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras --no-emit-package ottla --quiet \
	    --custom-compile-command "make lock" --output-file $(LOCK) $(ARGS)

clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) $(NATIVE) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist site

# One stamp per set of dependencies, older than pyproject.toml or the lock when it must be done again.
$(VENV)/.with-ottla: pyproject.toml $(LOCK) | $(BIN)/python $(NATIVE)
	$(INSTALL)
	@touch $@

$(VENV)/.with-demo: private EXTRAS := [demo]
$(VENV)/.with-demo: pyproject.toml $(LOCK) | $(BIN)/python $(NATIVE)
	$(INSTALL)
	@touch $@ $(VENV)/.with-ottla

$(VENV)/.with-cdc: private EXTRAS := [connect,pipeline]
$(VENV)/.with-cdc: pyproject.toml $(LOCK) | $(BIN)/python $(NATIVE)
	$(INSTALL)
	@touch $@ $(VENV)/.with-ottla

$(VENV)/.with-dev: private EXTRAS := [demo,test,dev]
$(VENV)/.with-dev: pyproject.toml $(LOCK) | $(BIN)/python $(NATIVE)
	$(INSTALL)
	@touch $@ $(VENV)/.with-ottla $(VENV)/.with-demo $(VENV)/.with-cdc

$(VENV)/.with-docs: private EXTRAS := [docs]
$(VENV)/.with-docs: pyproject.toml $(LOCK) | $(BIN)/python $(NATIVE)
	$(INSTALL)
	@touch $@ $(VENV)/.with-ottla

# Also rebuilt in an existing installation, so that the modules fit sources that were just pulled. All are compiled at once.
$(NATIVE): $(NATIVE_SOURCES) hatch_build.py | $(BIN)/python
	@test $@ -nt hatch_build.py -a $@ -nt $(@:.abi3.so=.c) || $(BIN)/python hatch_build.py

# The first interpreter on PATH (or PYTHON=...) that is new enough and can make a virtual environment. The targets that
# install what tests need install Debian's, where there is none and this user may.
$(BIN)/python:
	@make_venv() { \
	    for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3; do \
	        $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	        echo "Creating $(VENV) with $$($$candidate --version)"; \
	        exec $$candidate -m venv --clear $(VENV); \
	    done; \
	}; \
	make_venv; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root="sudo -n"; \
	if [ -n "$(filter programs test soak,$(MAKECMDGOALS))" ] && command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	    echo "Installing by apt-get: python3 python3-venv"; \
	    $$as_root apt-get -qq update >/dev/null; \
	    $$as_root apt-get -qq -y install --no-install-recommends python3 python3-venv >/dev/null; \
	    make_venv; \
	fi; \
	if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Python is new enough but has no venv module (Debian: apt-get install python3-venv)." >&2; \
	else \
	    found=$$(python3 --version 2>/dev/null) || found=none; \
	    echo "Ottla needs Python 3.11 or newer and found $$found" \
	        "(Debian 12 or newer: apt-get install python3 python3-venv; or make PYTHON=/path/to/python3.12 ...)." >&2; \
	fi; \
	exit 1

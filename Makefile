# Assumes Python 3.11 or newer, make and a shell. Everything else is installed into .venv, pinned by constraints.txt.

VENV := .venv
BIN := $(VENV)/bin
SOURCES := services libs clients tests
PROTO := $(wildcard libs/storage/src/holdfast/storage/*.proto services/*/src/holdfast/*/layer/*.proto)
PROTO_ROOTS := libs/storage/src $(wildcard services/*/src)
PINNED := pyproject.toml constraints.txt

# Hundreds of processes start in a test run: each reads compiled modules, also where the environment says not to write them.
unexport PYTHONDONTWRITEBYTECODE

# The environment variable, unlike -c, also pins what pip builds the package with.
PIP_INSTALL := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check

# $(call PROTOC,FOLDER) writes the generated code below FOLDER, as the tree has it; protoc finds its mypy plug-in by the PATH.
PROTOC = for proto in $(PROTO); do out="$(1)/$${proto%%/holdfast/*}" && mkdir -p "$$out" \
	&& PATH="$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc $(addprefix -I ,$(PROTO_ROOTS)) \
		--python_out="$$out" --mypy_out=quiet:"$$out" "$$proto" || exit 1; done

# Compose is a plug-in of docker, or a program of its own.
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.DEFAULT_GOAL := help
.PHONY: help setup serve test-fast test test-all test-compose lint format types proto sync-client bench bench-against docs wheels image up down clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/installed-dev ## Create .venv with everything that developing takes.

serve: $(VENV)/installed ## Run the plane on its embedded store, on loopback port 9341 (flags: make serve ARGS="--help").
	@exec $(BIN)/holdfast serve $(ARGS)

test-fast: setup ## Run the unit tests, the inner loop: no server, no child process.
	$(BIN)/python -m pytest -n 2 -m "not long" tests/unit $(ARGS)

test: setup ## Run the tests, with a PostgreSQL and a Redis that are found or started (one: make test ARGS="-k name").
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not long and not compose" $(ARGS)

test-all: setup ## Run all tests, also those that take minutes.
	$(BIN)/python -m pytest -m "not compose" --hypothesis-profile=searching $(ARGS)

test-compose: setup image ## Run the image and the plane as containers, and check it from outside; needs Docker with compose.
	$(BIN)/python -m pytest -m compose tests/system/containers/test_compose.py tests/system/containers/test_container.py $(ARGS)

lint: setup ## Check style, formatting, import contracts, and that the generated code is current.
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/lint-imports
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call PROTOC,$$fresh) \
		&& for name in $$(cd "$$fresh" && find . -type f); do \
			diff -u "$$name" "$$fresh/$$name" || { echo "$$name is not what its .proto makes: run make proto"; exit 1; }; done
	$(BIN)/python -m clients.python.generate_sync --check

format: setup ## Format the code and mend what can be mended by itself.
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

types: setup ## Check types with mypy and pyright, both strict.
	$(BIN)/mypy $(SOURCES)
	$(BIN)/pyright

proto: setup ## Write the generated code of the stored records anew.
	@$(call PROTOC,.)

sync-client: setup ## Write the blocking client of the SDK anew, from the asynchronous one.
	$(BIN)/python -m clients.python.generate_sync

bench: setup ## Measure every part and write docs/benchmarks.md (some: make bench ARGS="store frame"; which: ARGS=--help).
	$(BIN)/python -m tests.bench.main $(ARGS)

bench-against: setup ## Compare this tree with another commit, in turns (make bench-against REV=HEAD~1 ARGS="--shape split lock").
	$(BIN)/python -m tests.bench.against $(REV) $(ARGS)

docs: setup ## Write the tables of docs/reference from the code.
	$(BIN)/python -m holdfast.cli.reference

wheels: setup ## Put the package and everything it needs into dist/wheels, for an image that is built without the network.
	@# async-timeout is for images whose Python is older than 3.11.3, as Debian's.
	rm -rf dist/wheels && $(BIN)/python -m pip wheel --quiet --disable-pip-version-check -c constraints.txt -w dist/wheels \
		. async-timeout

image: wheels ## Build the container image of all roles (another base: make image BASE=image).
	docker build -f deploy/Containerfile $(if $(BASE),--build-arg BASE=$(BASE)) -t $(or $(HOLDFAST_IMAGE),holdfast-plane) .

up: deploy/.env ## Run the plane as five containers with PostgreSQL and Redis, on loopback port 9341 (first: make image).
	$(COMPOSE) -f deploy/compose.yaml --env-file deploy/.env up -d

down: ## Stop those containers; what PostgreSQL stored stays (remove it too: make down ARGS=-v).
	$(COMPOSE) -f deploy/compose.yaml --env-file deploy/.env down $(ARGS)

deploy/.env:
	@umask 077 && for name in POSTGRES_PASSWORD HOLDFAST_INTERNAL_SECRET; do \
		echo "$$name=$$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')"; done > $@ && echo "wrote $@ with new secrets"

clean: ## Remove .venv and every cache; stored data stays.
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: $(PINNED)
	@$(MAKE) --no-print-directory $(VENV)/python-is-there
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: $(PINNED)
	@$(MAKE) --no-print-directory $(VENV)/python-is-there
	$(PIP_INSTALL) -e '.[dev]'
	@touch $(VENV)/installed $@

# PYTHON=… names another interpreter. A half-made .venv (no pip in it) is made again.
.PHONY: $(VENV)/python-is-there
$(VENV)/python-is-there:
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then exit 0; fi; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$$python -m venv $(VENV)"; \
			"$$python" -m venv --clear $(VENV) && exit 0; \
			echo "error: $$python cannot make a virtual environment; install its venv module (Debian: python3-venv)" >&2; exit 1; \
		fi; \
	done; \
	echo "error: needs Python 3.11 or newer; found none among: $(or $(PYTHON),python3.11 python3.12 python3.13 python3). Name one: make PYTHON=/path/to/python3.11" >&2; exit 1

# Two commands on a fresh machine: `make run` and `make test`. `make help` lists the rest.
PYTHON ?= python3.11
# GPU users: make run TORCH='torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130'
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
BASELINE := protos/baseline.binpb
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help venv run test check parity proto baseline bench wheel

help: ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# torch comes first and pinned: the range in pyproject.toml is then satisfied and pip looks for no other build of it.
$(STAMP): pyproject.toml constraints.txt protos/specgrove/v1/*.proto
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q $(TORCH)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[test]'
	@touch $@

venv: $(STAMP) ## make .venv with everything in it

run: $(STAMP) ## start the server with the bundled models: HTTP on 8000, gRPC on 9000 (options: make run ARGS='--port 8080')
	$(BIN)/specgrove serve $(ARGS)

test: $(STAMP) ## run the tests, under ten minutes on two cores
	$(BIN)/python -m pytest -q $(ARGS)

check: $(STAMP) ## lint, format, types, import arrows, proto lint and breaking changes
	$(BIN)/ruff check cluster tests
	$(BIN)/ruff format --check cluster tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(BASELINE)

parity: $(STAMP) ## the long parity suite against the oracle
	$(BIN)/python -m pytest -q -m parity --timeout 3600 $(ARGS)

proto: venv ## generate cluster/specgrove/v1 from protos/ again
	$(BIN)/python -m pip install -q --no-deps -e .

baseline: proto ## at a release: remember the protos that later changes must not break
	$(BIN)/buf build -o $(BASELINE)

bench: $(STAMP) ## measure speed: make bench ARGS='--target DIR --draft DIR --json OUT'
	$(BIN)/specgrove bench speed $(ARGS)

wheel: $(STAMP) ## build dist/specgrove-*.whl
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

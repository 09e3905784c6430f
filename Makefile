# One folder, .venv, holds everything: `make demo` and `make test` need Python 3.11 or newer and g++, nothing else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The CUDA build of torch is several gigabytes; without a GPU the CPU build is enough. Set TORCH to say which.
TORCH  ?= torch>=2.11,<2.14
WORKERS ?= auto
# How many times as much `make test-long` draws as `make test`.
BUDGET  ?= 10
# What `make check-rules` draws, and which rules it looks at: the day decides. SEED=7 PART=1/1 checks every rule with seed 7.
SEED    ?= $(shell date -u +%Y%m%d)
PART    ?= $(shell expr $(SEED) % 4 + 1)/4
# A day's draw reaches some rules by few programs: it says so, and only what is wrong is red. THIN= asks for 20 of each.
THIN    ?= --allow-thin

# What Python compiles is kept: without it each of the processes that tests start would compile all files again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-browser test-models lint types check-rules check-schedules mutants manifest bench pages docs pictures gpu pack goldens dist clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dplc needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev,hub]'
	@touch $@

# The tests launch through the real PyCUDA on a mock driver; where CUDA's headers are, it is built once (a minute).
$(VENV)/.pycuda: $(READY)
	@if command -v nvcc >/dev/null 2>&1; then sh tests/gpu/build_pycuda.sh $(BIN)/python || echo "PyCUDA was not built: its tests will be skipped"; fi
	@touch $@

demo: $(READY) ## compile and run RMSNorm on the emulator: rule trace, CUDA, error against float64
	@$(BIN)/python examples/demo.py

test: $(READY) $(VENV)/.pycuda ## the whole test suite (no GPU needed)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-long: $(READY) $(VENV)/.pycuda ## the same tests with ten times the draws and cases, and the slow ones (BUDGET=100: a hundred times)
	@DPLC_TEST_BUDGET=$(BUDGET) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not models"

test-browser: $(READY) ## the page of dplc view in Chromium (skipped with its reason where there is none)
	@$(BIN)/python -m pytest -m browser -rs tests/view

test-models: $(READY) $(VENV)/.pycuda ## seventy architectures under torch.compile, whole (a quarter of an hour)
	@$(BIN)/python -m pytest -m models -n $(WORKERS)

lint: $(READY) ## ruff, import layers, the layout of rule files, what rules may be better without
	@$(BIN)/ruff check . && $(BIN)/ruff check --preview --select DOC501 engine/api.py && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/dplc rules fmt --check rules examples tests && $(BIN)/dplc rules lint

types: $(READY) ## mypy, strict
	@mkdir -p .typecheck && ln -sfn .. .typecheck/dplc  # the root is the package, whatever the folder is called
	@cd .typecheck && ../$(BIN)/mypy --config-file ../pyproject.toml -p dplc.ir -p dplc.codegen -p dplc.engine

check-rules: $(READY) ## static checks and examples of every rule; a quarter of them, another one each day, on drawn programs
	@$(BIN)/dplc rules test
	@$(BIN)/dplc check --seed $(SEED) --part $(PART) $(THIN)

check-schedules: $(READY) ## 20 random schedules of every shape of the suite, in f32 and bf16, whole in checked mode (half an hour)
	@$(BIN)/python examples/benches/check_schedules.py
	@$(BIN)/python examples/benches/check_schedules.py --dtype bfloat16

manifest: $(READY) ## which kernels a change of the tree has changed, over suites, pages and models, and their predicted times
	@$(BIN)/python tests/manifest/manifest.py

mutants: $(READY) ## faults put into engine, codegen and ir, and whether the nearest tests see them (COUNT=200 SEED=0: hours; NEAR=1: half a minute each)
	@$(BIN)/python examples/benches/mutants.py --count $(or $(COUNT),200) --seed $(if $(filter command line,$(origin SEED)),$(SEED),0) $(if $(NEAR),--near)

bench: $(READY) ## compile times and rewrite rates, measured here
	@$(BIN)/python examples/benches/compile_times.py
	@$(BIN)/python examples/benches/rewrites.py
	@$(BIN)/python examples/benches/emulator.py

pages: $(READY) ## figures of pages, printed into them by their commands (ALL=1: also what is measured or takes minutes)
	@$(BIN)/python examples/benches/pages.py $(if $(ALL),--all)

docs: $(READY) ## the site of docs/ with all rules, statements, facts and constants, in build/site
	@$(BIN)/python docs/generate.py && $(BIN)/mkdocs build --strict --quiet

pictures: $(READY) ## the pictures of the README and of the site, in Chromium
	@$(BIN)/python examples/benches/pictures.py

gpu: $(READY) ## on a machine with a GPU: every kernel family checked, then suites and models measured; installs PyCUDA
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { echo "torch finds no GPU here: examples/benches/gpu.py --dry-run does all but measuring"; exit 1; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[cuda]'
	@$(BIN)/python examples/benches/gpu.py

pack: $(READY) ## all suites as one file for a machine with a GPU (TARGET=h200): docs/guides/measure_elsewhere.md
	@mkdir -p build
	@$(BIN)/dplc bench $(addprefix examples/suites/,families.json kernels_84.json limits.json:layer.* variants.json layers.json limits.json halves.json held_out.json) --candidates 30 --target $(or $(TARGET),h200) --pack build/$(or $(TARGET),h200).dplc

goldens: $(READY) ## rewrite the golden files; read the diff before you commit it
	@DPLC_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests -k golden

dist: $(READY) ## wheel and sdist
	@$(BIN)/python -m build

clean: ## remove build products and caches, keep the virtual environment
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

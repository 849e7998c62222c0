# make demo   sets up and compares the four algorithms on MNIST-5k
# make test   sets up and runs the tests
# make lint   sets up and runs ruff and mypy
# EXTRAS=demo,dev,flower,ray installs Flower and Ray too: make test then runs the tests that need them
# make bench  measures our engines and the field, writes docs/performance.md
# make allocation  holds the exact allocation against an independent solver on 1,000 random cells
# make radio  holds all planners against brute force on 1,000 random cells with every rate law and circuits
# make faults  kills, floods and corrupts runs on purpose, writes docs/reliability.md
# make reproduction  redraws docs/reproduction.md and its pictures from the committed results
# make liars  measures what each aggregator stands, writes docs/reliability-aggregation.md
.PHONY: setup demo test lint bench allocation radio faults liars reproduction clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= demo,dev
SIZE ?= full
comma := ,
STAMP := $(VENV)/.ready-$(subst $(comma),-,$(EXTRAS))

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $(STAMP)

demo: setup
	$(BIN)/autofl compare --seeds 3 --out runs/demo --force

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

bench: setup
	$(BIN)/python benchmarks/bench.py

allocation: setup
	$(BIN)/python benchmarks/allocation.py

radio: setup
	$(BIN)/python benchmarks/radio.py

faults: setup
	$(BIN)/python benchmarks/faults.py --size $(SIZE)

liars: setup
	$(BIN)/python benchmarks/liars.py

reproduction: setup
	$(BIN)/autofl report docs/results/reproduction --page docs/reproduction.md

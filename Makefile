# make demo   sets up and compares the five algorithms on MNIST-5k
# make test   sets up and runs the tests
# make quick  sets up and runs the tests without those marked slow, in less than a minute
# make flower  sets up with the extras flower and ray, runs the tests of deployments with the other version of Flower
# make coverage  the same in one process, without the tests marked deploy, with the share of lines that were run
# make lint   sets up and runs ruff and mypy
# EXTRAS=demo,dev,docs,browser,flower,ray installs more: make test then runs the tests that need it
# make hashes  rewrites hashes.txt and constraints.txt from pyproject.toml and the package index
# make bench  measures our engines and the field, writes docs/performance.md
# make allocation  checks the exact allocation against an independent solver on 1,000 random cells
# make radio  checks all planners against brute force on 1,000 random cells with every rate law and circuits
# make faults  kills, floods and corrupts runs on purpose, writes docs/reliability.md
# make fuzz  only the part with random settings, files, run folders and command lines
# make soak  watches memory and CPU time of 20,000 rounds; fault-deploy kills a real deployment (EXTRAS=demo,dev,flower)
# make messages  sends 2,000 broken messages to the server's checks (needs EXTRAS with flower), for the same page
# make reproduction  redraws docs/reproduction.md and its pictures from the committed results
# make docs   builds the documentation into site/, warnings are errors
# make liars  measures what each aggregator withstands, writes docs/reliability-aggregation.md
# make decisions  measures what each decision of the joint planner is worth, writes docs/decisions.md; OLD=a checkout of 724498f
# make screenshots  draws the pictures of docs/explore.md, in chromium; EXTRAS=demo,browser
.PHONY: setup demo test quick flower coverage lint hashes bench allocation radio faults fuzz soak fault-deploy messages liars decisions reproduction docs screenshots clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= demo,dev
SIZE ?= full
comma := ,
STAMP := $(VENV)/.ready-$(subst $(comma),-,$(EXTRAS))

setup: $(STAMP)

$(STAMP): pyproject.toml hashes.txt tools/dependencies.py
	$(PYTHON) -m venv $(VENV)
	@echo "installing AutoFL with $(EXTRAS); PyTorch is large, so the first time takes minutes"
	$(BIN)/python tools/dependencies.py install $(EXTRAS)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)
	@echo "$(FIND)"

FIND := autofl is $(BIN)/autofl; 'source $(BIN)/activate' lets you call it autofl

demo: setup
	$(BIN)/autofl compare --seeds 3 --out runs/demo --force
	@echo "$(FIND), as in: autofl report runs/demo --html"

coverage: setup
	$(BIN)/python -m coverage run -m pytest -p no:xdist -m "not deploy"
	$(BIN)/python -m coverage report --skip-covered | tail -n 40
	$(BIN)/python -m coverage xml

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

quick: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

flower:
	$(MAKE) setup EXTRAS=demo$(comma)dev$(comma)flower$(comma)ray
	$(BIN)/python tools/dependencies.py flower $(VENV)/flower
	PYTHONPATH=$(abspath $(VENV)/flower) $(BIN)/python -m pytest tests/deploy tests/faults/test_hostile.py tests/faults/test_messages.py

hashes:
	$(PYTHON) tools/dependencies.py lock

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

fuzz: setup
	$(BIN)/python benchmarks/faults.py --size $(SIZE) --only settings folders data bombs commands

soak: setup
	nice $(BIN)/python benchmarks/soak.py

fault-deploy: setup
	$(BIN)/python benchmarks/fault_deploy.py

messages: setup
	$(BIN)/python benchmarks/fault_messages.py

liars: setup
	$(BIN)/python benchmarks/liars.py

decisions: setup
	nice $(BIN)/python benchmarks/decisions.py $(if $(OLD),--old $(OLD))

reproduction: setup
	$(BIN)/autofl reproduce --from docs/results/reproduction --page docs/reproduction.md

docs:
	$(MAKE) setup EXTRAS=demo$(comma)dev$(comma)docs
	$(BIN)/zensical build --strict --clean

screenshots: setup
	$(BIN)/python benchmarks/screenshots.py

# Two commands for newcomers: `make quickstart` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps of what is installed: enough to run the simulator, and everything that the tests need (ManiSkill too).
RUNS := $(VENV)/.ready-to-run
TESTS := $(VENV)/.ready-to-test
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
CPU_TORCH := https://download.pytorch.org/whl/cpu
# Side-by-side processes share the cores better when each computes on one.
export OMP_NUM_THREADS ?= 1
# Neither tests nor the hundreds of processes that they start are compiled anew each time.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -n 2

.PHONY: setup quickstart test test-fast test-lerobot test-pi0 test-openpi test-numpyro lint docs clean

setup: $(TESTS)

# The CPU build of torch, which is gigabytes smaller; where its index cannot be reached, the default index's build.
$(RUNS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --retries 1 --timeout 15 --no-deps --index-url $(CPU_TORCH) torch 2>/dev/null || true
	$(PIP) -e '.[sim]'
	touch $@

$(TESTS): $(RUNS)
	$(PIP) -e '.[dev]'
	touch $@

quickstart: $(RUNS)
	$(BIN)/fsc quickstart
	@echo "fsc is in $(BIN): \`source $(BIN)/activate\` puts it on the PATH of this shell"

# Everything: style, types, package boundaries, all tests. As root on Debian, PostgreSQL, Slurm, a software renderer
# and a browser are installed when they are missing; elsewhere their tests are skipped, except with CI=true, where they fail.
test: setup lint
	scripts/renderer-for-tests || true
	scripts/browser-for-tests || true
	url=$$(scripts/postgres-for-tests start || true); status=0; \
	FSC_TEST_POSTGRES=$$url $(PYTEST) || status=$$?; \
	scripts/postgres-for-tests stop >/dev/null; exit $$status

# The tier to run while editing: under three minutes, no servers, no training.
test-fast: setup
	FSC_SKIP_POSTGRES=1 $(PYTEST) -m 'not slow'

# Against LeRobot itself, in an environment of its own (.venv-lerobot; the first time takes minutes).
test-lerobot:
	PYTHON=$(PYTHON) scripts/lerobot-for-tests .venv-lerobot
	PYTHONPATH=src HF_HUB_OFFLINE=1 .venv-lerobot/bin/python -m pytest -o filterwarnings=default tests/lerobot_real

# π0's embeddings on LeRobot's own class at tiny size (.venv-pi0, Python 3.12, some gigabytes the first time).
test-pi0:
	scripts/pi0-for-tests .venv-pi0
	PYTHONPATH=src HF_HUB_OFFLINE=1 .venv-pi0/bin/python -m pytest -o filterwarnings=default tests/lerobot_real/test_embedding.py tests/lerobot_real/test_training.py -k "pi0 or listened"

# openpi's own client against our server. It asks for numpy below 2, so it has a folder of its own (.venv-openpi).
.venv-openpi/.ready:
	$(PYTHON) -m venv .venv-openpi
	.venv-openpi/bin/pip install --quiet --disable-pip-version-check openpi-client==0.1.2 typing_extensions
	touch $@

test-openpi: setup .venv-openpi/.ready
	FSC_TEST_OPENPI=$(CURDIR)/.venv-openpi/bin/python $(BIN)/pytest tests/serving/test_openpi.py

# The response model's posterior by NumPyro's NUTS (.venv-numpyro), half an hour; writes benchmarks/results/numpyro.md.
.venv-numpyro/.ready:
	$(PYTHON) -m venv .venv-numpyro
	.venv-numpyro/bin/pip install --quiet --disable-pip-version-check -c constraints.txt numpyro==0.22.0 jax==0.10.2 scipy pyyaml sqlalchemy click
	touch $@

test-numpyro: .venv-numpyro/.ready
	PYTHONPATH=src .venv-numpyro/bin/python benchmarks/numpyro_check.py --save

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python docs/make_images.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

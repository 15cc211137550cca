# Tests. The everyday targets are named in Makefile.
# make test RACE= leaves the race detector out, which needs a C compiler.
RACE    ?= -race
# The detector's runtime sleeps a second at the end of every test binary, unless it is told.
export GORACE ?= atexit_sleep_ms=0
# Packages without a goroutine, which the race detector would make ten times as slow for nothing
# (internal/arch holds them to it), and those that drive the program as processes of its own: what a process
# consists of has tests in its packages, which run with the detector.
UNRACED := adapters/anthropic adapters/gemini adapters/openai adapters/provider adapters/provider/brokentest adapters/transcript internal/arch schema/jsonscan
PROCESSES := internal/e2e cmd/agentstream
# Code that only computes, SQLite's and ours: it is compiled without the detector wherever it is used. What
# keeps its own caches cannot be: the detector would not see how encoding/json guards them, and complain.
UNRACED_DEPS := modernc.org/sqlite/lib modernc.org/libc/... modernc.org/memory github.com/santhosh-tekuri/jsonschema/v6/... \
	unicode/... $(UNRACED:%=agentstream/%)
# Those that take longest are begun first: nobody waits for them.
LONGEST := edge/live edge/rest edge producers persister/postgres persister/sqlite
# bench is a module of its own, of which PKG may name packages like of any other folder.
OWN     = $(filter-out ./bench ./bench/%,$(PKG))
BENCHED = $(patsubst ./bench%,.%,$(filter ./bench ./bench/%,$(PKG))) $(filter ./...,$(PKG))
RUN     ?=
FUZZTIME ?= 10s

.PHONY: test
test: needs python $(if $(RUN)$(filter-out ./...,$(PKG)),js,test-ts)
	@all=$$([ -z '$(OWN)' ] || go list $(OWN))
	of() { for dir; do dir=agentstream/$$dir; grep -xF "$${dir%/.}" <<<"$$all" || true; done; }
	work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT
	python=
	if [ -z '$(RUN)$(filter-out ./...,$(PKG))' ]; then
		$(MAKE) test-python >"$$work/python" 2>&1 & python=$$!
	fi
	python_passed() { [ -z "$$python" ] || { wait $$python && passed=0 || passed=1; cat "$$work/python"; return $$passed; }; }
	# The detector looks at every package but UNRACED and PROCESSES, and at every test but those of one
	# goroutine that compute much: they are in files of norace's.
	race='$(if $(RACE),$(RACE) $(UNRACED_DEPS:%=-gcflags=%=-race=false))'
	processes=$$([ -z '$(RACE)' ] || of $(PROCESSES))
	unraced=$$([ -z '$(RACE)' ] || of $(PROCESSES) $(UNRACED))
	raced=$$({ of $(LONGEST); echo "$$all"; } | grep -vxF -e "$$unraced" | awk '!seen[$$0]++') || true
	norace=$$([ -z '$(RACE)' ] || tools/norace $$raced)
	alone=$$(cut -d' ' -f2 <<<"$$norace" | grep -E -e '$(firstword $(subst /, ,$(RUN)))' | paste -sd'|') || true
	flags=(-v -count=1 -timeout 20m -vet=off $(if $(RUN),-run '$(RUN)'))
	without() {
		ended=0
		[ -z "$$processes" ] || CGO_ENABLED=1 go test "$${flags[@]}" $$processes || ended=1
		[ -z "$$alone" ] || CGO_ENABLED=1 go test "$${flags[@]}" -run "^($$alone)$$" -p 2 $$(cut -d' ' -f1 <<<"$$norace" | sort -u) || ended=1
		rest=$$(grep -vxF -e "$$processes" <<<"$$unraced") || true
		[ -z "$$rest" ] || CGO_ENABLED=1 go test "$${flags[@]}" -p 2 $$rest || ended=1
		return $$ended
	}
	{
		# Tests wait a lot: what runs without the detector runs beside what runs with it, and one package more
		# than there are processors.
		without >"$$work/without" 2>&1 & beside=$$! failed=
		[ -z "$$raced" ] || CGO_ENABLED=$(if $(RACE),1,0) go test $$race "$${flags[@]}" -p $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )) $$raced 2>&1 || failed=yes
		[ -z '$(strip $(BENCHED))' ] || CGO_ENABLED=$(if $(RACE),1,0) go test -C bench $$race "$${flags[@]}" $(BENCHED) 2>&1 || failed=yes
		wait $$beside || failed=yes
		cat "$$work/without"
		[ -z "$$failed" ]
	} | awk -v again="$$work/again" -f tools/testsum.awk && { python_passed && exit; exit 1; }
	# A test that failed is run once more by itself: a busy machine is no reason to fail, a defect is.
	[ -s "$$work/again" ] || exit 1
	echo; echo "once more:"; cat "$$work/again"
	while read -r pkg run; do
		with=$$race in=.
		if grep -qxF -e "$$pkg" <<<"$$unraced" || grep -qE -e "^$$pkg $${run#^}" <<<"$$norace"; then with=; fi
		case $$pkg in agentstream/bench|agentstream/bench/*) in=bench ;; esac
		CGO_ENABLED=$(if $(RACE),1,0) go test -C $$in $$with -v -count=1 -timeout 20m -vet=off -run "$$run" "$$pkg" 2>&1 </dev/null || true
	done <"$$work/again" | awk -f tools/testsum.awk
	python_passed

.PHONY: needs
needs:
	@tools/needs $(if $(RACE),gcc) postgresql
	tools/needs -o node npm chromium python3 versitygw jq curl nginx zsh fish

JS_DIRS := clients/ts internal/e2e/js examples/web
# Without npm what needs it is left out, loudly; CI must have it.
no_npm = if ! command -v npm >/dev/null 2>&1; then echo "NOT TESTED: $(1): there is no npm" >&2; [ "$${CI:-}" != true ]; exit; fi

.PHONY: js
js: ## Install the npm packages of the TypeScript client, of the clients that e2e drives, and of the example pages
	@$(call no_npm,what runs on Node)
	for dir in $(JS_DIRS); do
		stamp=$$dir/node_modules/.package-lock.json
		if [ ! -e "$$stamp" ] || [ "$$dir/package-lock.json" -nt "$$stamp" ]; then
			npm ci --prefix "$$dir" --no-audit --no-fund --loglevel=error
			touch "$$stamp"
		fi
	done

.PHONY: test-ts
test-ts: js ## Build the TypeScript client and run its tests
	@$(call no_npm,the TypeScript client)
	out=$$(npm test --prefix clients/ts --silent 2>&1) || { echo "$$out"; exit 1; }
	echo "clients/ts: $$(grep -e '^# tests' <<<"$$out" | tr -d '#'), $$(grep -e '^# fail' <<<"$$out" | tr -d '#')"

PY := clients/python
no_python = if ! tools/needs -h python3; then echo "NOT TESTED: the Python client: there is no Python, 3.10 or newer, with venv" >&2; [ "$${CI:-}" != true ]; exit; fi

.PHONY: python
python: ## Install the Python client, and what its tests need, into an environment of its own
	@$(no_python)
	stamp=$(PY)/.venv/installed
	if [ ! -e "$$stamp" ] || [ $(PY)/requirements-test.txt -nt "$$stamp" ] || [ $(PY)/pyproject.toml -nt "$$stamp" ]; then
		python3 -m venv --clear $(PY)/.venv
		$(PY)/.venv/bin/pip install --quiet --disable-pip-version-check -r $(PY)/requirements-test.txt -e $(PY)
		touch "$$stamp"
	fi

.PHONY: test-python
test-python: python ## Check the Python client by ruff and mypy, and run its tests
	@$(no_python)
	cd $(PY)
	check() { out=$$("$$@" 2>&1) || { echo "clients/python: $$*"; echo "$$out"; exit 1; }; }
	check .venv/bin/ruff check .
	check .venv/bin/ruff format --check .
	check .venv/bin/mypy
	check .venv/bin/pytest -q
	echo "clients/python: $$(tail -1 <<<"$$out")"

.PHONY: python-frameworks
python-frameworks: build ## Test the Python integrations with the frameworks themselves, from PyPI, and scripted models, on a server (ARGS=--update writes the goldens)
	@cd $(PY)
	if [ ! -e .venv-frameworks/installed ] || [ requirements-frameworks.txt -nt .venv-frameworks/installed ]; then
		python3 -m venv --clear .venv-frameworks
		.venv-frameworks/bin/pip install --quiet --disable-pip-version-check -r requirements-test.txt -r requirements-frameworks.txt -e .
		touch .venv-frameworks/installed
	fi
	.venv-frameworks/bin/mypy src tests live frameworks twins.py
	work=$$(mktemp -d)
	../../$(BIN) dev --no-demo --listen 127.0.0.1:0 --admin-listen off --data "$$work/data" >"$$work/log" 2>&1 & server=$$!
	trap 'kill $$server; wait $$server || true; rm -rf "$$work"' EXIT
	until listen=$$(grep -o 'listen=[0-9.:]*' "$$work/log"); do
		kill -0 $$server || { cat "$$work/log"; exit 1; }
		sleep 0.2
	done
	AGENTSTREAM_SERVER=http://$${listen#listen=} .venv-frameworks/bin/pytest -q frameworks $(ARGS)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do
		name=$${func#func }
		echo "== $$name in $$(dirname "$$file")"
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null
	done

.PHONY: golden
golden:
	@go test -count=1 $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update
	git status --short -- '*testdata*'

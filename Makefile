# `make` alone prints what can be made. CI runs these targets and nothing else.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN     := bin/agentstream
# make test RACE= leaves the race detector out, which needs a C compiler.
RACE    ?= -race
# The detector's runtime sleeps a second at the end of every test binary, unless it is told.
export GORACE ?= atexit_sleep_ms=0
# Packages without a goroutine, which the race detector would make ten times as slow for nothing
# (internal/arch holds them to it), and the one that drives the program as a process of its own.
UNRACED := adapters/anthropic adapters/gemini adapters/openai adapters/provider adapters/provider/brokentest adapters/transcript internal/arch schema/jsonscan
PROCESSES := internal/e2e
# Code that only computes, SQLite's and ours: it is compiled without the detector wherever it is used. What
# keeps its own caches cannot be: the detector would not see how encoding/json guards them, and complain.
UNRACED_DEPS := modernc.org/sqlite/lib modernc.org/libc/... modernc.org/memory github.com/santhosh-tekuri/jsonschema/v6/... \
	unicode/... $(UNRACED:%=agentstream/%)
# Those that take longest are begun first: nobody waits for them.
LONGEST := cmd/agentstream edge/live edge/rest edge producers persister/postgres persister/sqlite
PKG     ?= ./...
# bench is a module of its own, of which PKG may name packages like of any other folder.
OWN     = $(filter-out ./bench ./bench/%,$(PKG))
BENCHED = $(patsubst ./bench%,.%,$(filter ./bench ./bench/%,$(PKG))) $(filter ./...,$(PKG))
RUN     ?=
BENCH   ?= .
FUZZTIME ?= 10s
KILLS   ?= 50
OUTAGE  ?= 10m
EVENTS  ?= 10000000
ARGS    ?=

.PHONY: help
help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## Run everything in one process, with a demo run (ARGS="--listen …")
	@echo "building $(BIN); the first time takes a minute or two"
	go build -v -o $(BIN) ./cmd/agentstream 2>&1 | awk '
		/^[a-z0-9][^ :]*$$/ { printf "\r  %d packages compiled", ++n; fflush(); next }
		{ if (n) print ""; n = 0; print }
		END { if (n) print "" }' >&2
	exec $(BIN) dev $(ARGS)

.PHONY: build
build: ## Build the static binary bin/agentstream
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X agentstream/cmd/agentstream/internal/cli.version=$(VERSION)" -o $(BIN) ./cmd/agentstream
	echo "$(BIN) $(VERSION)"

PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: install
install: build ## Build agentstream, and install it with its completion below PREFIX (/usr/local)
	@install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/agentstream
	for at in bash:bash-completion/completions/agentstream zsh:zsh/site-functions/_agentstream fish:fish/vendor_completions.d/agentstream.fish; do
		install -d "$(DESTDIR)$(PREFIX)/share/$$(dirname "$${at#*:}")"
		$(BIN) completion "$${at%%:*}" >"$(DESTDIR)$(PREFIX)/share/$${at#*:}"
	done
	echo "$(DESTDIR)$(PREFIX)/bin/agentstream"

SYSTEMS ?=

.PHONY: release
release: ## Build dist/: binaries for linux, macOS and Windows, SBOMs, npm package, check sums, image (SYSTEMS="linux/amd64")
	@tools/release $(VERSION) $(SYSTEMS)

.PHONY: release-check
release-check: js ## Make a release for linux/amd64 twice, and hold it to what users are told
	@go test -tags release -v -count=1 -timeout 30m -run 'TestRelease$$' ./internal/e2e

.PHONY: first-run
first-run: js ## Go a new user's way, with times: clone, build, see the demo in the console, cancel it (ARCHIVE=dist/….tar.gz)
	@tools/first-run $(ARCHIVE)

ARCHIVE ?=

.PHONY: build-bench
build-bench: build ## Build bin/agentstream-bench, which loads a server and checks every delivery
	@CGO_ENABLED=0 go build -C bench -trimpath -ldflags "-s -w" -o ../$(BIN)-bench ./agentstream-bench
	echo "$(BIN)-bench"

.PHONY: test
test: needs $(if $(RUN)$(filter-out ./...,$(PKG)),js,test-ts) ## Run all tests on real parts, with the race detector (PKG=./edge/... RUN=TestName RACE=)
	@all=$$([ -z '$(OWN)' ] || go list $(OWN))
	of() { for dir; do dir=agentstream/$$dir; grep -xF "$${dir%/.}" <<<"$$all" || true; done; }
	work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT
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
		[ -z "$$alone" ] || CGO_ENABLED=1 go test "$${flags[@]}" -run "^($$alone)$$" -p 1 $$(cut -d' ' -f1 <<<"$$norace" | sort -u) || ended=1
		rest=$$(grep -vxF -e "$$processes" <<<"$$unraced") || true
		[ -z "$$rest" ] || CGO_ENABLED=1 go test "$${flags[@]}" -p 1 $$rest || ended=1
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
	} | awk -v again="$$work/again" -f tools/testsum.awk && exit
	# A test that failed is run once more by itself: a busy machine is no reason to fail, a defect is.
	[ -s "$$work/again" ] || exit 1
	echo; echo "once more:"; cat "$$work/again"
	while read -r pkg run; do
		with=$$race in=.
		if grep -qxF -e "$$pkg" <<<"$$unraced" || grep -qE -e "^$$pkg $${run#^}" <<<"$$norace"; then with=; fi
		case $$pkg in agentstream/bench|agentstream/bench/*) in=bench ;; esac
		CGO_ENABLED=$(if $(RACE),1,0) go test -C $$in $$with -v -count=1 -timeout 20m -vet=off -run "$$run" "$$pkg" 2>&1 </dev/null || true
	done <"$$work/again" | awk -f tools/testsum.awk

.PHONY: needs
needs: ## Install what the tests need: a C compiler for -race, PostgreSQL's programs, Node, Chromium, an S3 server, jq, curl, nginx
	@tools/needs $(if $(RACE),gcc) postgresql
	tools/needs -o node npm chromium versitygw jq curl nginx zsh fish

JS_DIRS := clients/ts internal/e2e/js
# Without npm what needs it is left out, loudly; CI must have it.
no_npm = if ! command -v npm >/dev/null 2>&1; then echo "NOT TESTED: $(1): there is no npm" >&2; [ "$${CI:-}" != true ]; exit; fi

.PHONY: js
js: ## Install the npm packages of the TypeScript client and of the clients that e2e drives
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

.PHONY: console
console: js ## Compile the TypeScript client into the console, which is part of the program
	clients/ts/node_modules/.bin/tsc -p clients/ts --outDir edge/console/static/lib --declaration false --sourceMap false

.PHONY: console-figures
console-figures: js ## Open a run of a million events in the console, and follow 200 events/s for ten minutes (LONG=events,seconds,rate)
	@AGENTSTREAM_LONG=$${LONG:-1000000,600,200} go test -v -count=1 -timeout 30m -run 'TestConsoleOfALongRun' ./internal/e2e | sed -n 's/^ *console_test.go:[0-9]*: //p; s/^        //p'

.PHONY: pictures
pictures: js build ## Take the pictures of docs/pictures anew: each screen of the console, and the moving one (ffmpeg)
	@AGENTSTREAM_SHOTS=$$PWD/docs/pictures go test -count=1 -run 'TestConsole$$' ./internal/e2e
	tools/moving-picture $(BIN) docs/pictures/console.gif

.PHONY: check
check: ## Format, vet, and the tests that start no other processes, without the race detector
	@unformatted=$$(gofmt -l $$(git ls-files '*.go'))
	if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -C bench ./...
	all=$$({ printf 'agentstream/%s\n' $(LONGEST); go list ./... | grep -v /internal/e2e; } | awk '!seen[$$0]++')
	go test -C bench -short -count=1 -vet=off -timeout 10m ./... & beside=$$! # they wait a lot
	go test -short -count=1 -vet=off -timeout 10m -p $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )) $$all || { wait $$beside; exit 1; }
	wait $$beside

.PHONY: bench
bench: ## Run the benchmarks; the comparison with bare NATS comes last (PKG=./bench BENCH=SideBySide)
	@pkgs="$(OWN)"
	if [ "$$pkgs" = "./..." ]; then pkgs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u | grep -v '^./bench'); fi
	flags=(-run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m -p 1)
	[ -z "$$pkgs" ] || go test "$${flags[@]}" $$pkgs
	[ -z '$(strip $(BENCHED))' ] || go test -C bench "$${flags[@]}" .

.PHONY: rates
rates: ## Print rate, delay and loss by mix and by link (native R1, R4), in virtual time
	@AGENTSTREAM_RATES=full go test -count=1 -v -run 'TestRates|TestR4NothingOfHistoryIsSpared|TestR4LiveOverALink' ./edge/live | sed -n 's/^.*rates_test.go:[0-9]*: |/|/p'

RESULTS ?= bin/referee
ROUNDS  ?= 3
BEFORE  ?=
# Lines of the referee, and shapes of the product, that single events are judged by.
SINGLE  := pace-,s2,stream-,s5-one-,s5-16,s5-sync,s5-stream,s5-http-64,s5-memory-64,s1-sse,s3-sse-5000,s4-10000-1,s4-100000-1,disk
SHAPES  = $(if $(BEFORE),dev-before$(comma))dev,split
comma   := ,

.PHONY: referee
referee: build ## Measure beside the references; REFEREE=harness or BENCH_SRC=its source, RESULTS=folder
	@go build -C bench -o ../bin/bench-referee ./referee
	bin/bench-referee run -out $(RESULTS) -rounds $(ROUNDS) $(ARGS)

.PHONY: single
single: ARGS += -before '$(BEFORE)' -shapes $(SHAPES) -only $(SINGLE)
single: referee ## Measure single events at a rate, acknowledged, on disk; BEFORE=an earlier binary to take turns with
	@cat $(RESULTS)/table.md

.PHONY: profile
profile: build ## Print what an event costs by parts of the product, from CPU profiles; BEFORE=an earlier binary, RESULTS=folder
	@go build -C bench -o ../bin/bench-referee ./referee
	bin/bench-referee profile -out $(RESULTS) -rounds $(ROUNDS) -before '$(BEFORE)' -shapes $(if $(BEFORE),dev-before$(comma))dev $(ARGS)

.PHONY: capacity
capacity: build ## Measure how cost grows, simulate 100,000 runs and more, and fill in docs/capacity.md
	@mkdir -p $(RESULTS)
	go build -C bench -o ../bin/bench-referee ./referee
	test -s $(RESULTS)/simulation.txt || {
		full=(-v -count=1 -timeout 30m -p 1 -run 'TestHundredThousandSubjects|TestMillionRuns')
		{ AGENTSTREAM_FULL=1 go test -C bench "$${full[@]}" .; AGENTSTREAM_FULL=1 go test "$${full[@]}" ./fanout; } >$(RESULTS)/simulation.new
		mv $(RESULTS)/simulation.new $(RESULTS)/simulation.txt
	}
	bin/bench-referee growth -out $(RESULTS) -rounds $(ROUNDS) -page docs/capacity.md $(ARGS)

PGO_OUT  ?= bin/agentstream.pgo
PGO_TIME ?= 30

.PHONY: pgo
pgo: ## Profile the server under load, build bin/agentstream by that profile (PGO_TIME=30 PGO_OUT=bin/agentstream.pgo)
	@CGO_ENABLED=0 go build -pgo=off -o $(BIN) ./cmd/agentstream
	go build -C bench -o ../$(BIN)-bench ./agentstream-bench
	data=$$(mktemp -d)
	$(BIN) dev --no-demo --data "$$data" --listen 127.0.0.1:18480 --admin-listen 127.0.0.1:18481 --level warn & server=$$!
	trap 'kill $$server; wait $$server || true; rm -rf "$$data"' EXIT
	for _ in $$(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/18481) 2>/dev/null && break; sleep 0.1; done
	$(BIN)-bench --url http://127.0.0.1:18480 --scenario s2 --duration $$(( $(PGO_TIME) + 2 ))s >/dev/null & load=$$!
	go tool pprof -proto -output $(PGO_OUT) "http://127.0.0.1:18481/debug/pprof/profile?seconds=$(PGO_TIME)" >/dev/null 2>&1
	wait $$load || echo "the load ended with an error" >&2
	CGO_ENABLED=0 go build -trimpath -pgo=$(PGO_OUT) -ldflags "-s -w -X agentstream/cmd/agentstream/internal/cli.version=$(VERSION)" -o $(BIN) ./cmd/agentstream
	echo "$(BIN) $(VERSION), by $(PGO_OUT), $$(stat -c %s $(PGO_OUT)) bytes"

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do
		name=$${func#func }
		echo "== $$name in $$(dirname "$$file")"
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null
	done

.PHONY: golden
golden: ## Write all golden files anew; read the diff before you commit it
	@go test -count=1 $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update
	git status --short -- '*testdata*'

.PHONY: campaign
campaign: needs ## Kill processes at random KILLS times and compare what was promised with what is left
	@AGENTSTREAM_KILLS=$(KILLS) go test -v -count=1 -timeout 60m ./internal/e2e

.PHONY: proofs
proofs: needs js ## Resume real processes behind every cursor, cut each client 50 times, compare the delay of control events
	@AGENTSTREAM_PROOFS=all go test -v -count=1 -timeout 30m -run 'TestResumeAtEveryCursor|TestT3ClientsBehindACuttingProxy|TestControlEventsAreNotDelayed' ./internal/e2e

.PHONY: metis
metis: needs js ## Hold the metis protocol to its text: required tests, cancellations, every resume, slow clients, cost
	@AGENTSTREAM_METIS=all go test -v -count=1 -timeout 60m -run 'TestMetis' ./internal/e2e | awk '
		/^ *--- (PASS|FAIL|SKIP)/ { print; fflush() }
		/^ +metis_[a-z]+_test.go:/ { sub(/^ +metis_[a-z]+_test.go:[0-9]+: /, "      "); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: threads
threads: needs js ## Hold threads to what LangGraph's clients need: every resume, kills, cost beside native
	@AGENTSTREAM_THREADS=all go test -v -count=1 -timeout 60m -run 'TestThreads' ./internal/e2e | awk '
		/^ *--- (PASS|FAIL|SKIP)/ { print; fflush() }
		/^ +threads_[a-z]+_test.go:/ { sub(/^ +threads_[a-z]+_test.go:[0-9]+: /, "      "); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: runtime
runtime: needs ## Hold the runtime protocol to its text: kills under 200 scenarios, a rolling restart under 1,000 streams, recordings, latency, slow clients, cost beside native
	@AGENTSTREAM_RUNTIME=all go test -v -count=1 -timeout 30m -run 'TestRuntime' ./internal/e2e | awk '
		/^ *--- (PASS|FAIL|SKIP)/ { print; fflush() }
		/^ +runtime_[a-z]+_test.go:/ { sub(/^ +runtime_[a-z]+_test.go:[0-9]+: /, "      "); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: kills
kills: needs ## Kill persist, PostgreSQL and NATS at random, KILLS times in total, and compare the archive with the log
	@AGENTSTREAM_KILLS=$(KILLS) go test -v -count=1 -timeout 120m -run 'TestKillArchive|TestFaultPlanRepeats|TestTheArchivesCheckerFindsDamage' ./internal/e2e

.PHONY: power-cuts
power-cuts: needs ## Let the log come back shorter KILLS times, of dev and of the split shape, and in six ways
	@AGENTSTREAM_KILLS=$(KILLS) go test -v -count=1 -timeout 60m -run 'TestPowerCut|TestSixCuts' ./internal/e2e

PREVIOUS ?= a61788a
# The last revision whose edges name no tenant to row security.
UNSCOPED ?= 357707c

.PHONY: upgrade
upgrade: needs ## Let this release follow PREVIOUS, a revision, under load, and its edges those of PREVIOUS and UNSCOPED
	@old=$$(mktemp -d)
	trap 'rm -rf "$$old"' EXIT
	for revision in $(PREVIOUS) $(UNSCOPED); do
		mkdir "$$old/$$revision"
		git archive $$revision | tar -x -C "$$old/$$revision"
		(cd "$$old/$$revision" && go build -o agentstream ./cmd/agentstream)
	done
	AGENTSTREAM_PREVIOUS="$$old/$(PREVIOUS)/agentstream" go test -tags upgrade -v -count=1 -timeout 20m -run 'TestUpgrade(UnderLoad|Edge)$$' ./internal/e2e
	AGENTSTREAM_MAY_REFUSE=yes AGENTSTREAM_PREVIOUS="$$old/$(UNSCOPED)/agentstream" go test -tags upgrade -v -count=1 -timeout 20m -run 'TestUpgradeEdge$$' ./internal/e2e

.PHONY: drills
drills: needs ## Lose the database, the bucket, NATS, its quorum, a disk; print what each costs: RPO and RTO (docs/recovery.md)
	@AGENTSTREAM_DRILLS=all go test -v -count=1 -timeout 30m -run 'TestDrill' ./internal/e2e | awk '
		/^ *--- (FAIL|SKIP)/ { print; fflush() }
		/^ +drills.*_test.go:/ { sub(/^ +drills[a-z_]*_test.go:[0-9]+: /, ""); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: memory
memory: needs ## Flood a process of --memory 600MiB with streams, unfinished messages, clients that never read; print its peak
	@AGENTSTREAM_ATTACKS=all go test -v -count=1 -timeout 40m -run 'TestMemoryOf' ./internal/e2e | awk '
		/^ *--- (FAIL|SKIP)/ { print; fflush() }
		/^ +memory_test.go:/ { sub(/^ +memory_test.go:[0-9]+: /, ""); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: neighbours
neighbours: needs ## Let a tenant read runs of 40,000 open calls; print the p50 and p99 of another tenant, quiet and beside it
	@AGENTSTREAM_ATTACKS=all go test -v -count=1 -timeout 10m -run 'TestNeighbours$$' ./internal/e2e | awk '
		/^ *--- (FAIL|SKIP)/ { print; fflush() }
		/^ +neighbours_test.go:/ { sub(/^ +neighbours_test.go:[0-9]+: /, ""); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: growth
growth: ## Read runs of N, 2N, 4N things of every kind with every dialect, fold and reader: an event costs the same (15 minutes)
	@go test -v -count=1 -timeout 40m -run 'TestEveryEventCostsTheSame$$' ./cmd/agentstream/internal/node -growth.all

ROUNDS_UP ?= 10

.PHONY: topology
topology: needs ## Start what docker-compose.yml describes, as plain processes, ROUNDS_UP times from nothing
	@AGENTSTREAM_TOPOLOGY=$(ROUNDS_UP) go test -v -count=1 -timeout 30m -run 'TestTopology$$' ./internal/e2e

.PHONY: outage
outage: needs ## Take PostgreSQL away for OUTAGE, then NATS for a tenth of it, under 5,000 events/s and 100 watchers
	@AGENTSTREAM_OUTAGE=$(OUTAGE) go test -v -count=1 -timeout 180m -run 'TestPostgresAway|TestNATSAway' ./internal/e2e

.PHONY: archive-rate
archive-rate: needs ## Rows a second of the persister beside bare COPY and bare inserts, of EVENTS events (a tenth for SQLite)
	@AGENTSTREAM_EVENTS=$(EVENTS) go test -v -count=1 -timeout 240m -run 'TestArchiveRate' ./internal/e2e

.PHONY: clean
clean: ## Remove what was built
	@rm -rf bin dist clients/ts/dist
	go clean -testcache

# Measurements. RESULTS is where they are written; BEFORE an earlier binary to take turns with.
BENCH   ?= .
EVENTS  ?= 10000000

.PHONY: bench
bench:
	@pkgs="$(OWN)"
	if [ "$$pkgs" = "./..." ]; then pkgs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u | grep -v '^./bench'); fi
	flags=(-run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m -p 1)
	[ -z "$$pkgs" ] || go test "$${flags[@]}" $$pkgs
	[ -z '$(strip $(BENCHED))' ] || go test -C bench "$${flags[@]}" .

.PHONY: build-bench
build-bench: build ## Build bin/agentstream-bench, which loads a server and checks every delivery
	@CGO_ENABLED=0 go build -C bench -trimpath -ldflags "-s -w" -o ../$(BIN)-bench ./agentstream-bench
	echo "$(BIN)-bench"

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

.PHONY: archive-rate
archive-rate: needs ## Rows a second of the persister beside bare COPY and bare inserts, of EVENTS events (a tenth for SQLite)
	@AGENTSTREAM_EVENTS=$(EVENTS) go test -v -count=1 -timeout 240m -run 'TestArchiveRate' ./internal/e2e

.PHONY: console-figures
console-figures: js ## Open a run of a million events in the console, and follow 200 events/s for ten minutes (LONG=events,seconds,rate)
	@AGENTSTREAM_LONG=$${LONG:-1000000,600,200} go test -v -count=1 -timeout 30m -run 'TestConsoleOfALongRun' ./internal/e2e | sed -n 's/^ *console_test.go:[0-9]*: //p; s/^        //p'

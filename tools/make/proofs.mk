# Long proofs: the long forms of tests that make test runs in short. A new one goes here.
KILLS   ?= 50
OUTAGE  ?= 10m

.PHONY: campaign
campaign: needs ## Kill processes at random KILLS times and compare what was promised with what is left
	@AGENTSTREAM_KILLS=$(KILLS) go test -v -count=1 -timeout 60m ./internal/e2e

.PHONY: proofs
proofs: needs js ## Resume real processes behind every cursor, cut each client 50 times and 200 answers to a writer, kill an edge under the example pages, compare the delay of control events
	@AGENTSTREAM_PROOFS=all go test -v -count=1 -timeout 30m -run 'TestResumeAtEveryCursor|TestPython|TestT3ClientsBehindACuttingProxy|TestControlEventsAreNotDelayed|TestAISDK|TestAGUI|TestResponsesGo|TestExamples' ./internal/e2e

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

.PHONY: langgraph-python
langgraph-python: build ## Run LangGraph's client for Python against one process; it is installed under bin
	@python3 -m venv bin/langgraph-python
	@bin/langgraph-python/bin/pip install --quiet langgraph-sdk==0.4.14
	@bin/langgraph-python/bin/python internal/e2e/python/langgraph.py bin/agentstream

.PHONY: record-sdks
record-sdks: js ## Record agents on the official libraries of OpenAI and Anthropic, for Node and Python: failed calls, tools, crash, Ctrl-C, and what the first token waits longer; they are installed under bin
	@python3 -m venv bin/record-sdks
	bin/record-sdks/bin/pip install --quiet --disable-pip-version-check openai anthropic
	AGENTSTREAM_SDK_PYTHON=$(CURDIR)/bin/record-sdks/bin/python go test -v -count=1 -run TestRecordLibraries ./cmd/agentstream
	go test -run '^$$' -bench BenchmarkFirstToken -benchtime 300x ./adapters/proxy | awk '
		/^BenchmarkFirstToken/ { for (i = 3; i < NF; i++) if ($$(i+1) ~ /^(direct|recorded|added)-p50/) printf "first token, %s: %s\n", $$(i+1), $$i }'

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

.PHONY: tap-kills
tap-kills: needs ## Kill members of taps into PostgreSQL, Kafka and ClickHouse's stand-in, and NATS, KILLS times in total; compare each with the log
	@AGENTSTREAM_KILLS=$(KILLS) go test -v -count=1 -timeout 60m -run 'TestKillTaps' ./internal/e2e

TAPPED ?= 1000000

.PHONY: taps
taps: ## Let three taps of different speed read TAPPED events, one past the log's window; print what watchers and the persister feel
	@AGENTSTREAM_TAP_EVENTS=$(TAPPED) go test -v -count=1 -timeout 60m -run 'TestTapsOfManyEvents' ./tap/natsjs | awk '
		/^ *--- (PASS|FAIL)/ { print; fflush() }
		/^ +many_test.go:/ { sub(/^ +many_test.go:[0-9]+: /, ""); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

DELIVERIES ?= 10000

.PHONY: webhooks
webhooks: needs js python ## Post DELIVERIES events to receivers in Node and Python that fail a third, and check signatures by the library of Standard Webhooks
	@AGENTSTREAM_DELIVERIES=$(DELIVERIES) go test -v -count=1 -timeout 20m -run 'TestWebhookLibraries' ./internal/e2e

PREVIOUS ?= a61788a
# The last revision whose edges name no tenant to row security.
UNSCOPED ?= 357707c
# The last release, which is started again after an upgrade.
LAST ?= 5f3c907

.PHONY: upgrade
upgrade: needs ## Let this release follow PREVIOUS, a revision, under load, and its edges those of PREVIOUS and UNSCOPED
	@old=$$(mktemp -d)
	trap 'rm -rf "$$old"' EXIT
	for revision in $(PREVIOUS) $(UNSCOPED) $(LAST); do
		mkdir "$$old/$$revision"
		git archive $$revision | tar -x -C "$$old/$$revision"
		(cd "$$old/$$revision" && go build -o agentstream ./cmd/agentstream)
	done
	AGENTSTREAM_PREVIOUS="$$old/$(PREVIOUS)/agentstream" go test -tags upgrade -v -count=1 -timeout 20m -run 'TestUpgrade(UnderLoad|Edge)$$' ./internal/e2e
	AGENTSTREAM_PREVIOUS="$$old/$(LAST)/agentstream" go test -tags upgrade -v -count=1 -timeout 20m -run 'TestUpgradeBack$$' ./internal/e2e
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

.PHONY: helm
helm: ## Lint and render the Helm chart, and hold it and the kustomize base to the types of Kubernetes (ARGS=-update writes the goldens)
	@go test -C tools/helmcheck -count=1 . $(ARGS)

.PHONY: collector
collector: ## Send runs to a real OpenTelemetry collector over gRPC and HTTP, kill the tap KILLS times, and let it read examples/otel/collector.yaml
	@AGENTSTREAM_KILLS=$(KILLS) go test -C tools/otelcheck -count=1 -v . | awk '
		/^ *--- (PASS|FAIL)/ { print; fflush() }
		/^ +[a-z]+_test.go:/ { sub(/^ +[a-z]+_test.go:[0-9]+: /, "      "); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

.PHONY: monitoring
monitoring: build ## Test the alarms with promtool, and ask Debian's Prometheus every query of the dashboards over a scrape of the program
	@tools/needs promtool jq curl python3
	tools/monitoring $(BIN)

SAMPLES ?=

.PHONY: otel-samples
otel-samples: build ## Run instrumented programs on packages of PyPI and npm through the proxy, and compare their traces with what it records (SAMPLES="strands ai-sdk")
	@tools/needs python3 node npm
	cd examples/otel
	if [ ! -e .venv/installed ] || [ requirements.txt -nt .venv/installed ]; then
		python3 -m venv --clear .venv
		.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
		touch .venv/installed
	fi
	stamp=node_modules/.package-lock.json
	if [ ! -e "$$stamp" ] || [ package-lock.json -nt "$$stamp" ]; then
		npm ci --no-audit --no-fund --loglevel=error
		touch "$$stamp"
	fi
	.venv/bin/python samples.py ../../$(BIN) $(SAMPLES)

.PHONY: chart
chart: needs ## Start the pods that the Helm chart renders for production, as plain processes, with their probes; do the main job through nginx over HTTP/2, WebSocket and gRPC; end them by their grace
	@go test -tags chart -v -count=1 -timeout 5m -run 'TestChart$$' ./internal/e2e

WATCHERS ?= 1000
EDGES    ?= 3

.PHONY: rolling
rolling: needs ## Replace EDGES edges one by one, with the times of the chart, under WATCHERS watchers and a balancer that learns of it 5 s late
	@AGENTSTREAM_ROLLING=$(WATCHERS) AGENTSTREAM_ROLLING_EDGES=$(EDGES) go test -v -count=1 -timeout 15m -run 'TestRollingReplacement$$' ./internal/e2e | awk '
		/^ *--- (PASS|FAIL)/ { print; fflush() }
		/^ +rolling_test.go:/ { sub(/^ +rolling_test.go:[0-9]+: /, ""); print; fflush() }
		/^(ok|FAIL|panic)/ { print }'

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
PKG     ?= ./...
RUN     ?=
BENCH   ?= .
FUZZTIME ?= 10s
KILLS   ?= 50
ARGS    ?=

.PHONY: help
help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## Run everything in one process, with a demo run (ARGS="--listen …")
	@go build -o $(BIN) ./cmd/agentstream
	exec $(BIN) dev $(ARGS)

.PHONY: build
build: ## Build the static binary bin/agentstream
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN) ./cmd/agentstream
	echo "$(BIN) $(VERSION)"

.PHONY: test
test: needs ## Run all tests on real parts, with the race detector (PKG=./edge/... RUN=TestName RACE=)
	@CGO_ENABLED=$(if $(RACE),1,0) go test $(RACE) -v -count=1 -timeout 20m $(if $(RUN),-run '$(RUN)') $(PKG) 2>&1 | awk -f tools/testsum.awk

.PHONY: needs
needs: ## Install what the tests need: a C compiler for -race, PostgreSQL's programs
	@tools/needs $(if $(RACE),gcc) postgresql

.PHONY: check
check: ## Format, vet, import rules, then all tests
	@unformatted=$$(gofmt -l $$(git ls-files '*.go'))
	if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go test -count=1 .
	$(MAKE) test

.PHONY: bench
bench: ## Run the benchmarks; the comparison with bare NATS comes last (PKG=./bench BENCH=SideBySide)
	@pkgs="$(PKG)"
	if [ "$$pkgs" = "./..." ]; then pkgs=$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u | grep -vx ./bench; echo ./bench); fi
	go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m -p 1 $$pkgs

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

.PHONY: clean
clean: ## Remove what was built
	@rm -rf bin
	go clean -testcache

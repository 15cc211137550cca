# `make` alone prints what can be made. CI runs these targets and nothing else.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN     := bin/agentstream
PKG     ?= ./...
ARGS    ?=

.PHONY: help
help: ## Print the everyday targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	echo "  make help-all     Print all targets: also releases, measurements and long proofs"

.PHONY: help-all
help-all:
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

# Their recipes are in tools/make.
test: ## Run all tests on real parts, with the race detector (PKG=./edge/... RUN=TestName RACE=)
needs: ## Install what the tests need: a C compiler, PostgreSQL's programs, Node, Chromium, Python, an S3 server, jq, curl, nginx
golden: ## Write all golden files anew; read the diff before you commit it
bench: ## Run the benchmarks; the comparison with bare NATS comes last (PKG=./bench BENCH=SideBySide)

.PHONY: console
console: js ## Compile the TypeScript client into the console, which is part of the program
	clients/ts/node_modules/.bin/tsc -p clients/ts --outDir edge/console/static/lib --declaration false --sourceMap false

.PHONY: examples
examples: js ## Serve the example pages, one for each frontend library, at http://127.0.0.1:3000 (beside make run)
	@npm start --prefix examples/web

.PHONY: clean
clean: ## Remove what was built
	@rm -rf bin dist clients/ts/dist
	go clean -testcache

include tools/make/test.mk tools/make/bench.mk tools/make/proofs.mk tools/make/release.mk

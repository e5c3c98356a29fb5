# make run: three nodes on this machine. make test: all tests. Go and make suffice.

GO      ?= go
TAGS    := hashicorpmetrics
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X github.com/holdfast-lock/holdfast/cmd/holdfast/command.version=$(VERSION)
BIN     := bin/holdfast

# Where the race detector matters: what has goroutines. fsm and wire have none of
# their own and run with long loops, so they go without it.
RACED   := ./client/... ./cluster/... ./cmd/...
PLAIN   := ./fsm/... ./wire/... $(if $(wildcard deploy/*.go),./deploy/...)

STATICCHECK_CHECKS := all,-ST1000,-ST1005

.PHONY: run build test lint fuzz bench docs clean

run: build
	$(BIN) dev

build:
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/holdfast

test:
	$(GO) test -tags $(TAGS) -count=1 -timeout 5m $(PLAIN)
	$(GO) test -tags $(TAGS) -count=1 -timeout 8m -race $(RACED)

lint:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted: $$files" >&2; exit 1; fi
	$(GO) vet -tags $(TAGS) ./...
	@command -v staticcheck >/dev/null || { echo "staticcheck is missing: go install honnef.co/go/tools/cmd/staticcheck@v0.8.2" >&2; exit 1; }
	staticcheck -tags $(TAGS) -checks '$(STATICCHECK_CHECKS)' ./...

# Every fuzz target of every package, FUZZTIME each.
FUZZTIME ?= 30s
fuzz:
	@set -e; for pkg in $$($(GO) list -tags $(TAGS) ./...); do \
	  for target in $$($(GO) test -tags $(TAGS) -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; \
	    $(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

bench:
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchmem ./...

# The flags' tables in the README, from the code.
docs: build
	$(BIN) docs README.md

clean:
	rm -rf bin

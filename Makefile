# What one does with Manifold's sources. `make` lists it. Only Go is asked for: the rest is fetched or installed.

GO        ?= go
ARGS      ?=
FUZZTIME  ?= 30s
# Two packages at a time: each test binary has a PostgreSQL of its own. `make lint` vets.
TESTFLAGS ?= -timeout=9m -p=2 -vet=off
# Packages in which several goroutines share something.
RACE      ?= ^$(MODULE)/(aggregate|api|auth|budget|cli/doctor|delivery/.*|drivers/.*|embedded|erasure|eventlog|fairshare|listen|members|outbox.*|pg|projection(/.*)?|rebuild|retention|service|tables|tenant|upcasting)$$

MODULE      := github.com/manifold-es/manifold
STATICCHECK := $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck
# The prose linter, with the rules in tools/vale. It needs a C compiler.
VALE        := $(GO) tool -modfile=$(CURDIR)/tools/go.mod vale --output=line
PROSE       := openapi.yaml asyncapi.yaml README.md CHANGELOG.md CONTRIBUTING.md docs
# Modules of their own, so that the product does not depend on what they need.
NESTED      := $(patsubst %/go.mod,%,$(wildcard tools/*/go.mod examples/*/go.mod))

.DEFAULT_GOAL := help
.PHONY: help dev build test race fuzz generate drift lint check postgresql clean

help: ## list what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: postgresql build ## start a working Manifold with a database of its own; flags in ARGS="..."
	./bin/manifold dev $(ARGS)

build: ## build bin/manifold, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/manifold ./cmd/manifold

test: postgresql ## run every test, on a real PostgreSQL; see CONTRIBUTING.md for other databases
	@# systemtest takes longest: begun last, it would run beside nothing in the end.
	$(GO) test $(TESTFLAGS) ./systemtest ./...
	@for module in $(NESTED); do echo "$(GO) test $$module"; (cd $$module && $(GO) test $(TESTFLAGS) ./...) || exit 1; done
	@# A test that was skipped says nothing where its package passes.
	@[ -n "$$MANIFOLD_TEST_MONGO_URL" ] || echo "NOT RUN: everything on a real MongoDB, since MANIFOLD_TEST_MONGO_URL is not set. FerretDB stood in for it."
	@{ command -v node && command -v npm; } >/dev/null || echo "NOT RUN: EventSource and WebSocket of Node.js, since node or npm is not there."
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo "NOT RUN: EventSource and WebSocket of a browser, since there is no Chromium."
	@[ -n "$$MANIFOLD_TEST_SQLSERVER_URL" ] || echo "NOT RUN: everything on SQL Server, since MANIFOLD_TEST_SQLSERVER_URL is not set. Its statements were compared with their files."

# Without what one goroutine does: the drivers' conformance in JSON's values, predicates and orders. MongoDB's second
# layout runs the code of the first.
race: postgresql ## run the tests of the concurrent packages with the race detector
	$(GO) test -race -skip='^TestConformanceOfLayout2$$|^TestConformance.*/^(Predicate|Order|Partition|Values)$$' -timeout=20m -p=2 -vet=off $$($(GO) list ./... | grep -E '$(RACE)')

fuzz: postgresql ## run every fuzz test for FUZZTIME (30s) each
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$(GO) test -fuzz=$$name $$(dirname "$$file")"; \
			$(GO) test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

generate: ## make the generated code anew
	$(GO) generate ./...

drift: ## fail where the generated code is not what its source gives
	@before=$$(git status --porcelain; git diff); \
	$(MAKE) --no-print-directory generate && \
	after=$$(git status --porcelain; git diff) && \
	if [ "$$before" != "$$after" ]; then \
		git status --short; git --no-pager diff --stat; \
		echo "generated code has drifted from its source: run make generate, and commit what it changes"; exit 1; \
	fi

lint: ## gofmt, go vet, staticcheck, and the prose of comments, contracts and pages
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	@echo vale; $(VALE) $(PROSE) $$(git ls-files '*.go' | grep -v '\.gen\.go$$')
	@for module in $(NESTED); do echo "$(GO) vet, staticcheck $$module"; \
		(cd $$module && $(GO) vet ./... && $(STATICCHECK) ./...) || exit 1; done

check: build lint drift test race ## everything that CI does

postgresql: # install PostgreSQL where there is none and it can be
	@tools/install-postgresql

clean: ## remove what was built; the data of `make dev` in .manifold stays
	rm -rf bin

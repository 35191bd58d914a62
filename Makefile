# Run `make` to list the targets. You need Go; everything else is downloaded or installed.

GO        ?= go
ARGS      ?=
FUZZTIME  ?= 30s
VERSION   ?= 14 18
# Two packages at a time, since each test binary starts a PostgreSQL, and three tests of each at a time, since some of
# them only wait. `make lint` runs go vet. Without data for debuggers, linking takes a third less time.
TESTFLAGS ?= -timeout=30m -p=2 -parallel=3 -vet=off -ldflags=-w
# What `make test` tests. systemtest takes longest, so it starts first.
PACKAGES  ?= ./systemtest ./...
# Packages in which goroutines share state. Others, whose state is in a database, run with the detector as part of
# service only.
RACE      ?= ^$(MODULE)/(aggregate|api(/.*)?|budget|client|delivery/.*|drivers|eventlog|fairshare|limits|listen|members|outbox|pg|projection(/.*)?|rebuild|seal|service)$$

# The packages with the log's SQL, the slow ones first, without their longest tests, which depend on our code more than
# on the server's version: faults, kills and models. And tests of the whole service, one of which crashes PostgreSQL.
SQL         := ./drivers/postgres ./delivery/group ./delivery/webhook ./delivery/report ./eventlog ./pg ./retention ./migrations ./tables ./aggregate ./outbox/postgres ./projection/registry ./schema ./tenant ./auth ./members ./erasure ./erasure/subjects ./seal ./limits ./usage ./projection/totals ./signing
SQLSKIP     := ^Test(Faults|GroupsUnderKills|LedgerInvariants|GroupModel|LostConnectionsUnderLoadSaveOnce|VeryMany.*)$$
SQLSYSTEM   := ^Test(EveryLoginInSQL|SavesLostInACrash|DeletedTenant)$$

# The packages that CI tests with the race detector, those with SQL that it does not, and all others.
RACED        = $(shell $(GO) list ./... | grep -E '$(RACE)')
UNRACEDSQL   = $(filter-out $(RACED:$(MODULE)/%=./%),$(SQL))
OTHERS       = $(filter-out $(SQL:./%=$(MODULE)/%) $(MODULE)/systemtest $(RACED),$(shell $(GO) list ./...))

MODULE      := github.com/manifold-es/manifold
STATICCHECK := $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck
# The prose linter. Its rules are in tools/vale, and it needs a C compiler.
VALE        := CGO_ENABLED=1 $(GO) tool -modfile=$(CURDIR)/tools/go.mod vale --output=line
PROSE       := openapi.yaml asyncapi.yaml README.md CHANGELOG.md CONTRIBUTING.md docs client/README.md client/typescript/README.md
# Separate modules, whose dependencies are not dependencies of Manifold.
NESTED      := $(patsubst %/go.mod,%,$(wildcard tools/*/go.mod examples/*/go.mod))

.DEFAULT_GOAL := help
.PHONY: help dev build test test-postgresql test-engines test-sql test-unraced-sql screenshots race fuzz generate drift lint check release postgresql clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: postgresql build ## run a complete service with a private database; flags in ARGS="..."
	./bin/manifold dev $(ARGS)

build: ## build bin/manifold, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/manifold ./cmd/manifold

test: postgresql ## run every test, on a real PostgreSQL; see CONTRIBUTING.md for other databases; SKIP=PATTERN leaves tests out
	$(GO) test $(TESTFLAGS) $(if $(SKIP),-skip='$(SKIP)') $(PACKAGES)
	@for module in $(NESTED); do echo "$(GO) test $$module"; (cd $$module && $(GO) test $(TESTFLAGS) ./...) || exit 1; done
	@# go test does not report skipped tests of packages that pass.
	@[ -n "$$MANIFOLD_TEST_MONGO_URL" ] || echo "NOT RUN: tests on a real MongoDB, because MANIFOLD_TEST_MONGO_URL is not set. They ran on FerretDB."
	@[ -n "$$MANIFOLD_TEST_KAFKA_BROKER" ] || echo "NOT RUN: tests on a real Kafka, because MANIFOLD_TEST_KAFKA_BROKER is not set. They ran on a fake."
	@{ command -v node && command -v npm; } >/dev/null || echo "NOT RUN: tests with clients in Node.js, because node or npm is not installed."
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo "NOT RUN: tests with clients in a browser, because Chromium is not installed."
	@[ -n "$$MANIFOLD_TEST_CITUS_URLS" ] || echo "NOT RUN: tests on a Citus cluster, because MANIFOLD_TEST_CITUS_URLS is not set. They ran on one PostgreSQL."
	@[ -n "$$MANIFOLD_TEST_SQLSERVER_URL" ] || echo "NOT RUN: tests on SQL Server, because MANIFOLD_TEST_SQLSERVER_URL is not set. Its statements were compared with the files in testdata."

test-postgresql: ## run the tests of the log's SQL on PostgreSQL VERSION="14 18", downloaded by npm (Linux on x64)
	@for version in $(VERSION); do \
		programs=$$(tools/postgresql/install $$version) && echo "PostgreSQL $$version: $$programs" && \
		PATH="$$programs:$$PATH" $(MAKE) --no-print-directory test-sql || exit 1; \
	done

test-engines: postgresql ## run every test with MongoDB, Citus, NATS, Kafka, and SQL Server if SQLSERVER_IMAGE is set (Docker)
	tools/engines/run

test-sql:
	$(GO) test $(TESTFLAGS) -skip='$(SQLSKIP)' $(SQL)
	$(GO) test $(TESTFLAGS) -run='$(SQLSYSTEM)' ./systemtest

test-unraced-sql:
	$(MAKE) --no-print-directory test-sql SQL='$(UNRACEDSQL)' SQLSKIP=none

screenshots: postgresql ## take the screenshots of the console for the documentation again; see CONTRIBUTING.md
	MANIFOLD_TEST_SCREENSHOTS=$(CURDIR)/docs/images/console MANIFOLD_TEST_CLIENTS=required $(GO) test -count=1 -timeout=30m -run='^TestConsoleScreenshots$$' -v ./systemtest

# Long tests that use one goroutine, and those of MongoDB's second layout, which runs the code of the first, run without
# the detector. It makes tests slow, so run no more at once than there are processors.
UNRACED     := TheOperatorRedactsWhatCannotBeRead|ReadersStepOverUnreadableEvents|LiveProjectionsAreLimited|EvaluationIsBounded
UNRACED     := $(UNRACED)|ViewPipelineOfManyOverrides|.*ReadLittle|LineReader|ReadLines|Parts|Plans|NoTextIsAFault|LimitsOfBodies|EventContractIsBounded
UNRACED     := $(UNRACED)|PreviewsOfAggregatesAreBounded|DecidersDecideAsDefinitions|TrialsHaveBoundaries|PutChecksExpressionsForTags|BytesOfFloors
# With the race detector, Go 1.26 may crash in the timers of a test with a clock of its own (testing/synctest).
UNRACED     := $(UNRACED)|BacklogsTogetherLeaveRoomForAppends|AppendingForCountsTimeOnce
RACESKIP    := ^Test($(UNRACED)|ConformanceOfLayout2)$$|^TestConformance.*/^(Predicate|Order|Partition|Values)$$
RACESKIP    := $(RACESKIP)|^TestConformance.*/^Save$$/^a_document_that_cannot_be_kept
# The packages with such tests, so that the others are not linked again.
HASUNRACED   = $(filter $(RACED),$(addprefix $(MODULE)/,$(shell grep -rlE --include='*_test.go' '^func Test($(UNRACED)|Conformance.*)\>' * | xargs -n1 dirname | sort -u)))

race: postgresql ## run the tests of the concurrent packages with the race detector, and those that it would slow down without
	CGO_ENABLED=1 $(GO) test -race -skip='$(RACESKIP)' -timeout=30m -p=2 -parallel=$$(getconf _NPROCESSORS_ONLN) -vet=off -ldflags=-w $(RACED)
	$(GO) test $(TESTFLAGS) -run='$(RACESKIP)' $(if $(SKIP),-skip='$(SKIP)') $(HASUNRACED)

fuzz: postgresql ## run every fuzz test for FUZZTIME (30s) each
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$(GO) test -fuzz=$$name $$(dirname "$$file")"; \
			$(GO) test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

generate: ## regenerate the generated code
	$(GO) generate ./...

drift: ## fail if the generated code differs from what its source generates
	@before=$$(git status --porcelain; git diff); \
	$(MAKE) --no-print-directory generate && \
	after=$$(git status --porcelain; git diff) && \
	if [ "$$before" != "$$after" ]; then \
		git status --short; git --no-pager diff --stat; \
		echo "the generated code is out of date: run make generate, and commit the changes"; exit 1; \
	fi

lint: ## run gofmt, go vet, staticcheck, and the prose linter
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	@echo vale; $(VALE) $(PROSE) $$(git ls-files '*.go' | grep -v '\.gen\.go$$')
	@for module in $(NESTED); do echo "$(GO) vet, staticcheck $$module"; \
		(cd $$module && $(GO) vet ./... && $(STATICCHECK) ./...) || exit 1; done

check: build lint drift test race ## do all that CI does, on one version of PostgreSQL

release: ## build the files of a release in dist/, for PLATFORMS="linux/amd64 ..." (default: all)
	cd tools/release && $(GO) run . -out $(CURDIR)/dist $(if $(PLATFORMS),-platforms '$(PLATFORMS)')

postgresql: # install PostgreSQL if it is missing and can be installed
	@tools/install-postgresql

clean: ## remove the build; the data of `make dev` in .manifold stays
	rm -rf bin dist

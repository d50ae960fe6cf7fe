# `make` alone lists the targets. Those that need servers start them on free loopback ports.

COUNT    ?= 20
FUZZTIME ?= 30s
DURATION ?= 4h
HOURS    ?= 100
BENCH    ?= .
BENCHTIME ?= 1s

.DEFAULT_GOAL := help
.PHONY: help test full race stress fuzz nightly simulate bench bench-budget bench-shared bench-readme keygen format vet lint servers mutants mutant-edit spec traces check release ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## all tests of all modules, in little more than a minute; nothing but Go is needed
	go test work

full: ## the tests that `make test` leaves out: full sizes, every state of the explorer's worlds, the page in a browser
	.ci/run full-size explore browser

race: ## the same with the race detector
	go test -race work

stress: ## the stress tests again and again, with the race detector (COUNT=20)
	go test -race -run 'Stress|Storm|Hammer' -count $(COUNT) -timeout 1h work

fuzz: ## every fuzz test for a while (FUZZTIME=30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$name"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) .) || exit 1; \
		done; \
	done

nightly: ## histories of processes under random faults (DURATION=4h)
	go test ./faults -run Histories -duration $(DURATION) -timeout 0 -v

simulate: ## processes under random faults in virtual time (HOURS=100), one or two seconds for an hour
	go test ./faults -run Simulation -hours $(HOURS) -timeout 0 -v

bench: ## the benchmarks (BENCH=. BENCHTIME=1s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 1h work

BUDGET = -rounds 5 -duration 700ms -only relock,cohort,rueidislock-1,redsync,redislock-exponential

bench-budget: ## docs/performance.md on one CPU and on two, then README's numbers: 16 minutes of a quiet machine
	go build -o bench/report/bench ./bench
	taskset -c 0 bench/report/bench $(BUDGET) -workloads uncontended,fresh,fresh-2x20,own,many,1x100,5x20,5x20-1ms,5x20-zipf -out bench/report/one-cpu
	bench/report/bench $(BUDGET) -workloads fresh-2x20,own -io-threads 4 -out bench/report/io-threads
	bench/report/bench $(BUDGET),cohort-linger
	bench/report/bench -readme

SHARED = rw-99,rw-90,rw-50,rw-99-1ms,rw-90-1ms,rw-50-1ms,semaphore-50,semaphore-3

bench-shared: ## read-write locks and semaphores, of docs/performance.md: under 6 minutes of a quiet machine; docs/bench/shared
	go build -o bench/report/bench ./bench
	if command -v mvn && command -v javac; then $(MAKE) bench/report/redisson/Peer.class; fi
	if test -e bench/report/redisson/Peer.class; then export RELOCK_REDISSON=$(CURDIR)/bench/report/redisson; fi; \
		bench/report/bench -rounds 3 -duration 700ms -workloads $(SHARED) -out docs/bench/shared

bench/report/redisson/Peer.class: bench/internal/contender/java/Peer.java redisbackend/redisson/java/pom.xml
	mvn --quiet --batch-mode --file redisbackend/redisson/java dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	javac -cp '$(@D)/*' -d $(@D) $<

bench-readme: ## write the README's numbers and docs/bench from bench/report (go run ./bench measures them)
	go run ./bench -readme

keygen: ## the key generator on embedded parts (go run ./examples/keygen -help)
	go run ./examples/keygen

format: ## format the Go files with gofmt
	gofmt -l -w .

vet: ## go vet, and checks that the mutants' patches apply and that each package has a rule of the linter
	.ci/stages/vet

lint: ## golangci-lint with the short list in .golangci.yml
	.ci/run lint

servers: ## all tests with the race detector and a real Redis, Redis 6.2 and Valkey, keygen with MariaDB and PostgreSQL
	.ci/run race other-servers keygen-servers

mutants: ## seed faults into copies of the code, one at a time; the tests must fail
	.ci/mutants

mutant-edit: ## add mutants of a package, or repair a patch that no longer applies (PKG=reentrant)
	.ci/mutants -edit $(PKG)

spec: ## the specification in TLA+, and whether it needs each of its rules (spec/README.md)
	.ci/spec

traces: ## whether the specification explains traces of the code (spec/README.md)
	.ci/traces
	.ci/traces -shares

check: ## the checks to run before every commit
	.ci/run format vet test lint

release: ## run all stages of `make ci` and make a release, which is not pushed (VERSION=v0.1.0; CHECKED=commit: they have passed for it)
	CHECKED=$(CHECKED) .ci/release $(VERSION)

ci: ## all stages of .ci/run but those of the night
	.ci/run

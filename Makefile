# Headers are fetched into the checkout, where git ignores them.
export CUDABIND_HEADERS ?= $(CURDIR)/headers/include

GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The raw packages, whose calls lean on what cgo checks today.
RAW = ./cuda/...
# Simulated drivers of other versions are for make test-race.
ONE_DRIVER = -skip '^TestSimOtherDrivers$$'
# A newer Go than the one go.mod asks for.
NEXT_GO = go1.27.3

.PHONY: help generate test test-all test-race proofs test-checks test-next-go libraries api check fmt vet staticcheck provenance portable api-check uptodate bench storm example gpu-test-bundle

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## fetch the pinned headers, verify them, regenerate every raw package
	$(GO) run ./tools/headers fetch all >/dev/null
	$(GO) generate ./cuda/...

# say tells which part of the tests begins.
say = @printf '\n== %s\n'

test: ## run the tests, in less than 3 minutes: the newest headers, one driver
	$(say) 'every package, with the newest headers and one driver (make test-all does the rest)'
	$(GO) test -short ./...

test-all: test-race proofs test-checks test-next-go ## run everything, as CI does
	$(say) 'random programs'
	$(MAKE) storm RACE=1

test-race:
	$(say) 'every package with the race detector, on simulated drivers of 4 versions'
	$(GO) test -race -timeout 30m ./...

proofs: ## prove every version's package and comments against NVIDIA's headers and the C compiler
	$(say) 'the package of every CUDA version against its headers and the C compiler'
	$(GO) test -timeout 30m -run '^TestProof' ./gen
	$(say) 'comments and facts of every CUDA version'
	$(GO) test ./gen/doc ./tools/headers

test-checks: ## run the tests of the calls under the other checks that Go has
	$(say) 'calls, with pointer conversions checked'
	$(GO) test $(ONE_DRIVER) -gcflags=all=-d=checkptr $(RAW)
	$(say) 'calls, with pointers to Go memory in C checked'
	GOEXPERIMENT=cgocheck2 $(GO) test $(ONE_DRIVER) $(RAW)
	$(say) 'package safe, with the order of its locks checked'
	$(GO) test -skip '^(TestSimOtherDrivers|TestNoAllocations|TestCaptureIsNotStarved)$$' -tags cudabind_lockorder ./cuda/safe

test-next-go: ## run the tests of the calls with a newer Go
	$(say) 'calls, with $(NEXT_GO)'
	GOTOOLCHAIN=$(NEXT_GO) $(GO) test $(ONE_DRIVER) $(RAW)

libraries: ## get real CUDA libraries for the tests: they load without a GPU
	sh tools/libcuda.sh .cache/libcuda
	sh tools/libraries.sh .cache

bench: ## compare the calls with C
	$(GO) test -run '^$$' -bench . ./cuda/generated/driver

SECONDS ?= 60
STORM = -seconds $(SECONDS)
storm: ## run random programs on the simulated driver for SECONDS, with the race detector if RACE=1
	$(GO) run $(if $(RACE),-race) ./tools/storm -sim $(STORM)

example: ## add two vectors on the GPU, or on the simulated driver where there is none
	@$(GO) build -o .cache/vectoradd ./examples/vectoradd
	@out=$$($(CUDABIND_EXEC) .cache/vectoradd 2>&1); code=$$?; \
	if [ $$code = 2 ]; then \
		echo "no CUDA driver or no GPU found: on the simulated driver"; \
		$(GO) run ./tools/simdriver -o .cache/sim >/dev/null && LD_LIBRARY_PATH=.cache/sim $(CUDABIND_EXEC) .cache/vectoradd; \
	else \
		echo "$$out"; exit $$code; \
	fi

gpu-test-bundle: ## build tests that run on a machine with a GPU and without Go: sh .gpu/bundle/run.sh
	GO="$(GO)" sh tools/gpu/bundle.sh .gpu/bundle

check: fmt vet staticcheck provenance portable api-check uptodate ## formatting, vet, staticcheck, header prose, other platforms, the exported API, generated code

fmt:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "gofmt these:"; echo "$$out"; exit 1; }

vet:
	$(GO) vet ./...

staticcheck:
	$(STATICCHECK) ./...

provenance: ## fail where a file holds a sentence of NVIDIA's headers
	$(GO) run ./tools/provenance

portable:
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...
	CGO_ENABLED=0 GOOS=windows $(GO) build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) vet ./...

api: ## write the exported API of the public packages to api/
	$(GO) run ./tools/api -w

# Whoever changes the API tells users: api/ must be as it was when CHANGELOG.md
# was last changed.
api-check: ## fail where the exported API is not what api/ says, or CHANGELOG.md says nothing of a change
	$(GO) run ./tools/api
	@git diff --quiet HEAD -- CHANGELOG.md || exit 0; \
	git diff --exit-code --stat "$$(git log -1 --first-parent --format=%H -- CHANGELOG.md)" -- api || \
		{ echo "api/ has changed since CHANGELOG.md: add a line there that tells users"; exit 1; }

uptodate: generate ## fail where the raw packages or the README's tables and Go are not what they are made of
	$(GO) run ./tools/readme
	@test -z "$$(git status --porcelain -- cuda/generated README.md docs headers)" || { git status --short -- cuda/generated README.md docs headers; echo "generated files are not up to date: commit what make uptodate wrote"; exit 1; }

# Headers are fetched into the checkout, where git ignores them.
export CUDABIND_HEADERS ?= $(CURDIR)/headers/include

GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The raw packages, whose calls lean on what cgo checks today.
RAW = ./cuda/...
# Simulated drivers of other versions are for make test.
ONE_DRIVER = -skip '^TestSimOtherDrivers$$'
# A newer Go than the one go.mod asks for.
NEXT_GO = go1.27.3

.PHONY: help generate test proofs test-checks test-next-go libraries check fmt vet staticcheck provenance portable freeze uptodate bench storm example gpu-test-bundle

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## fetch the pinned headers, verify them, regenerate every raw package
	$(GO) run ./tools/headers fetch all >/dev/null
	$(GO) generate ./cuda/...

test: ## run every test with the race detector
	$(GO) test -race -timeout 30m ./...

proofs: ## prove every version's package and comments against NVIDIA's headers and the C compiler
	$(GO) test -timeout 30m -run '^TestProof' ./gen
	$(GO) test ./gen/doc ./tools/headers

test-checks: ## run the tests of the calls under the other checks that Go has
	$(GO) test $(ONE_DRIVER) -gcflags=all=-d=checkptr $(RAW)
	GOEXPERIMENT=cgocheck2 $(GO) test $(ONE_DRIVER) $(RAW)
	$(GO) test -skip '^(TestSimOtherDrivers|TestNoAllocations|TestCaptureIsNotStarved)$$' -tags cudabind_lockorder ./cuda/safe

test-next-go: ## run the tests of the calls with a newer Go
	GOTOOLCHAIN=$(NEXT_GO) $(GO) test $(ONE_DRIVER) $(RAW)

libraries: ## get real CUDA libraries for the tests: they load without a GPU
	sh tools/libcuda.sh .cache/libcuda
	sh tools/libcudart.sh .cache/libcudart

bench: ## compare the calls with C
	$(GO) test -run '^$$' -bench . ./cuda/generated/driver

SECONDS ?= 60
STORM = -seconds $(SECONDS)
storm: ## run random programs on the simulated driver for SECONDS, with the race detector if RACE=1
	$(GO) run $(if $(RACE),-race) ./tools/storm -sim $(STORM)

example: ## add two vectors on the GPU, or on the simulated driver where there is none
	@$(GO) build -o .cache/vectoradd ./examples/vectoradd
	@out=$$(.cache/vectoradd 2>&1); code=$$?; \
	if [ $$code = 2 ]; then \
		echo "no CUDA driver or no GPU found: on the simulated driver"; \
		$(GO) run ./tools/simdriver -o .cache/sim >/dev/null && LD_LIBRARY_PATH=.cache/sim .cache/vectoradd; \
	else \
		echo "$$out"; exit $$code; \
	fi

gpu-test-bundle: ## build tests that run on a machine with a GPU and without Go: sh .gpu/bundle/run.sh
	GO="$(GO)" sh tools/gpu/bundle.sh .gpu/bundle

check: fmt vet staticcheck provenance portable freeze uptodate ## formatting, vet, staticcheck, header prose, other platforms, generated code

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

freeze: ## fail where the raw packages changed what the newest release has
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "freeze: nothing is released yet"; exit 0; }; \
	for p in driver cudart12 cudart13; do $(GO) run ./tools/apidiff -go cuda/generated/$$p $$tag . || exit 1; done

uptodate: generate ## fail where the raw packages or the README's tables and Go are not what they are made of
	$(GO) run ./tools/readme
	@test -z "$$(git status --porcelain -- cuda/generated README.md docs)" || { git status --short -- cuda/generated README.md docs; echo "generated files are not up to date: commit what make uptodate wrote"; exit 1; }

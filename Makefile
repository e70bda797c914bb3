# Headers are fetched into the checkout, where git ignores them.
export CUDABIND_HEADERS ?= $(CURDIR)/headers/include

GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Tests that build programs, load many libraries, start many processes, read the process's map or let each call fail take
# minutes under an emulator: amd64 runs them with and without cgo.
SOME = -short -skip '^(TestBuild.*|TestBadLibraryByName|TestSimFaultSweep|TestFact.*|TestGreenOperations)$$'
# A newer Go than the one go.mod asks for.
NEXT_GO = go1.27.4
# What starts no goroutines, but parses, type-checks or builds for minutes with the race detector.
SEQUENTIAL = gen gen/doc tools tools/api tools/apidiff tools/provenance tools/readme
# One package more than there are processors is tested at a time, as some wait.
AT_ONCE = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.PHONY: help generate test test-all test-race proofs on-request test-checks test-nocgo test-windows test-arm64 libraries api check fmt vet staticcheck provenance portable api-check uptodate bench storm example gpu-test-bundle

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## fetch the pinned headers, verify them, regenerate every raw package
	$(GO) run ./tools/headers fetch all >/dev/null
	$(GO) generate ./cuda/...

# say tells which part of the tests begins.
say = @printf '\n== %s\n'

test: ## run the tests, in about 3 minutes: the newest headers, one driver
	$(say) 'every package, with the newest headers and one driver (make test-all does the rest)'
	$(GO) test -short -p $(AT_ONCE) ./...

test-all: test-race proofs on-request test-checks ## run everything, as CI does
	$(say) 'other ways of calling, two at a time, as an emulator keeps one processor busy'
	$(MAKE) -j2 -Otarget test-arm64 test-nocgo test-windows
	$(say) 'random programs'
	$(MAKE) storm RACE=1

test-race:
	$(say) 'every package with the race detector, package safe on simulated drivers of 2 versions'
	$(GO) test -race -timeout 30m $$($(GO) list ./... | grep -v $(SEQUENTIAL:%=-e '/cudabind/%$$'))

proofs: ## test the generator and its tools in full, and prove every version's package and comments against NVIDIA's headers and the C compiler
	$(say) 'the generator, and the package of every CUDA version against its headers and the C compiler'
	$(GO) test -timeout 30m -skip '^TestProof(Requested|Ways)$$' ./gen
	$(say) 'comments and facts of every CUDA version; tools'
	$(GO) test ./gen/doc ./tools/headers ./tools ./tools/readme

on-request: ## generate, build and prove the libraries that are bound on request
	$(say) 'the package of every library on request, against its headers and the C compiler'
	$(GO) run ./tools/headers fetch requested >/dev/null
	@mkdir -p .cache
	$(GO) test -timeout 30m -count=1 -v -run '^TestProofRequested$$' ./gen >.cache/on-request.log 2>&1; code=$$?; \
	grep -v '^ *--- PASS\|^=== ' .cache/on-request.log; exit $$code

# Checks that go together: with a newer Go, of pointers to Go memory in C, and of the order of locks.
CHECKED = GOTOOLCHAIN=$(NEXT_GO) GOEXPERIMENT=cgocheck2 $(GO) test -short -tags cudabind_lockorder \
	-skip '^(TestNoAllocations|TestBatchAcrossAllocatesNothing|TestCounts|TestCaptureIsNotStarved)$$'

test-checks: ## run the tests of the calls under the other checks that Go has, with a newer Go
	$(say) 'calls with $(NEXT_GO), with pointers to Go memory in C and the order of locks checked'
	$(CHECKED) $$($(GO) list ./cuda/... | grep -v '/cuda/safe$$')
	$(say) 'package safe, with the same and data races in its C checked'
	CGO_CFLAGS='-g -O2 -fsanitize=thread' CGO_LDFLAGS=-fsanitize=thread TSAN_OPTIONS=halt_on_error=1 $(CHECKED) ./cuda/safe
	$(say) 'package safe on simulated drivers of 2 more versions'
	$(GO) test -run '^TestSimOtherDrivers$$/^1[23]' ./cuda/safe

test-nocgo: ## run the tests of the raw packages and of package safe without cgo, by the tag cudabind_nocgo
	$(say) 'raw packages without cgo'
	CGO_ENABLED=0 $(GO) test -tags cudabind_nocgo ./cuda/generated/... ./cuda/internal/...
	$(say) 'package safe without cgo, with pointer conversions checked'
	CGO_ENABLED=0 $(GO) test -short -tags cudabind_nocgo -gcflags=github.com/...=-d=checkptr ./cuda/internal/rt ./cuda/safe/...
	$(GO) test -run '^TestProofWays$$/^linux_amd64_without_cgo$$' ./gen

# The C compilers for other systems, and what runs their programs: Debian's packages
# wine64, gcc-mingw-w64-x86-64, gcc-aarch64-linux-gnu and qemu-user.
WINE = $(CURDIR)/tools/wine/wine.sh
QEMU = qemu-aarch64 -L /usr/aarch64-linux-gnu
ARM64 = GOARCH=arm64 CC=aarch64-linux-gnu-gcc CUDABIND_EXEC="$(QEMU)"

test-windows: ## run the tests of the raw packages and of package safe under wine
	$(say) 'raw packages on Windows, under wine'
	rm -rf .cache/dll && mkdir -p .cache/dll
	CUDABIND_TEST_LIBRARIES=$(CURDIR)/.cache/dll CC=x86_64-w64-mingw32-gcc CGO_ENABLED=0 \
		$(GO) test -count=1 -tags cudabind_nocgo -run '^TestPrebuild$$' ./cuda/generated/driver
	CUDABIND_TEST_LIBRARIES='Z:$(subst /,\,$(CURDIR)/.cache/dll)' GOOS=windows CGO_ENABLED=0 $(GO) test -exec '$(WINE)' ./cuda/generated/driver
	$(say) 'package safe on Windows, under wine'
	CC=x86_64-w64-mingw32-gcc CGO_ENABLED=0 $(GO) run ./tools/simdriver -o .cache/dll >/dev/null
	x86_64-w64-mingw32-gcc -shared -o .cache/dll/tool.dll cuda/internal/nvtx/testdata/tool.c
	CUDABIND_SIM='Z:$(subst /,\,$(CURDIR)/.cache/dll)\nvcuda.dll' CUDABIND_NVTX_TOOL='Z:$(subst /,\,$(CURDIR)/.cache/dll)\tool.dll' GOOS=windows CGO_ENABLED=0 \
		$(GO) test -count=1 -short -timeout 20m -exec '$(WINE)' ./cuda/internal/... ./cuda/safe/...
	$(GO) test -run '^TestProofWays$$/^windows_amd64$$' ./gen

test-arm64: ## run the tests of the raw driver package and of libraries with cgo, of package safe without, under qemu
	$(say) 'raw calls and libraries on arm64 with cgo, package safe without, under qemu'
	$(ARM64) CGO_ENABLED=1 $(GO) test $(SOME) -timeout 30m -exec '$(QEMU)' ./cuda/internal/lifetime ./cuda/internal/rt ./cuda/generated/driver ./cuda/safe/blas ./cuda/safe/random
	$(ARM64) CGO_ENABLED=0 $(GO) test $(SOME) -timeout 15m -tags cudabind_nocgo -exec '$(QEMU)' ./cuda/internal/... ./cuda/generated/driver ./cuda/safe
	$(GO) test -run '^TestProofWays$$/^linux_arm64/^(driver|runtime|curand)$$' ./gen

libraries: ## get real CUDA libraries for the tests: they load without a GPU
	sh tools/libcuda.sh .cache/libcuda
	sh tools/libraries.sh .cache

bench: ## compare the calls with C
	$(GO) test -run '^$$' -bench . ./cuda/generated/driver

SECONDS ?= 60
STORM = -seconds $(SECONDS)
storm: ## run random programs on the simulated driver for SECONDS, with the race detector if RACE=1
	$(if $(RACE),GORACE=atexit_sleep_ms=0) $(GO) run $(if $(RACE),-race) ./tools/storm -sim $(STORM)

example: ## run the README's program on the GPU, or on the simulated driver where there is none
	@$(GO) build -o .cache/vectoradd ./examples/vectoradd
	@out=$$($(CUDABIND_EXEC) .cache/vectoradd 2>&1); code=$$?; \
	case "$$out" in *libcuda.so*|*NO_DEVICE*) \
		echo "no CUDA driver or no GPU found: on the simulated driver"; \
		$(GO) run ./tools/simdriver -o .cache/sim -kernels examples/vectoradd/testdata/kernels.c >/dev/null && \
			LD_LIBRARY_PATH=.cache/sim $(CUDABIND_EXEC) .cache/vectoradd;; \
	*) \
		echo "$$out"; exit $$code;; \
	esac

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
	$(GO) run ./tools/headers fetch all >/dev/null
	$(GO) run ./tools/provenance

portable:
	$(GO) run ./tools/portable
	CGO_ENABLED=0 GOOS=windows $(GO) vet ./cuda/...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) vet -tags cudabind_nocgo ./cuda/...
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 $(GO) vet -tags cudabind_nocgo ./cuda/...

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

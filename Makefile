# Headers are fetched into the checkout, where git ignores them.
export CUDABIND_HEADERS ?= $(CURDIR)/headers/include

GO ?= go
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help generate test check fetch fmt vet staticcheck provenance portable uptodate

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## fetch the pinned headers, verify them, regenerate every raw package
	$(GO) run ./tools/headers fetch all >/dev/null
	$(GO) generate ./...

test: ## run every test with the race detector
	$(GO) test -race ./...

check: fmt vet staticcheck provenance portable uptodate ## formatting, vet, staticcheck, header prose, other platforms, generated code

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

uptodate: generate ## fail where the raw packages are not what the generator prints
	@test -z "$$(git status --porcelain -- cuda/generated)" || { git status --short -- cuda/generated; echo "generated code is not up to date: commit what make generate wrote"; exit 1; }

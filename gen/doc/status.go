package doc

import (
	_ "embed"
	"strings"
	"sync"
)

// statusTable says in a few words of our own what each status code means.
//
//go:embed status.txt
var statusTable string

var statusText = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(statusTable) {
		line = strings.TrimSpace(line)
		if name, text, ok := strings.Cut(line, " "); ok && name != "#" {
			m[name] = strings.TrimSpace(text)
		}
	}
	return m
})

// notSupported are the codes that say that this machine, driver, library or
// program cannot do what was asked for.
var notSupported = map[string]bool{
	"CUDA_ERROR_NOT_SUPPORTED": true, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": true,
	"CUDA_ERROR_STUB_LIBRARY": true, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC": true,
	"cudaErrorNotSupported": true, "cudaErrorCallRequiresNewerDriver": true,
	"cudaErrorStubLibrary": true, "cudaErrorUnsupportedDevSideSync": true,
	"CUBLAS_STATUS_NOT_SUPPORTED": true, "CUBLAS_STATUS_ARCH_MISMATCH": true,
	"CUFFT_NOT_SUPPORTED": true, "CUFFT_NOT_IMPLEMENTED": true,
	"CURAND_STATUS_ARCH_MISMATCH": true, "CURAND_STATUS_DOUBLE_PRECISION_REQUIRED": true,
	"NVML_ERROR_NOT_SUPPORTED": true, "NVML_ERROR_FUNCTION_NOT_FOUND": true, "NVML_ERROR_DEPRECATED": true,
}

// status gives the status codes their text.
func (w *writer) status() {
	for _, d := range w.api.Decls {
		if !d.Error {
			continue
		}
		for _, c := range d.Enumerators {
			c.Text = statusText()[c.C]
			if c.Text != "" {
				c.Doc = wrap(sentence(c.Text))
			}
			c.Unsupported = notSupported[c.C]
		}
	}
}

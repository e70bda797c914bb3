//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/require"
)

func BenchmarkGPU(b *testing.B) {
	gpu(b)
	file, _, err := driver.Library()
	require.NoError(b, err)
	stream, nothing := newStream(b, driver.CU_STREAM_NON_BLOCKING), kernel(b, "nothing")
	benchmarkEmpty(b)
	benchmarkVersion(b, file)
	benchmarkQuery(b, file, "done", stream)
	benchmarkLaunch(b, file, nothing, stream)
	require.NoError(b, driver.CuStreamSynchronize(stream))
}

package doc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// A package speaks of the runtime of its own major version.
func TestPackageNamesItsRuntime(t *testing.T) {
	for version, want := range map[string]string{"12.6": "cudart12.CudaStream_t(stream)", "13.5": "cudart13.CudaStream_t(stream)"} {
		text := strings.Join(Package(&model.API{Row: model.RowOf("driver"), Header: "cuda.h", Version: version}, "driver"), " ")
		assert.Contains(t, text, want)
		assert.Equal(t, 1, strings.Count(text, "cudart"), version)
	}
}

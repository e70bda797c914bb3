package hard

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// TestNotLoaded: nil and the zero value behave like closed kernels, as those of package safe do.
func TestNotLoaded(t *testing.T) {
	for name, k := range map[string]*Shapes{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, k.Close())
		})
	}
	err := Shapes{}.Shift.Launch(nil, safe.LaunchConfig{}, nil, nil, 1, 1, 1, 0, 0)
	assert.ErrorIs(t, err, safe.ErrClosed)
}

package hard

import (
	"context"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
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

// TestLoadFails: the kernels that a failed Load returns behave like closed ones.
func TestLoadFails(t *testing.T) {
	k, err := LoadHard(context.Background(), nil, compile.Options{})
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorIs(t, k.Block.Launch(nil, safe.LaunchConfig{}, nil, nil, 1), safe.ErrClosed)
	assert.ErrorIs(t, k.Block.Batch(nil, safe.LaunchConfig{}, nil, nil, 1), safe.ErrClosed)
	_, err = (*safe.Graph)(nil).Add(k.Block.Node(safe.LaunchConfig{}, nil, nil, 1))
	assert.ErrorIs(t, err, safe.ErrClosed)
	_, err = k.Counter()
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.NoError(t, k.Close())
}

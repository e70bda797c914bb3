package admit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWantLong: a capture that waits for long calls keeps new ones out, and no longer once it has given up.
func TestWantLong(t *testing.T) {
	cause := errors.New("given up")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, giveUp := range map[string]func(t *testing.T, gates []*admit.Gate){
		"Want": func(t *testing.T, gates []*admit.Gate) {
			assert.False(t, admit.Want(gates))
		},
		"Settle": func(t *testing.T, gates []*admit.Gate) {
			assert.ErrorIs(t, admit.Settle(ended, gates), cause)
		},
	} {
		t.Run(name, func(t *testing.T) {
			gates := []*admit.Gate{{}, {}}
			require.NoError(t, admit.EnterLong(gates[1]))
			giveUp(t, gates)
			for _, g := range gates {
				entered, err := admit.TryLong(g)
				require.NoError(t, err)
				require.True(t, entered)
				g.LeaveLong()
			}
			gates[1].LeaveLong()
			require.True(t, admit.Want(gates))
			entered, err := admit.TryLong(gates[0])
			require.NoError(t, err)
			assert.False(t, entered)
			admit.Unwant(gates)
		})
	}
}

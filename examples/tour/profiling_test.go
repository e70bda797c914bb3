//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/profile"
)

// recorded records what f does, prints tables, and writes the timeline to a file.
func recorded(w io.Writer, file string, f func() error) error {
	r, err := profile.Start(profile.Options{})
	if err != nil {
		return err
	}
	err = f()
	t, stopped := r.Stop()
	if err := errors.Join(err, stopped, t.WriteSummary(w)); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(t.WriteTrace(out), out.Close())
}

// step is a part of a program that has a name on timelines.
func step(ctx context.Context, s *safe.Stream, b *safe.Buffer[float32]) error {
	defer profile.Begin(ctx, "step").End()
	if err := b.FillAsync(s, 0); err != nil {
		return err
	}
	return s.Wait(ctx)
}

// debugServer serves timelines next to what else the program offers its operators.
func debugServer() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/debug/cuda/trace", profile.Handler())
	return mux
}

func TestRecorded(t *testing.T) {
	x := open(t)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	defer s.Close()
	b, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	defer b.Close()
	file := filepath.Join(t.TempDir(), "trace.json")
	err = recorded(io.Discard, file, func() error { return step(t.Context(), s, b) })
	w := httptest.NewRecorder()
	if errors.As(err, new(*cupti.LibraryError)) {
		assert.NoFileExists(t, file)
		assert.NoError(t, step(t.Context(), s, b))
		debugServer().ServeHTTP(w, httptest.NewRequest("GET", "/debug/cuda/trace?seconds=0.01", nil))
		assert.Contains(t, []int{http.StatusNotImplemented, http.StatusConflict}, w.Code)
		return
	}
	require.NoError(t, err)
	assert.FileExists(t, file)
	debugServer().ServeHTTP(w, httptest.NewRequest("GET", "/debug/cuda/trace?seconds=0.01", nil))
	assert.Equal(t, http.StatusOK, w.Code)
}

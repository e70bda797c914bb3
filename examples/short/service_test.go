//go:build cgo && linux && (amd64 || arm64)

package short_test

import (
	"context"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/internal/loopback"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slow makes the kernel wait for one picture, as long as a file is there.
const slow = `while (re == 9 && access(%q, F_OK) == 0)
		usleep(1000);
	for (int i = 0; i < width * height`

// serves starts the service, asks for pictures, gives up some requests, and asks again. Without a GPU, the first pictures
// wait for the end of the file held.
func serves(t *testing.T, cmd *exec.Cmd, held string) {
	require.NoError(t, os.WriteFile(held, nil, 0o666))
	address, err := loopback.Address()
	require.NoError(t, err)
	var log strings.Builder
	cmd.Env = append(cmd.Env, "ADDRESS="+address)
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		os.Remove(held)
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		assert.Empty(t, log.String())
	})
	get := func(ctx context.Context, query string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/julia?"+query, nil)
		require.NoError(t, err)
		return http.DefaultClient.Do(r)
	}
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)

	var all sync.WaitGroup
	for range 8 { // more than there are workers
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			r, err := get(ctx, "re=9&im=0")
			if err == nil { // on a fast GPU
				_, err = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			if !onGPU {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
	all.Wait()
	require.NoError(t, os.Remove(held))

	var r *http.Response
	require.Eventually(t, func() bool { // the service gives up what a busy machine does not do in its time
		r, err = get(t.Context(), "re=0&im=0")
		busy := err == nil && r.StatusCode == http.StatusServiceUnavailable
		if busy {
			r.Body.Close()
		}
		return !busy
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, err)
	defer r.Body.Close()
	picture, err := png.Decode(r.Body)
	require.NoError(t, err)
	gray, ok := picture.(*image.Gray)
	require.True(t, ok)
	require.Equal(t, image.Rect(0, 0, 1024, 768), gray.Rect)
	// The middle never leaves the circle of radius 2, the corner leaves it in the first step.
	assert.Equal(t, uint8(255), gray.GrayAt(512, 384).Y)
	assert.Equal(t, uint8(1), gray.GrayAt(0, 0).Y)

	r, err = get(t.Context(), "re=0")
	require.NoError(t, err)
	defer r.Body.Close()
	assert.Equal(t, http.StatusBadRequest, r.StatusCode)
}

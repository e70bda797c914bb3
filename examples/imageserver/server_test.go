//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"image"
	"image/color/palette"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// started serves with a filter of its own. It returns the address, a function that ends the
// server, and one that waits for its end.
func started(t *testing.T, workers int, timeout time.Duration) (url string, stop func(), ended func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &service{
		filter:    newFilter(t, workers),
		maxBytes:  20_000,
		maxPixels: testPixels,
		timeout:   timeout,
		places:    make(chan struct{}, 2*workers),
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, s) }()
	ended = sync.OnceValue(func() error { return <-done })
	t.Cleanup(func() { stop(); ended() })
	return "http://" + l.Addr().String() + "/blur", stop, ended
}

// post sends a picture. It returns the status, and the answer or an error's text.
func post(t *testing.T, url string, body []byte) (int, image.Image, string) {
	t.Helper()
	r, err := http.Post(url, "", bytes.NewReader(body))
	if !assert.NoError(t, err) {
		return 0, nil, ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	assert.NoError(t, err)
	if r.StatusCode != http.StatusOK {
		return r.StatusCode, nil, string(text)
	}
	assert.Equal(t, "image/png", r.Header.Get("Content-Type"))
	m, err := png.Decode(bytes.NewReader(text))
	assert.NoError(t, err)
	return r.StatusCode, m, ""
}

func asPNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, m))
	return b.Bytes()
}

func asJPEG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, m, nil))
	return b.Bytes()
}

// TestPictures sends pictures of several formats and sizes, all at once, and compares the answers
// with plain Go.
func TestPictures(t *testing.T) {
	url, _, _ := started(t, 2, time.Minute)
	gray := image.NewGray(image.Rect(0, 0, 31, 17))
	draw.Draw(gray, gray.Rect, picture(31, 17, 3), image.Point{}, draw.Src)
	colours := image.NewPaletted(image.Rect(0, 0, 40, 30), palette.Plan9)
	draw.Draw(colours, colours.Rect, picture(40, 30, 4), image.Point{}, draw.Src)
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"PNG with alpha", asPNG(t, picture(33, 9, 1))},
		{"PNG with a palette", asPNG(t, colours)},
		{"gray PNG", asPNG(t, gray)},
		{"JPEG", asJPEG(t, picture(50, 40, 2))},
		{"gray JPEG", asJPEG(t, gray)},
		{"one pixel", asPNG(t, picture(1, 1, 5))},
		{"one row", asPNG(t, picture(100, 1, 5))},
		{"one column", asPNG(t, picture(1, 100, 5))},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent, _, err := image.Decode(bytes.NewReader(c.body))
			require.NoError(t, err)
			want, _, err := image.Decode(bytes.NewReader(asPNG(t, expected(sent)))) // PNG rounds alpha
			require.NoError(t, err)
			var clients sync.WaitGroup
			for range 6 {
				clients.Go(func() {
					status, got, text := post(t, url, c.body)
					assert.Equal(t, http.StatusOK, status, text)
					assert.Equal(t, want, got)
				})
			}
			clients.Wait()
		})
	}
}

// TestRefused: a request that the service cannot answer gets an HTTP error that says why.
func TestRefused(t *testing.T) {
	url, _, _ := started(t, 1, time.Minute)
	good := asPNG(t, picture(20, 20, 1))
	for _, c := range []struct {
		name   string
		body   []byte
		status int
		says   string
	}{
		{"nothing", nil, 415, "neither a PNG nor a JPEG"},
		{"text", []byte("a picture"), 415, "neither a PNG nor a JPEG"},
		{"cut off", good[:len(good)/2], 400, "png: invalid format"},
		{"damaged", append(good[:20:20], make([]byte, 100)...), 400, "png: invalid format"},
		{"too many bytes", make([]byte, 20_001), 413, "request body too large"},
		{"too many pixels", asPNG(t, image.NewGray(image.Rect(0, 0, 101, 100))), 413, "the picture is too large: 101 x 100, more than 10000 pixels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, text := post(t, url, c.body)
			assert.Equal(t, c.status, status)
			assert.Contains(t, text, c.says)
		})
	}
	for _, c := range []struct {
		method, url string
		status      int
	}{
		{http.MethodGet, url, http.StatusMethodNotAllowed},
		{http.MethodPost, strings.TrimSuffix(url, "blur"), http.StatusNotFound},
	} {
		request, err := http.NewRequest(c.method, c.url, nil)
		require.NoError(t, err)
		r, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		r.Body.Close()
		assert.Equal(t, c.status, r.StatusCode, "%s %s", c.method, c.url)
	}
}

// TestBusy: while the GPU is stopped, requests end with an error after their time, those that wait
// for a worker or for a place too. Afterwards the service works again.
func TestBusy(t *testing.T) {
	needsSimulated(t)
	url, _, _ := started(t, 1, 200*time.Millisecond)
	body := asPNG(t, picture(10, 10, 1))
	hold(t)
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			status, _, text := post(t, url, body)
			assert.Equal(t, http.StatusServiceUnavailable, status)
			assert.Equal(t, "too busy\n", text)
		})
	}
	clients.Wait()
	control.Hold(false)
	assert.Eventually(t, func() bool {
		status, _, _ := post(t, url, body)
		return status == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// TestShutdown: a server that is told to end takes no more requests, and answers the one in
// progress.
func TestShutdown(t *testing.T) {
	needsSimulated(t)
	url, stop, ended := started(t, 1, time.Minute)
	hold(t)
	before := control.Calls("cuLaunchKernel")
	answered := make(chan int)
	go func() {
		status, _, _ := post(t, url, asPNG(t, picture(10, 10, 1)))
		answered <- status
	}()
	require.Eventually(t, func() bool { return control.Calls("cuLaunchKernel") == before+2 }, time.Minute, time.Millisecond)
	stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/blur"))
		if err == nil {
			c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond)
	control.Hold(false)
	assert.Equal(t, http.StatusOK, <-answered)
	assert.NoError(t, ended())
}

// TestLost: a fault of the GPU, after which only a new process can use CUDA, ends the server with
// an error.
func TestLost(t *testing.T) {
	needsSimulated(t)
	url, _, ended := started(t, 1, time.Minute)
	control.FaultDelay(0)
	control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	status, _, text := post(t, url, asPNG(t, picture(10, 10, 1)))
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Equal(t, "the picture could not be blurred\n", text)
	assert.ErrorIs(t, ended(), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	control.Reset() // a real driver cannot recover
}

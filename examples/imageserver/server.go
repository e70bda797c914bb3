package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	"image/png"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// service answers requests with blurred pictures.
type service struct {
	filter    *Filter
	maxBytes  int64 // of a request
	maxPixels int   // of a picture
	timeout   time.Duration
	places    chan struct{} // bounds the pictures in memory: a request waits for a place
	lost      func(error)   // is told that this process can no longer use CUDA
}

var errTooLarge = errors.New("the picture is too large")

// serve serves requests until ctx ends or CUDA is lost. It lets requests in progress finish, for
// up to the service's timeout.
func serve(ctx context.Context, l net.Listener, s *service) error {
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	s.lost = lost
	mux := http.NewServeMux()
	mux.HandleFunc("POST /blur", s.blur)
	server := &http.Server{Handler: mux, ReadTimeout: s.timeout, WriteTimeout: 3 * s.timeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		server.Close() // ends the contexts of the requests
	}
	if cause := context.Cause(ctx); safe.IsFatal(cause) {
		err = errors.Join(cause, err)
	}
	return err
}

// blur answers a request with the blurred picture, or with an HTTP error.
func (s *service) blur(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		s.fail(w, ctx.Err())
		return
	}
	picture, err := s.decode(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	blurred, err := s.filter.Blur(ctx, picture)
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(w, blurred); err != nil {
		log.Print(err) // the client is gone
	}
}

// decode reads the picture of a request. It decodes none that is too large.
func (s *service) decode(w http.ResponseWriter, r *http.Request) (image.Image, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxBytes))
	if err != nil {
		return nil, err
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.Width*c.Height > s.maxPixels {
		return nil, fmt.Errorf("%w: %d x %d, more than %d pixels", errTooLarge, c.Width, c.Height, s.maxPixels)
	}
	if c.Width*c.Height == 0 {
		return nil, errors.New("the picture is empty")
	}
	picture, _, err := image.Decode(bytes.NewReader(body))
	return picture, err
}

// fail answers a request with an error. It logs CUDA's errors, and does not send them to the client.
func (s *service) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		http.Error(w, "too busy", http.StatusServiceUnavailable)
	case errors.As(err, new(*safe.Error)):
		log.Print(err)
		http.Error(w, "the picture could not be blurred", http.StatusInternalServerError)
		if safe.IsFatal(err) {
			s.lost(err) // only a new process can go on
		}
	case errors.As(err, new(*http.MaxBytesError)), errors.Is(err, errTooLarge):
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
	case errors.Is(err, image.ErrFormat):
		http.Error(w, "neither a PNG nor a JPEG", http.StatusUnsupportedMediaType)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

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
	"os"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// service answers requests with blurred pictures.
type service struct {
	filter    *Filter
	maxBytes  int64 // of a request
	maxBodies int64 // bytes of all requests and answers at once
	maxPixels int   // of a picture
	timeout   time.Duration
	places    chan struct{} // bounds the decoded pictures: a request waits for a place once it was read
	lost      func(error)   // is told that this process can no longer use CUDA

	bodies atomic.Int64 // bytes of requests and answers in memory
}

var (
	errTooLarge = errors.New("the picture is too large")
	errTooMany  = errors.New("too many pictures at once")
)

// serve serves requests until ctx ends or CUDA is lost. It lets requests in progress finish, for
// up to the service's timeout.
func serve(ctx context.Context, l net.Listener, s *service) error {
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	s.lost = lost
	mux := http.NewServeMux()
	mux.HandleFunc("POST /blur", s.blur)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: min(s.timeout, 5*time.Second),
		ReadTimeout:       s.timeout,
		WriteTimeout:      3 * s.timeout, // from the header on: it was read, waited and is written
		MaxHeaderBytes:    16 << 10,
	}
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

// blur answers a request with the blurred picture, or with an HTTP error. It takes a place neither
// while it reads nor while it writes: clients may be slow.
func (s *service) blur(w http.ResponseWriter, r *http.Request) {
	body := &counted{from: http.MaxBytesReader(w, r.Body, s.maxBytes), service: s}
	defer body.forget()
	sent, err := io.ReadAll(body)
	if err != nil {
		s.fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	blurred, err := s.blurred(ctx, sent)
	if err != nil {
		s.fail(w, err)
		return
	}
	body.forget()
	if err := body.count(len(blurred)); err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	if _, err := w.Write(blurred); err != nil {
		log.Print(err) // the client is gone
	}
}

// counted reads a request, and counts its bytes, and then those of the answer, as long as they are in memory.
type counted struct {
	from    io.Reader
	service *service
	bytes   int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if tooMany := c.count(n); tooMany != nil {
		return n, tooMany
	}
	return n, err
}

// count returns errTooMany if there are too many bytes of all requests and answers.
func (c *counted) count(n int) error {
	c.bytes += int64(n)
	if c.service.bodies.Add(int64(n)) > c.service.maxBodies {
		return errTooMany
	}
	return nil
}

func (c *counted) forget() {
	c.service.bodies.Add(-c.bytes)
	c.bytes = 0
}

// blurred decodes a picture, blurs it, and returns it as a PNG. Meanwhile it has a place.
func (s *service) blurred(ctx context.Context, sent []byte) ([]byte, error) {
	if err := s.check(sent); err != nil {
		return nil, err
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	picture, _, err := image.Decode(&until{ctx, bytes.NewReader(sent)})
	switch {
	case ctx.Err() != nil: // which image.Decode calls an unknown format, where it reads the first bytes
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	blurred, err := s.filter.Blur(ctx, picture)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	err = encoder.Encode(&b, blurred)
	return b.Bytes(), err
}

// until reads until a context ends: some kilobytes of a JPEG can take minutes to decode.
type until struct {
	ctx  context.Context
	from io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.from.Read(p[:min(len(p), 512)]) // often enough
}

// check refuses a picture that is too large, before it is decoded.
func (s *service) check(sent []byte) error {
	c, _, err := image.DecodeConfig(bytes.NewReader(sent))
	switch {
	case err != nil:
		return err
	case c.Width < 1 || c.Height < 1:
		return errors.New("the picture is empty")
	case c.Width > s.maxPixels/c.Height:
		return fmt.Errorf("%w: %d x %d, more than %d pixels", errTooLarge, c.Width, c.Height, s.maxPixels)
	}
	return nil
}

// fail answers a request with an error. It logs CUDA's errors, and does not send them to the client.
func (s *service) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, errTooMany):
		http.Error(w, "too busy", http.StatusServiceUnavailable)
	case errors.As(err, new(*safe.Error)):
		log.Print(err)
		http.Error(w, "the picture could not be blurred", http.StatusInternalServerError)
		if safe.IsFatal(err) {
			s.lost(err) // only a new process can go on
		}
	case errors.As(err, new(*http.MaxBytesError)), errors.Is(err, errTooLarge):
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection
		http.Error(w, "the picture came too slowly", http.StatusRequestTimeout)
	case errors.Is(err, image.ErrFormat):
		http.Error(w, "neither a PNG nor a JPEG", http.StatusUnsupportedMediaType)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

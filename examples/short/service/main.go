// Command service draws Julia sets on a GPU, for many clients at once:
//
//	go run github.com/cudabind/cudabind/examples/short/service
//	curl 'localhost:8080/julia?re=-0.8&im=0.156' >julia.png
//
// A request that its client gives up, or that takes longer than five seconds, ends at once. The GPU then completes
// what it has begun, before another request gets its stream and memory.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"image"
	"image/png"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

const source = `extern "C" __global__ void julia(unsigned char *pixels, int width, int height, float re, float im) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= width * height) return;
	float x = (i % width - width / 2) * 3.0f / width, y = (i / width - height / 2) * 3.0f / width;
	int n = 0;
	for (; n < 255 && x * x + y * y < 4; n++) {
		float t = x * x - y * y + re;
		y = 2 * x * y + im;
		x = t;
	}
	pixels[i] = n;
}`

const width, height, workers = 1024, 768, 4

// worker has what the GPU needs for one request.
type worker struct {
	julia  *safe.Kernel
	stream *safe.Stream
	pixels *safe.Buffer[byte]
	host   *safe.Pinned[byte]
}

func main() {
	idle := make(chan *worker, workers)
	gpu, err1 := safe.Open(0)
	module, err2 := compile.Load(context.Background(), gpu, source, compile.Options{})
	julia, err3 := module.Kernel("julia")
	err := cmp.Or(err1, err2, err3)
	for range workers {
		stream, err1 := safe.NewStream(gpu)
		pixels, err2 := safe.NewBuffer[byte](gpu, width*height)
		host, err3 := safe.NewPinned[byte](gpu, width*height)
		err = cmp.Or(err, err1, err2, err3)
		idle <- &worker{julia, stream, pixels, host}
	}
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /julia", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		re, err1 := strconv.ParseFloat(r.FormValue("re"), 32)
		im, err2 := strconv.ParseFloat(r.FormValue("im"), 32)
		if err := cmp.Or(err1, err2); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		picture, err := draw(ctx, idle, float32(re), float32(im))
		switch {
		case safe.IsFatal(err):
			log.Fatal(err) // only a new process can use the GPU again
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Write(picture)
		}
	})
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("ADDRESS"), "localhost:8080"), nil))
}

// draw returns a picture as a PNG, or an error as soon as ctx ends.
func draw(ctx context.Context, idle chan *worker, re, im float32) ([]byte, error) {
	select {
	case w := <-idle:
		picture, err := w.draw(ctx, re, im)
		go func() {
			w.stream.Synchronize() // the GPU may still use the worker's memory
			idle <- w
		}()
		return picture, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *worker) draw(ctx context.Context, re, im float32) ([]byte, error) {
	err1 := w.julia.Launch(w.stream, safe.Threads(width*height), w.pixels.Arg(),
		safe.Val(int32(width)), safe.Val(int32(height)), safe.Val(re), safe.Val(im))
	err2 := w.pixels.CopyToHostAsync(w.stream, w.host)
	if err := cmp.Or(err1, err2, w.stream.Wait(ctx)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := png.Encode(&b, &image.Gray{Pix: w.host.Data(), Stride: width, Rect: image.Rect(0, 0, width, height)})
	return b.Bytes(), err
}

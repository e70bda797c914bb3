// Command imageserver blurs pictures on the GPU, for any number of clients at once:
//
//	go run github.com/cudabind/cudabind/examples/imageserver
//	curl --data-binary @photo.jpg localhost:8080/blur >blurred.png
//
// It answers a POST of a PNG or JPEG with a PNG. With -bench it serves nothing: it prints the
// throughput of one goroutine, and that of many that share the GPU.
package main

import (
	"context"
	"errors"
	"flag"
	"image"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// maxPixels is how many pixels a picture may have. Each stream needs 12 bytes of memory for each pixel, and
// each place up to 24: Go decodes a progressive JPEG by 15 and a PNG of 16 bits into 8, and the result takes 8.
const maxPixels = 8 << 20

func main() {
	log.SetPrefix("imageserver: ")
	address := flag.String("address", "localhost:8080", "serve at this `host:port`")
	streams := flag.Int("streams", 4, "blur this many pictures at once")
	measure := flag.Bool("bench", false, "measure the throughput, and serve nothing")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	if *streams < 1 || *streams > 1024 {
		log.Fatal("-streams must be from 1 to 1024")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, *streams, *measure); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string, streams int, measure bool) (err error) {
	filter, err := NewFilter(ctx, streams, maxPixels)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, filter.Close()) }()
	if measure {
		return bench(filter, image.Pt(1920, 1080), 4*streams, 2*time.Second, os.Stdout)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	log.Print("serving at ", listener.Addr())
	return serve(ctx, listener, &service{
		filter:    filter,
		maxBytes:  32 << 20,
		maxBodies: 256 << 20,
		maxPixels: maxPixels,
		timeout:   30 * time.Second,
		places:    make(chan struct{}, 2*streams),
	})
}

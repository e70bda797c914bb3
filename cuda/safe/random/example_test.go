//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package random_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
)

// weights returns device memory with n values of a normal distribution, the same ones for a seed.
func weights(s *safe.Stream, seed uint64, n int) (*safe.Buffer[float32], error) {
	g, err := random.New(s.Context(), random.Philox, random.Options{Seed: seed})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	w, err := safe.NewBuffer[float32](s.Context(), n)
	if err != nil {
		return nil, err
	}
	if err := random.Normal(g, s, w, 0, 0.02); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func ExampleNormal() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := weights(s, 42, 1001)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	values, err := w.Download()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(values), "weights, all near 0:", max(values[0], -values[0]) < 0.2)
	// Output: 1001 weights, all near 0: true
}

// dropout returns an executable whose launches each fill mask with new numbers.
func dropout(s *safe.Stream, g *random.Generator, mask *safe.Buffer[float32]) (*safe.GraphExec, error) {
	return s.CaptureExecutable(func() error {
		return random.Uniform(g, s, mask) // and kernels that use it
	})
}

func ExampleUniform() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	g, err := random.New(x, random.Philox, random.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	mask, err := safe.NewBuffer[float32](x, 100)
	if err != nil {
		log.Fatal(err)
	}
	defer mask.Close()
	e, err := dropout(s, g, mask)
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	var first [2]float32
	for i := range first {
		if err := e.Launch(s); err != nil {
			log.Fatal(err)
		}
		numbers, err := mask.Download()
		if err != nil {
			log.Fatal(err)
		}
		first[i] = numbers[0]
	}
	fmt.Println("new numbers:", first[0] != first[1])
	// Output: new numbers: true
}

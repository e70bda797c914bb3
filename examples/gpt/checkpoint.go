package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
)

// A checkpoint is a model, and how far its training is. Its file is a line of JSON, the header,
// and then the numbers in the order of the fields, as float32 in little-endian order.
type checkpoint struct {
	header
	Parameters    []float32
	First, Second []float32 // AdamW's moments
	Losses        []float32 // of each step
}

type header struct {
	Shape  shape
	Step   int
	Recipe recipe
}

// A recipe is all that decides the losses of a training, beside the shape of the model.
type recipe struct {
	Sequences, Steps, Dropped, GPUs int
	Rate                            float32
	Seed                            uint64
	Text                            uint32 // its checksum
}

func (o options) recipe(text []byte, gpus int) recipe {
	return recipe{o.sequences, o.steps, o.drop, gpus, o.rate, o.seed, crc32.ChecksumIEEE(text)}
}

// write replaces a file, or what it leads to as a link, by the checkpoint. When the program ends at any
// moment, or the machine, there is either the old checkpoint or the new one.
func (c *checkpoint) write(file string) (err error) {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm() // a file for its owner alone stays that
	}
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(f.Chmod(mode), json.NewEncoder(w).Encode(c.header))
	for _, values := range [][]float32{c.Parameters, c.First, c.Second, c.Losses} {
		err = errors.Join(err, binary.Write(w, binary.LittleEndian, values))
	}
	if err = errors.Join(err, w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return nil // a system that does not open folders keeps their changes itself
	}
	dir.Sync()
	return dir.Close()
}

// readCheckpoint returns an error that wraps [os.ErrNotExist] if there is no file.
func readCheckpoint(file string) (*checkpoint, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s is no checkpoint: %w", file, err)
	}
	return c, nil
}

func decode(f *os.File) (*checkpoint, error) {
	r := bufio.NewReaderSize(f, 1<<20)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	c := new(checkpoint)
	if err := json.Unmarshal(line, &c.header); err != nil {
		return nil, err
	}
	if err := c.Shape.check(); err != nil {
		return nil, err
	}
	if c.Step < 0 || c.Step > math.MaxInt32 {
		return nil, fmt.Errorf("step %d: must be from 0 to %d", c.Step, math.MaxInt32)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := c.Shape.parameters()
	if want := int64(len(line)) + 4*(3*int64(n)+int64(c.Step)); info.Size() != want {
		return nil, fmt.Errorf("it has %d bytes, and its header says %d", info.Size(), want)
	}
	c.Parameters, c.First, c.Second, c.Losses = make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, c.Step)
	for _, values := range [][]float32{c.Parameters, c.First, c.Second, c.Losses} {
		if err := binary.Read(r, binary.LittleEndian, values); err != nil {
			return nil, err
		}
	}
	return c, nil
}

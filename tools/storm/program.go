//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// A program is the steps of several goroutines. It determines everything except the scheduling
// of the goroutines.
type program struct {
	Profile    string   `json:"profile"`
	Seed       uint64   `json:"seed"`
	Goroutines [][]step `json:"goroutines"`
}

// A step is one action of a goroutine. It has a seed of its own, so it stays the same if other
// steps are removed from the program.
type step struct {
	Kind string `json:"kind"`
	Seed uint64 `json:"seed"`
}

// generate returns the program of a seed.
func generate(p *profile, seed uint64) *program {
	rng := rand.New(rand.NewPCG(seed, 1))
	made := &program{Profile: p.name, Seed: seed}
	all, total := p.kinds()
	goroutines := 1 + rng.IntN(p.goroutines)
	steps := 4 + rng.IntN(p.steps)
	for range goroutines {
		own := make([]step, steps)
		for i := range own {
			own[i] = step{pick(all, rng.IntN(total)).name, rng.Uint64() >> 16}
		}
		made.Goroutines = append(made.Goroutines, own)
	}
	return made
}

type weighted struct {
	*kind
	weight int
}

func pick(all []weighted, at int) *kind {
	for _, k := range all {
		if at < k.weight {
			return k.kind
		}
		at -= k.weight
	}
	panic("out of range")
}

// steps returns the number of steps.
func (p *program) steps() (n int) {
	for _, g := range p.Goroutines {
		n += len(g)
	}
	return n
}

// print writes the program in readable form.
func (p *program) print(w io.Writer) {
	fmt.Fprintf(w, "profile %s, seed %d:\n", p.Profile, p.Seed)
	for i, g := range p.Goroutines {
		fmt.Fprintf(w, "  goroutine %d:\n", i)
		for _, s := range g {
			fmt.Fprintf(w, "    %s %d\n", s.Kind, s.Seed)
		}
	}
}

func (p *program) save(file string) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o666)
}

func readProgram(file string) (*program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &program{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if profileNamed(p.Profile) == nil {
		return nil, fmt.Errorf("%s: no profile %q", file, p.Profile)
	}
	for _, g := range p.Goroutines {
		for _, s := range g {
			if kinds[s.Kind] == nil {
				return nil, fmt.Errorf("%s: no kind of step %q", file, s.Kind)
			}
		}
	}
	return p, nil
}

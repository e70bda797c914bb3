package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed py/ranks.py
var script string

// A mode is how the ranks are spread.
type mode string

const (
	oneProcess mode = "one process"
	processes  mode = "a process for each GPU"
)

var modes = []mode{oneProcess, processes}

// The names of the contestants.
const (
	inC     = "C"
	inTorch = "torch.distributed"
	inGo    = "package collective"
)

// A contestant is a program that measures, in a mode.
type contestant struct {
	name    string
	mode    mode
	command []string
}

func (a *arguments) contestants() (all []contestant, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	flags := []string{}
	if a.short {
		flags = []string{"-short"}
	}
	for _, m := range modes {
		if a.c != "" {
			all = append(all, contestant{inC, m, append([]string{a.c}, flags...)})
		}
		if a.python != "" && m == processes {
			all = append(all, contestant{inTorch, m, append([]string{a.python, "-c", script}, flags...)})
		}
		all = append(all, contestant{inGo, m, append([]string{self, "-rank"}, flags...)})
	}
	return all, nil
}

// figures are the microseconds of all-reduces of a size. What a contestant lacks is 0.
type figures struct {
	Bytes int     `json:"bytes"`
	Wait  float64 `json:"wait"`
	Many  float64 `json:"many"`
	Group float64 `json:"group"`
	Graph float64 `json:"graph"`
}

// withoutRank leaves out what torchrun or a scheduler has set: with it, one process would be one rank.
func withoutRank(all []string) []string {
	return slices.DeleteFunc(all, func(v string) bool { return strings.HasPrefix(v, "RANK=") || strings.HasPrefix(v, "LOCAL_RANK=") })
}

// run starts the ranks, and returns what rank 0 prints. It kills those that are left after limit.
func (c *contestant) run(gpus int, limit time.Duration, stderr io.Writer) (all []figures, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "ranks")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	started := 1
	if c.mode == processes {
		started = gpus
	}
	errs := make([]error, started)
	var ranks sync.WaitGroup
	for rank := range started {
		p := exec.CommandContext(ctx, c.command[0], c.command[1:]...)
		p.Env = append(withoutRank(os.Environ()), fmt.Sprint("WORLD_SIZE=", gpus), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "RANKS_ID="+filepath.Join(dir, "id"))
		if c.mode == processes {
			p.Env = append(p.Env, fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank))
		}
		p.Stderr = stderr
		p.WaitDelay = 5 * time.Second
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			cancel()
			ranks.Wait()
			return nil, err
		}
		ranks.Go(func() {
			found, err := read(out)
			errs[rank] = errors.Join(err, p.Wait())
			if errs[rank] != nil {
				cancel() // or the others would wait
			}
			if rank == 0 {
				all = found
			}
		})
	}
	ranks.Wait()
	return all, errors.Join(errs...)
}

// read reads the lines that are figures.
func read(r io.Reader) (all []figures, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		var f figures
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, lines.Err()
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

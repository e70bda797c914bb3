//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"os"
	"syscall"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Steps that fail, for the tests of storm itself.
func init() {
	add("plant-crash", []kind{{name: "plant.crash", weight: 30, run: func(*task) error {
		return syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	}}})
	add("plant-hang", []kind{{name: "plant.hang", weight: 30, run: func(*task) error {
		time.Sleep(time.Hour)
		return nil
	}}})
	add("plant-mismatch", []kind{{name: "plant.mismatch", weight: 30, run: func(t *task) error {
		t.own.buffers[0].want[3]++
		return t.own.check(waitPlain)
	}}})
	add("plant-release", []kind{{name: "plant.release", weight: 30, run: func(t *task) error {
		r, err := t.newResource(t.devices[0].x)
		if err != nil {
			return err
		}
		r.state.release()
		if err := r.Close(); err != nil {
			return err
		}
		settle(patience, func() bool { return t.releases.first.Load() != nil }) // package safe releases it again, soon
		return nil
	}}})
	add("plant-leak", []kind{{name: "plant.leak", weight: 30, run: func(t *task) error {
		return t.devices[0].x.WithCurrent(func() error {
			var e driver.CUevent
			return driver.CuEventCreate(&e, 0)
		})
	}}})
}

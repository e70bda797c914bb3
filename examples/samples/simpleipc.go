package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// otherProcess is set where the program is the other process of simpleIPC.
const otherProcess = "CUDABIND_SAMPLES_OTHER_PROCESS"

const ipcValues = 1 << 20

// handles are what one process tells the other one: plain data, to be sent in any way.
type handles struct {
	Memory, Filled, Sum [driver.CU_IPC_HANDLE_SIZE]byte
}

// simpleIPC has another process add values that this one has on the device. They are
// in memory of this process; the result goes to memory of a pool that it shares.
func simpleIPC(x *safe.Context, m *safe.Module, w io.Writer) error {
	name, err := x.Device().Name()
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, "Simulated") {
		fmt.Fprintln(w, "simpleIPC: other processes are not simulated")
		return nil
	}
	start := time.Now()
	pool, err := safe.NewPoolWith(x, safe.PoolOptions{HandleTypes: driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR})
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	values, err := safe.NewBufferWith[float32](x, ipcValues, safe.BufferOptions{Plain: true})
	if err != nil {
		return err
	}
	defer values.Close()
	sum, err := safe.NewBufferFrom[float32](pool, s, ipcValues)
	if err != nil {
		return err
	}
	defer sum.Close()
	filled, err := safe.NewEventWith(x, safe.EventOptions{Interprocess: true, DisableTiming: true})
	if err != nil {
		return err
	}
	defer filled.Close()
	if err := values.FillAsync(s, 3); err != nil {
		return err
	}
	if err := s.Record(filled); err != nil { // after the allocation of sum, too
		return err
	}
	h, err := describe(values, filled, sum)
	if err != nil {
		return err
	}
	if err := startOther(h, pool); err != nil {
		return err
	}
	got := make([]float32, ipcValues)
	if err := sum.CopyToHost(got); err != nil {
		return err
	}
	for i, v := range got {
		if v != 6 {
			return fmt.Errorf("value %d is %v, not 6", i, v)
		}
	}
	fmt.Fprintf(w, "simpleIPC: another process added %d values of this one, took %v\n", ipcValues, time.Since(start))
	return nil
}

func describe(values *safe.Buffer[float32], filled *safe.Event, sum *safe.Buffer[float32]) (handles, error) {
	memory, err := values.IPCHandle()
	if err != nil {
		return handles{}, err
	}
	event, err := filled.IPCHandle()
	if err != nil {
		return handles{}, err
	}
	pointer, err := sum.ExportPointer()
	return handles{memory.Reserved, event.Reserved, pointer.Reserved}, err
}

// startOther starts this program again, and waits for its end. The pool goes along as
// an open file, the handles are sent.
func startOther(h handles, pool *safe.Pool) error {
	file, err := pool.Export()
	if err != nil {
		return err
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	other := exec.Command(self)
	other.Env = append(os.Environ(), otherProcess+"=1")
	other.ExtraFiles = []*os.File{file}
	other.Stderr = os.Stderr
	in, err := other.StdinPipe()
	if err != nil {
		return err
	}
	if err := other.Start(); err != nil {
		return err
	}
	err = binary.Write(in, binary.LittleEndian, h)
	if err == nil {
		err = in.Close()
	}
	if end := other.Wait(); err == nil {
		err = end
	}
	return err
}

// runOther is the other process.
func runOther(in io.Reader, file *os.File) error {
	var h handles
	if err := binary.Read(in, binary.LittleEndian, &h); err != nil {
		return err
	}
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	module, err := safe.Load(x, kernels)
	if err != nil {
		return err
	}
	defer module.Close()
	add, err := module.Kernel("add")
	if err != nil {
		return err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	pool, err := safe.ImportPool(x, file)
	if err != nil {
		return err
	}
	defer pool.Close()
	sum, err := safe.ImportBuffer[float32](pool, driver.CUmemPoolPtrExportData{Reserved: h.Sum}, ipcValues)
	if err != nil {
		return err
	}
	defer sum.Close()
	values, err := safe.OpenIPCBuffer[float32](x, driver.CUipcMemHandle{Reserved: h.Memory}, ipcValues)
	if err != nil {
		return err
	}
	defer values.Close()
	filled, err := safe.OpenIPCEvent(x, driver.CUipcEventHandle{Reserved: h.Filled})
	if err != nil {
		return err
	}
	defer filled.Close()
	if err := s.WaitEvent(filled); err != nil { // of the first process
		return err
	}
	if err := add.Launch(s, safe.Threads(ipcValues), values.Arg(), values.Arg(), sum.Arg(), safe.Val(uint32(ipcValues))); err != nil {
		return err
	}
	return s.Synchronize()
}

package programs

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
)

// Sum adds up count numbers of n ranks on the device of one rank, in a process or goroutine
// of its own. One rank makes id with NcclGetUniqueId and sends it to the others.
func Sum(id nccl.NcclUniqueId, n, rank int32, buf unsafe.Pointer, count uint64, stream driver.CUstream) error {
	runtime.LockOSThread() // the device is the thread's
	defer runtime.UnlockOSThread()
	if err := cudart13.CudaSetDevice(rank); err != nil {
		return err
	}
	var comm nccl.NcclComm_t
	if err := nccl.NcclCommInitRank(&comm, n, id, rank); err != nil { // waits for all ranks
		return err
	}
	if err := nccl.NcclAllReduce(buf, buf, count, nccl.NcclFloat32, nccl.NcclSum, comm, stream); err != nil {
		return errors.Join(err, nccl.NcclCommAbort(comm))
	}
	err := driver.CuStreamSynchronize(stream)
	return errors.Join(err, nccl.NcclCommDestroy(comm))
}

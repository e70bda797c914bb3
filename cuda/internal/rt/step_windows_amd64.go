package rt

import (
	"runtime"
	"syscall"
	"unsafe"
)

// do enters C once for each call: Go for Windows cannot run assembly as a C function.
func (s *steps) do() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := unsafe.Slice((*step)(s.first), s.n)
	for i := range all {
		p := &all[i]
		if s.code != 0 && p.flags&evenAfterEnd == 0 {
			continue
		}
		if p.flags&copied != 0 {
			*(*uint64)(p.args) = *p.word
			continue
		}
		if p.word != nil && (*p.word == p.value) == (p.flags&unlessEqual == 0) {
			continue
		}
		if p.fn != 0 {
			r, _, _ := syscall.SyscallN(p.fn, unsafe.Slice((*uintptr)(p.args), p.words)...)
			p.result = uint64(uint32(r))
		}
		if p.result != 0 && p.flags&(evenAfterEnd|anyResult) == 0 {
			s.code, s.left = p.result, s.n-uint64(i)
		}
	}
}

// symbols returns a function that finds the address of a function in the loaded driver, or 0.
func symbols(file string) (address func(name string) uintptr, err error) {
	lib, err := syscall.LoadLibrary(file) // it is loaded, by this path
	return func(name string) uintptr {
		address, _ := syscall.GetProcAddress(lib, name)
		return address
	}, err
}

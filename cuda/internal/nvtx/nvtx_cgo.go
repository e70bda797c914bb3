//go:build cgo && linux && (amd64 || arm64)

package nvtx

/*
#cgo LDFLAGS: -ldl
#cgo noescape cudabind_nvtx_push
#cgo nocallback cudabind_nvtx_push
#cgo noescape cudabind_nvtx_name_stream
#cgo noescape cudabind_nvtx_name_thread
#include <stdint.h>
int cudabind_nvtx_attach(const char *path);
void cudabind_nvtx_push(const char *name);
void cudabind_nvtx_pop(void);
void cudabind_nvtx_name_stream(uintptr_t stream, const char *name);
void cudabind_nvtx_name_thread(uint32_t id, const char *name);
*/
import "C"
import "unsafe"

func text(b []byte) *C.char { return (*C.char)(unsafe.Pointer(&b[0])) }

func attach(path string) bool {
	return C.cudabind_nvtx_attach(text(append([]byte(path), 0))) != 0
}

func push(name []byte) { C.cudabind_nvtx_push(text(name)) }

func pop() { C.cudabind_nvtx_pop() }

func nameStream(stream uintptr, name []byte) {
	C.cudabind_nvtx_name_stream(C.uintptr_t(stream), text(name))
}

func nameThread(id uint32, name []byte) { C.cudabind_nvtx_name_thread(C.uint32_t(id), text(name)) }

//go:build (linux && (amd64 || arm64) && !cgo && cudabind_nocgo) || (windows && amd64)

package nvtx

import "unsafe"

// What nvtx.c does, in Go. The tables are package variables, which the tool may keep pointers to.

const (
	moduleCore, moduleCUDA, moduleCore2 = 1, 2, 5

	nameOSThread = 14 // in core
	nameCuStream = 5  // in cuda

	domainPush, domainPop, domainCreate = 4, 5, 12 // in core2
)

var (
	core, core2 [16]uintptr // functions of the tool; the first of each is none
	cuda        [9]uintptr

	coreTable, core2Table [17]unsafe.Pointer // where the tool stores them, up to a nil
	cudaTable             [10]unsafe.Pointer

	domain uintptr
)

// callbackTable and versionTable are what the tool may ask for.
var (
	callbackTable struct{ size, moduleTable uintptr }
	versionTable  struct {
		size              uintptr
		version, reserved uint32
		tool              uintptr
	}
)

// tableOf is for the tool: it stores the table of a module and its size.
func tableOf(module uintptr, table *unsafe.Pointer, size *uint32) uintptr {
	var t unsafe.Pointer
	n := 16
	switch uint32(module) {
	case moduleCore:
		t = unsafe.Pointer(&coreTable)
	case moduleCUDA:
		t, n = unsafe.Pointer(&cudaTable), len(cuda)
	case moduleCore2:
		t = unsafe.Pointer(&core2Table)
	default:
		return 0
	}
	if size != nil {
		*size = uint32(n)
	}
	if table != nil {
		*table = t
	}
	return 1
}

// exportTable is for the tool: it returns a table by its number.
func exportTable(id uintptr) uintptr {
	switch uint32(id) {
	case 1:
		return uintptr(unsafe.Pointer(&callbackTable))
	case 3:
		return uintptr(unsafe.Pointer(&versionTable))
	}
	return 0
}

func toolVersion(uintptr) uintptr { return 0 }

func attach(path string) bool {
	for i := range core {
		coreTable[i], core2Table[i] = unsafe.Pointer(&core[i]), unsafe.Pointer(&core2[i])
	}
	for i := range cuda {
		cudaTable[i] = unsafe.Pointer(&cuda[i])
	}
	callbackTable.size, callbackTable.moduleTable = unsafe.Sizeof(callbackTable), callback(tableOf)
	versionTable.size, versionTable.version, versionTable.tool = unsafe.Sizeof(versionTable), 3, callback(toolVersion)
	initialize := symbol(path, "InitializeInjectionNvtx2")
	if initialize == 0 || uint32(call(initialize, callback(exportTable))) == 0 {
		return false
	}
	if core2[domainCreate] != 0 {
		name := []byte("Go\x00")
		domain = call(core2[domainCreate], uintptr(unsafe.Pointer(&name[0])))
	}
	return core2[domainPush] != 0 && core2[domainPop] != 0
}

// attributes are what a range may have; only the text is used.
type attributes struct {
	version, size  uint16
	category       uint32
	colorType      int32
	color          uint32
	payloadType    int32
	reserved       int32
	payload        uint64
	messageType, _ int32
	message        *byte
}

func push(name []byte) {
	a := &attributes{version: 3, messageType: 1, message: &name[0]}
	a.size = uint16(unsafe.Sizeof(*a))
	callPush(core2[domainPush], domain, a)
}

func pop() { call(core2[domainPop], domain) }

func nameStream(stream uintptr, name []byte) {
	if f := cuda[nameCuStream]; f != 0 {
		callName(f, stream, &name[0])
	}
}

func nameThread(id uint32, name []byte) {
	if f := core[nameOSThread]; f != 0 {
		callName(f, uintptr(id), &name[0])
	}
}

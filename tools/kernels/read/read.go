package read

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Attributes and flags that the standard library has no names for.
const (
	linkageName  = dwarf.Attr(0x2007) // DW_AT_MIPS_linkage_name
	stoCUDAEntry = 0x10               // in st_other of a kernel's symbol
	stoManaged   = 4                  // in the low bits of st_other
	constSpace   = 4                  // DW_AT_address_class of __constant__ variables
	globalSpace  = 5                  // and of __device__ and __managed__ ones
)

// ErrNoDebug says that machine code of CUDA has no debug information.
var ErrNoDebug = errors.New("there is no debug information")

// A reader reads one cubin.
type reader struct {
	elf     *elf.File
	dwarf   *dwarf.Data
	kernels map[string]bool // symbols of kernels that are not read yet
	objects map[string]elf.Symbol
	files   []*dwarf.LineFile
	types   map[dwarf.Offset]*Type
	later   []func() error // see resolve
	out     *File
}

// Cubin reads machine code that was compiled with debug information.
func Cubin(image []byte) (*File, error) {
	r := &reader{kernels: map[string]bool{}, objects: map[string]elf.Symbol{}, types: map[dwarf.Offset]*Type{}, out: &File{}}
	if err := r.open(image); err != nil {
		return nil, err
	}
	entries := r.dwarf.Reader()
	for range image { // an entry takes a byte: of what is cut off, the reader returns empty ones without an end
		e, err := entries.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		if err := r.entry(entries, e); err != nil {
			return nil, err
		}
	}
	if len(r.kernels) > 0 {
		return nil, fmt.Errorf("the debug information lacks %s", strings.Join(slices.Sorted(maps.Keys(r.kernels)), ", "))
	}
	slices.SortStableFunc(r.out.Kernels, func(a, b *Kernel) int { return a.At.compare(b.At) })
	slices.SortStableFunc(r.out.Variables, func(a, b *Variable) int { return a.At.compare(b.At) })
	return r.out, nil
}

// open reads the symbols, and finds the debug information.
func (r *reader) open(image []byte) (err error) {
	if len(image) < 64 || string(image[:4]) != elf.ELFMAG {
		return errors.New("this is no machine code of CUDA")
	}
	image = bytes.Clone(image)
	copy(image[0x14:], []byte{1, 0, 0, 0}) // the version: NVRTC 12 writes its own there
	if r.elf, err = elf.NewFile(bytes.NewReader(image)); err != nil {
		return err
	}
	if r.elf.Section(".debug_info") == nil {
		return ErrNoDebug
	}
	if r.dwarf, err = r.elf.DWARF(); err != nil {
		return fmt.Errorf("the debug information: %w", err)
	}
	symbols, err := r.elf.Symbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		switch elf.ST_TYPE(s.Info) {
		case elf.STT_FUNC:
			if s.Other&stoCUDAEntry != 0 {
				r.kernels[s.Name] = true
			}
		case elf.STT_OBJECT:
			r.objects[s.Name] = s
		}
	}
	return nil
}

// entry reads one entry at the top of a compilation unit, or enters the unit.
func (r *reader) entry(entries *dwarf.Reader, e *dwarf.Entry) error {
	symbol, _ := e.Val(linkageName).(string)
	switch {
	case e.Tag == dwarf.TagCompileUnit:
		return r.unit(e)
	case e.Tag == dwarf.TagSubprogram && r.kernels[symbol]:
		delete(r.kernels, symbol)
		return r.kernel(entries, e, symbol)
	case e.Tag == dwarf.TagVariable:
		if err := r.variable(e, symbol); err != nil {
			return err
		}
	}
	if e.Tag == dwarf.TagNamespace {
		return nil
	}
	return skip(entries, e)
}

// unit reads the names of files.
func (r *reader) unit(e *dwarf.Entry) error {
	lines, err := r.dwarf.LineReader(e)
	if err != nil || lines == nil {
		return err
	}
	var line dwarf.LineEntry
	for lines.Next(&line) == nil { // the table may grow until its end
	}
	r.files = lines.Files()
	return nil
}

func (r *reader) kernel(entries *dwarf.Reader, e *dwarf.Entry, symbol string) error {
	k := &Kernel{Symbol: symbol, Name: qualified(symbol), At: r.position(e), Long: long(demangle.Filter(symbol))}
	k.LongName = long(k.Name)
	for e.Children {
		p, err := entries.Next()
		if err != nil {
			return err
		}
		if p == nil || p.Tag == 0 {
			break
		}
		if p.Tag == dwarf.TagFormalParameter {
			name, _ := p.Val(dwarf.AttrName).(string)
			t, err := r.typeOf(p)
			if err != nil {
				return fmt.Errorf("kernel %s, parameter %s: %w", k.Name, name, err)
			}
			k.Parameters = append(k.Parameters, Parameter{name, t})
		}
		if err := skip(entries, p); err != nil {
			return err
		}
	}
	if err := errors.Join(r.resolve(), r.check(k)); err != nil {
		return err
	}
	r.out.Kernels = append(r.out.Kernels, k)
	return nil
}

// variable reads a variable, unless it is one of a function, of shared memory, or a constant of C++, whose value
// the compiler knows.
func (r *reader) variable(e *dwarf.Entry, symbol string) error {
	object, ok := r.objects[symbol]
	class, _ := e.Val(dwarf.AttrAddrClass).(int64)
	if !ok || class != constSpace && class != globalSpace || strings.HasPrefix(symbol, "_ZZ") {
		return nil
	}
	t, err := r.typeOf(e)
	if err == nil {
		err = r.resolve()
	}
	if err != nil {
		return fmt.Errorf("variable %s: %w", qualified(symbol), err)
	}
	if t.Const && class == globalSpace {
		return nil
	}
	v := &Variable{Symbol: symbol, Name: qualified(symbol), At: r.position(e), Type: t}
	switch {
	case class == constSpace:
		v.Space = Constant
	case object.Other&0xf == stoManaged:
		v.Space = Managed
	}
	r.out.Variables = append(r.out.Variables, v)
	return nil
}

func (r *reader) position(e *dwarf.Entry) Position {
	line, _ := e.Val(dwarf.AttrDeclLine).(int64)
	if i, ok := e.Val(dwarf.AttrDeclFile).(int64); ok && i >= 0 && int(i) < len(r.files) && r.files[i] != nil {
		return Position{r.files[i].Name, int(line)}
	}
	return Position{Line: int(line)}
}

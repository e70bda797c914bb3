package parse

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// stubs are the headers that are not NVIDIA's, or not in its runtime wheels.
//
//go:embed include
var stubs embed.FS

// Stubs is the include folder a C compiler needs beside NVIDIA's headers where
// there is no CUDA toolkit.
func Stubs() fs.FS {
	sub, err := fs.Sub(stubs, "include/cuda")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// predefined is what a C compiler says of itself.
//
//go:embed include/compiler.h
var predefined string

// float16 is what the numbers of 16 bits that Go lacks are in C to the package: their bits.
const float16 = "__float16"

// end follows the header: at the end of its input the front end would wait
// forever for what a header cut off after a * lacks.
const end = "int __predefined_end;\n"

// headerFS shows one flat folder: NVIDIA's headers under cuda/, ours in front.
type headerFS struct {
	headers fs.FS
	row     *model.Row
	files   map[string][]byte // what was read, by name
}

func (h headerFS) Open(name string) (fs.File, error) {
	rest, inFolder := strings.CutPrefix(path.Clean(name), "cuda/")
	if inFolder && ofSystem.MatchString(rest) { // those of a whole system fit each other
		if f, err := h.open(rest); err == nil {
			return f, nil
		}
	}
	for _, root := range []string{"include/std", "include/cuda"} {
		if f, err := stubs.Open(path.Join(root, rest)); err == nil && !(ofSystem.MatchString(rest) && !inFolder) {
			return f, nil
		}
	}
	if !inFolder {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return h.open(rest)
}

// ofSystem are the headers of POSIX of which the include folder's own come first.
var ofSystem = regexp.MustCompile(`^(sys|arpa)/`)

// open shows a header of the include folder.
func (h headerFS) open(name string) (fs.File, error) {
	data, err := fs.ReadFile(h.headers, name)
	if err != nil {
		return nil, err
	}
	f, err := h.headers.Open(name)
	if err != nil {
		return nil, err
	}
	h.files["cuda/"+name] = packsMarked(charactersShown(attributesShown(h.row.Shown(data))))
	return shown{f, bytes.NewReader(h.files["cuda/"+name])}, nil
}

// The front end does not know the attributes of C23, and none behind the word enum. Most headers
// have none of the latter, and enumWithAttribute finds that out fast, as it begins with a word.
var (
	attribute         = regexp.MustCompile(`\[\[[^\[\]\n]*\]\]`)
	enumWithAttribute = regexp.MustCompile(`enum\s+__attribute__`)
	enumAttribute     = regexp.MustCompile(`\b(enum\s+)(__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\))`)
)

// packedEnum is what the attribute packed becomes that stands behind the word enum: in front of it, it says nothing of the
// enum.
const packedEnum = "packed_enum"

var packedWord = regexp.MustCompile(`\b(__)?packed(__)?\b`)

// attributesShown is a header with those of C23 that say that something is deprecated in the form
// of GNU C, without the others of C23, and with those of enums in front of them.
func attributesShown(header []byte) []byte {
	header = attribute.ReplaceAllFunc(header, func(text []byte) []byte {
		if bytes.Contains(text, []byte("deprecated")) {
			return []byte("__attribute__((deprecated))")
		}
		return nil
	})
	if !enumWithAttribute.Match(header) {
		return header
	}
	return enumAttribute.ReplaceAllFunc(header, func(text []byte) []byte {
		text = packedWord.ReplaceAll(text, []byte(packedEnum))
		return enumAttribute.ReplaceAll(text, []byte("$2 $1"))
	})
}

// The front end knows character constants of one character alone. What may have an apostrophe inside comes first:
// comments, strings, numbers of C23, and wide and single characters. Most headers have none of several, which
// severalCharacters finds out fast, as it begins with an apostrophe.
var (
	severalCharacters = regexp.MustCompile(`'[^'\\\n]{2,4}'`)
	apostrophes       = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\b[0-9]\w*(?:'\w+)+|\w*'(?:[^'\\\n]|\\.)*'`)
)

// charactersShown is a header with the numbers that GCC makes of constants of two to four characters.
func charactersShown(header []byte) []byte {
	if !severalCharacters.Match(header) {
		return header
	}
	return apostrophes.ReplaceAllFunc(header, func(text []byte) []byte {
		if text[0] != '\'' || len(severalCharacters.Find(text)) != len(text) {
			return text
		}
		n := int32(0)
		for _, c := range text[1 : len(text)-1] {
			n = n<<8 | int32(c)
		}
		return strconv.AppendInt(nil, int64(n), 10)
	})
}

// shown is a file with another text.
type shown struct {
	fs.File
	text *bytes.Reader
}

func (s shown) Read(p []byte) (int, error) { return s.text.Read(p) }

// translate runs the C front end over headers with the macros of defs defined.
// Neither a C compiler nor a header of this machine takes part.
func translate(headers fs.FS, row *model.Row, names []string, defs string) (ast *cc.AST, files map[string][]byte, err error) {
	abi, err := cc.NewABI("linux", "amd64")
	if err != nil {
		return nil, nil, err
	}
	h := headerFS{headers, row, map[string][]byte{}}
	cfg := &cc.Config{
		ABI: abi, FS: h, FSOnly: true, Header: true, EvalAllMacros: true,
		IncludePaths:    []string{"", "cuda"},
		SysIncludePaths: []string{"cuda"},
		ExpansionLimit:  50_000_000,
		PragmaHandler:   notMarked,
	}
	// The front end reports what it cannot read as errors, but on a few
	// malformed inputs it panics; those are bad input too.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: the C front end gave up: %v", names[0], r)
		}
	}()
	main := ""
	for _, name := range names {
		main += "#include <" + name + ">\n"
	}
	sources := []cc.Source{
		{Name: "<predefined>", Value: predefined},
		{Name: "<defines>", Value: defs},
		{Name: "<main>", Value: main + end},
	}
	// What ends the preprocessor keeps the parser from end.
	if err = cc.Preprocess(cfg, sources, io.Discard); err == nil {
		ast, err = cc.Translate(cfg, sources)
	}
	if err != nil {
		err = errors.New(shownAt.ReplaceAllString(err.Error(), "$1"))
		return nil, nil, fmt.Errorf("%s: %w%s", names[0], firstLines(err, 5), advice(err))
	}
	return ast, h.files, nil
}

// shownAt is the folder of headerFS at the places of errors, of which users do not know.
var shownAt = regexp.MustCompile(`(?m)^(\s*)cuda/`)

// where says where something stands.
func where(n cc.Node) string {
	return shownAt.ReplaceAllString(n.Position().String(), "$1")
}

// notFound is the front end's error for a header that is missing. What follows it comes from that.
const notFound = "include file not found"

// advice is what to do about a header that is missing, or an error that a type without a declaration may have caused.
func advice(err error) string {
	switch {
	case strings.Contains(err.Error(), notFound):
		return "\nadd its folder to -headers, as in include:/usr/include, or give -cuda for CUDA's own"
	case strings.Contains(err.Error(), "unexpected identifier"):
		return "\nif a type is unknown here, include the header that declares it, or name that header in \"before\" of the row"
	}
	return ""
}

// firstLines keeps an error readable: one wrong line can cause hundreds.
func firstLines(err error, n int) error {
	lines := strings.Split(err.Error(), "\n")
	if missing := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, notFound) }); len(missing) > 0 {
		lines, err = missing, errors.New(strings.Join(missing, "\n"))
	}
	if len(lines) <= n {
		return err
	}
	return errors.New(strings.Join(lines[:n], "\n") + fmt.Sprintf("\n... and %d more", len(lines)-n))
}

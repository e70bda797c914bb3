package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/command"
)

const zlibProgram = `package main

import (
	"bytes"
	"fmt"

	"example.com/user/zlib"
)

func main() {
	text := bytes.Repeat([]byte("round and round "), 100)
	small, back := make([]byte, 200), make([]byte, len(text))
	n, m := zlib.ULongf(len(small)), zlib.ULongf(len(back))
	fmt.Println(zlib.Compress((*zlib.Bytef)(&small[0]), &n, (*zlib.Bytef)(&text[0]), zlib.ULong(len(text))))
	fmt.Println(zlib.Uncompress((*zlib.Bytef)(&back[0]), &m, (*zlib.Bytef)(&small[0]), zlib.ULong(n)))
	fmt.Println(n < 200, bytes.Equal(text, back))
}
`

// The callback is a function of C: SQLite calls it inside of the call.
const sqlite3Program = `package main

/*
static int total;
static int add(void *n, int columns, char **values, char **names) {
	*(int *)n += values[0][0] - '0';
	return columns != 1;
}
static void *adder(void) { return add; }
static void *place(void) { return &total; }
static int sum(void) { return total; }
*/
import "C"

import (
	"fmt"

	"example.com/user/sqlite3"
)

func main() {
	var db *sqlite3.Sqlite3
	name, sql := []byte(":memory:\x00"), []byte("create table t(n); insert into t values (3), (4); select n from t;\x00")
	fmt.Println(sqlite3.Sqlite3_open(&name[0], &db))
	fmt.Println(sqlite3.Sqlite3_exec(db, &sql[0], sqlite3.Sqlite3_exec_callback(uintptr(C.adder())), C.place(), nil))
	fmt.Println(sqlite3.Sqlite3_close(db))
	fmt.Println(C.sum())
}
`

// TestSystemLibraries binds libraries that were made without a thought of Go, where this machine
// has them with their headers, and calls them.
func TestSystemLibraries(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	const include = "/usr/include"
	for _, tt := range []struct {
		name, header, program, output string
		leftOut                       string
		comment                       string // in the package
	}{
		{"zlib", "zlib.h", zlibProgram, "0 <nil>\n0 <nil>\ntrue true\n", "gen: left out: gzprintf, gzvprintf: it takes a variable number of arguments\n", "int compress(Bytef *dest, uLongf *destLen, const Bytef *source, uLong sourceLen)"},
		{"sqlite3", "sqlite3.h", sqlite3Program, "0 <nil>\n0 <nil>\n0 <nil>\n7\n", "gen: left out: sqlite3_version: it is an array without a length\n",
			"int sqlite3_bind_text(sqlite3_stmt *, int, const char *, int, void (*)(void *))\n//\n// The callback is the address of a C function, or 0. The library runs it on the calling thread,"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := command.CC().Err; err != nil {
				t.Skipf("there is no C compiler: %v", err)
			}
			if _, err := os.Stat(filepath.Join(include, tt.header)); err != nil {
				t.Skipf("install the headers of %s: %v", tt.name, err)
			}
			dir := userModule(t, map[string]string{"main.go": tt.program})
			var notice bytes.Buffer
			require.NoError(t, run([]string{"-row", "testdata/system/" + tt.name + ".json", "-headers", include, "-out", filepath.Join(dir, tt.name), "-package", tt.name}, &notice))
			assert.Contains(t, notice.String(), tt.leftOut)
			assert.Regexp(t, `gen: all \d+ sizes, alignments and places`, notice.String())
			assert.Contains(t, string(contents(t, filepath.Join(dir, tt.name))["z"+tt.name+".go"]), tt.comment)
			assert.Equal(t, tt.output, runs(t, dir))
		})
	}
}

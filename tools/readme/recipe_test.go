package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// Recipes are commands for users: fences after a line that says where to run
// them. These tests do so, with the checkout as the newest version that a module
// proxy has.
var recipes = regexp.MustCompile("(?s)<!-- run in (a new module|a module with tests) -->\n```sh\n(.*?)```")

// userVersion is what the proxy calls the checkout.
var userVersion = module.Version{Path: "github.com/cudabind/cudabind", Version: "v0.0.1"}

// A user has a module of their own.
type user struct {
	dir string
	env []string
}

// newUser makes a new module, and a module cache that has none of ours.
func newUser(t *testing.T, env ...string) *user {
	t.Helper()
	u := &user{dir: t.TempDir(), env: append(os.Environ(), env...)}
	u.run(t, "go mod init example.com/user")
	return u
}

// run runs commands as a shell does that ends with the first that fails.
func (u *user) run(t *testing.T, commands string) string {
	t.Helper()
	sh := exec.Command("sh", "-eu")
	sh.Dir, sh.Env, sh.Stdin = u.dir, u.env, strings.NewReader(commands)
	out, err := sh.CombinedOutput()
	require.NoErrorf(t, err, "%s\n%s", commands, out)
	return string(out)
}

func (u *user) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, name), []byte(text), 0o666))
}

// userEnv is the environment of users: a proxy that has the checkout, and a
// simulated driver.
func userEnv(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds everything anew")
	}
	for _, r := range headers.Releases() {
		if _, err := r.Find(); err != nil {
			t.Skipf("needs the headers that make generate fetches: %v", err)
		}
	}
	driver, cache := t.TempDir(), t.TempDir()
	_, err := sim.Build(driver, sim.Default)
	require.NoError(t, err)
	others, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	words := strings.Fields(string(others))
	require.Len(t, words, 2)
	return []string{
		"GOPROXY=file://" + proxy(t) + ",file://" + words[0] + "/cache/download," + words[1],
		"GOMODCACHE=" + cache, "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"GOFLAGS=-modcacherw", // for who removes it
		"LD_LIBRARY_PATH=" + driver,
	}
}

// proxy makes a folder that serves the files of the checkout that are or may be
// committed.
func proxy(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("needs a checkout: %v", err)
	}
	checkout := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		file := filepath.Join(checkout, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, text, 0o666))
	}
	dir := t.TempDir()
	versions := filepath.Join(dir, filepath.FromSlash(userVersion.Path), "@v")
	require.NoError(t, os.MkdirAll(versions, 0o777))
	archive, err := os.Create(filepath.Join(versions, userVersion.Version+".zip"))
	require.NoError(t, err)
	defer archive.Close()
	require.NoError(t, zip.CreateFromDir(archive, userVersion, checkout))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"list":                        userVersion.Version + "\n",
		userVersion.Version + ".info": `{"Version":"` + userVersion.Version + `"}`,
		userVersion.Version + ".mod":  string(mod),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(versions, name), []byte(text), 0o666))
	}
	return dir
}

// usersTest is a test of a program that uses the packages.
const usersTest = `package user

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
)

func TestDevices(t *testing.T) {
	devices, err := safe.Devices()
	if err != nil || len(devices) != 2 {
		t.Fatal(devices, err)
	}
}
`

// TestRecipes runs the commands as they stand in the texts.
func TestRecipes(t *testing.T) {
	env := userEnv(t)
	n := 0
	eachText(t, func(t *testing.T, file, text string) {
		assert.Equal(t, strings.Count(text, "<!-- run in"), len(recipes.FindAllString(text, -1)), "no fence of sh follows")
		for _, m := range recipes.FindAllStringSubmatch(text, -1) {
			n++
			u := newUser(t, env...)
			if m[1] == "a module with tests" {
				u.write(t, "user_test.go", usersTest)
				u.run(t, "go get github.com/cudabind/cudabind@latest\ngo mod tidy")
			}
			u.run(t, m[2])
		}
	})
	assert.GreaterOrEqual(t, n, 7)
}

// usersProgram uses a package of the user's own beside ours.
const usersProgram = `package main

import (
	"fmt"

	"example.com/user/internal/driver"
	ours "github.com/cudabind/cudabind/cuda/generated/driver"
)

func main() {
	_, version, err := driver.Library()
	fmt.Println(version, err)
	fmt.Println(driver.Functions, ours.Functions, driver.CuInit(0), ours.CuInit(0))
}
`

// TestOwnModule does what the README says of a package in a module of one's own,
// and goes on: tidies the module, generates again and uses the package beside ours.
func TestOwnModule(t *testing.T) {
	u := newUser(t, userEnv(t)...)
	text, err := os.ReadFile(filepath.Join(root, readme))
	require.NoError(t, err)
	for _, m := range recipes.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[2], "go generate") {
			u.run(t, m[2])
		}
	}
	generated := filepath.Join(u.dir, "internal", "driver", "zinitialize.go")
	require.FileExists(t, generated)
	require.NoError(t, os.Remove(generated))
	u.run(t, "go mod tidy\ngo generate ./...")
	require.FileExists(t, generated)

	for line := range strings.Lines(u.run(t, "go list -deps ./internal/driver")) {
		path := strings.TrimSpace(line)
		assert.Falsef(t, strings.Contains(strings.Split(path, "/")[0], ".") && path != "example.com/user/internal/driver", "the package depends on %s", path)
	}
	u.write(t, "main.go", usersProgram)
	const works = "13.0 <nil>\n626 723 <nil> <nil>\n"
	for _, c := range []struct{ cgo, tags, says string }{
		{"1", "", works},
		{"0", "", "built without cgo"},
		{"0", "cudabind_nocgo", works},
	} {
		t.Run("CGO_ENABLED="+c.cgo+" "+c.tags, func(t *testing.T) {
			u.run(t, "export CGO_ENABLED="+c.cgo+"\ngo mod tidy\ngo vet -tags '"+c.tags+"' ./...\ngo build -tags '"+c.tags+"' -o program .")
			program := command.Built(filepath.Join(u.dir, "program"))
			program.Env = u.env
			out, err := program.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), c.says)
		})
	}
}

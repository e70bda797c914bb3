package tools_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/pip/piptest"
)

// releaseDay is a copy of the checkout on the day on which CUDA next follows was.
type releaseDay struct {
	*testing.T
	root      string // of the copy
	was, next string
	manual    string // the section of CONTRIBUTING.md
	names     string // names.txt of the driver, as it was
}

// newReleaseDay copies the checkout, makes the release, and puts a pip in PATH that has it. Of the older versions the copy
// keeps those that packages are generated from: add reads the headers of all.
func newReleaseDay(t *testing.T) *releaseDay {
	releases := headers.Releases()
	newest := releases[len(releases)-1]
	var major, minor int
	_, err := fmt.Sscanf(newest.Version, "%d.%d", &major, &minor)
	require.NoError(t, err)
	day := &releaseDay{T: t, root: t.TempDir(), was: newest.Version, next: fmt.Sprintf("%d.%d", major, minor+1)}
	include := t.TempDir()
	releases = slices.DeleteFunc(releases, func(r headers.Release) bool {
		return !slices.ContainsFunc(model.Packages(), func(p model.Published) bool { return p.Version == r.Version })
	})
	for _, r := range releases {
		dir, err := r.Find()
		if err != nil {
			t.Skipf("%v (make generate fetches them all)", err)
		}
		require.NoError(t, os.Symlink(dir, filepath.Join(include, r.Version)))
	}
	day.copyCheckout()
	manifest, err := headers.FormatManifest(releases)
	require.NoError(t, err)
	day.write("headers/manifest.json", string(manifest))
	_, day.manual, _ = strings.Cut(day.read("CONTRIBUTING.md"), "### Adding a CUDA version\n")
	day.manual, _, _ = strings.Cut(day.manual, "### Adding a quirk\n")
	day.names = day.read("cuda/generated/driver/names.txt")

	dir, err := newest.Find()
	require.NoError(t, err)
	day.publish(newest, releaseOf(t, dir, major, minor+1))
	t.Setenv(headers.EnvDir, include)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-trimpath") // what other runs have built serves this one
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	t.Setenv("GOROOT", strings.TrimSpace(string(root)))
	return day
}

// copyCheckout copies what git tracks or would.
func (day *releaseDay) copyCheckout() {
	if err := command.CC().Err; err != nil {
		day.Skipf("there is no C compiler: %v", err)
	}
	list, err := exec.Command("git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		day.Skipf("git does not list the checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // removed, and not committed
		}
		require.NoError(day, err)
		day.write(name, string(text))
	}
	day.runs([]string{"git", "init", "-q"})
	day.runs([]string{"git", "add", "."})
}

// releaseOf gives the headers of a folder as the next version might have them.
func releaseOf(t *testing.T, dir string, major, minor int) map[string]string {
	was, next := 1000*major+10*(minor-1), 1000*major+10*minor
	changed := map[string]string{}
	change := func(header, old, text string) {
		if changed[header] == "" {
			data, err := os.ReadFile(filepath.Join(dir, header))
			require.NoError(t, err)
			changed[header] = string(data)
		}
		require.Equalf(t, 1, strings.Count(changed[header], old), "%s has changed: find another place than %q for the change", header, old)
		changed[header] = strings.Replace(changed[header], old, text, 1)
	}
	after := func(header, old, text string) { change(header, old, old+text) }
	change("cuda.h", fmt.Sprintf("#define CUDA_VERSION %d", was), fmt.Sprintf("#define CUDA_VERSION %d", next))

	// A variant takes over a name.
	const getName = "CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev);\n"
	change("cuda.h", getName, strings.Replace(getName, "int len", "size_t len", 1))
	change("cuda.h", "#define cuDeviceTotalMem ", "#define cuDeviceGetName cuDeviceGetName_v2\n#define cuDeviceTotalMem ")
	after("cuda.h", "    #undef cuDeviceTotalMem\n", "    #undef cuDeviceGetName\n")
	change("cuda.h", "    CUresult CUDAAPI cuDeviceTotalMem(unsigned int *bytes,", getName+"    CUresult CUDAAPI cuDeviceTotalMem(unsigned int *bytes,")
	const form = "typedef CUresult (CUDAAPI *PFN_cuDeviceGetName_v2000)(char *name, int len, CUdevice_v1 dev);\n"
	after("cudaTypedefs.h", form, strings.NewReplacer("v2000", fmt.Sprintf("v%d", next), "int len", "size_t len").Replace(form))

	// Something of each kind is new.
	after("cuda.h", "\nCUresult CUDAAPI cuStreamGetId(CUstream hStream, unsigned long long *streamId);\n", `
typedef enum CUwalkMode_enum { CU_WALK_MODE_SLOW = 0, CU_WALK_MODE_FAST = 1 } CUwalkMode;
typedef struct CUwalkParams_st { CUwalkMode mode; unsigned int steps; void *where; } CUwalkParams_v1;
typedef CUwalkParams_v1 CUwalkParams;
typedef void (CUDA_CB *CUwalkCallback)(CUstream hStream, void *userData);
#define CU_WALK_STEPS_MAX 64
#define CU_WALK_PARAMS_INIT { CU_WALK_MODE_FAST, 0, 0 }
/**
 * \brief Walks.
 * \return ::CUDA_SUCCESS, ::CUDA_ERROR_INVALID_VALUE
 */
CUresult CUDAAPI cuStreamWalk(CUstream hStream, const CUwalkParams *params, CUwalkCallback callback, void *userData);
`)
	change("cuda.h", "    CU_LIMIT_STACK_SIZE ", "    CU_LIMIT_WALK = 99,\n    CU_LIMIT_STACK_SIZE ")

	// A function takes other types, one is gone, and a type has another name.
	change("cuda.h", "cuDeviceGetLuid(char *luid, unsigned int *", "cuDeviceGetLuid(char *luid, int *")
	change("cudaTypedefs.h", "cuDeviceGetLuid_v10000)(char *luid, unsigned int *", "cuDeviceGetLuid_v10000)(char *luid, int *")
	change("cuda.h", "\nCUresult CUDAAPI cuDeviceGetNvSciSyncAttributes(void *nvSciSyncAttrList, CUdevice dev, int flags);\n", "\n")
	for header, text := range changed {
		changed[header] = regexp.MustCompile(`\bCUlogsCallback\b`).ReplaceAllString(text, "CUlogsReceiver")
	}
	return changed
}

// publish puts a pip in PATH that has the packages of a release in a next version, with changed headers.
func (day *releaseDay) publish(was headers.Release, changed map[string]string) {
	from, err := was.Find()
	require.NoError(day, err)
	packages := []headers.Package{was.Package}
	for _, l := range was.Libraries {
		packages = append(packages, l.Package)
	}
	site := day.TempDir()
	var found []any
	for _, p := range packages {
		version := p.WheelVersion
		if strings.HasPrefix(version, day.was+".") {
			version = day.next + ".1"
		}
		found = append(found, map[string]any{"metadata": map[string]string{"name": p.Wheel, "version": version}})
		file := filepath.Join(site, p.Wheel, strings.ReplaceAll(p.Wheel, "-", "_")+"-"+version+"-py3-none-"+p.Platform+".whl")
		require.NoError(day, os.Mkdir(filepath.Dir(file), 0o777))
		f, err := os.Create(file)
		require.NoError(day, err)
		w := zip.NewWriter(f)
		for _, h := range p.Headers {
			text := changed[h.Path]
			if text == "" {
				data, err := os.ReadFile(filepath.Join(from, filepath.FromSlash(h.Path)))
				require.NoError(day, err)
				text = string(data)
			}
			part, err := w.Create("nvidia/include/" + h.Path)
			require.NoError(day, err)
			_, err = part.Write([]byte(text))
			require.NoError(day, err)
		}
		require.NoError(day, w.Close())
		require.NoError(day, f.Close())
	}
	report, err := json.Marshal(map[string]any{"install": found})
	require.NoError(day, err)
	require.NoError(day, os.WriteFile(filepath.Join(site, "report"), report, 0o666))
	piptest.Python(day.T, `
[ -n "$report" ] && cp "`+site+`/report" "$report"
[ -n "$dest" ] && for q in $args; do case $q in nvidia-*) cp "`+site+`/${q%%==*}"/* "$dest" ;; esac; done
exit 0`)
}

// page is a command that the page shows, where %[1]s and %[2]s stand for the old and the new version.
func (day *releaseDay) page(format string) string {
	day.Helper()
	command := strings.NewReplacer("%[1]s", day.was, "%[2]s", day.next, "%[3]s", strings.Replace(day.was, ".", `\.`, 1)).Replace(format)
	require.Contains(day, day.manual, command, "the page does not show it")
	return command
}

// step is the words of such a command.
func (day *releaseDay) step(format string) []string {
	day.Helper()
	return strings.Fields(day.page(format))
}

// runs runs a command in the copy, and returns what it prints.
func (day *releaseDay) runs(words []string) string {
	day.Helper()
	out, err := day.try(words)
	require.NoErrorf(day, err, "%s\n%s", strings.Join(words, " "), out)
	return out
}

// stops runs a command that must fail and say all of the texts.
func (day *releaseDay) stops(words []string, texts ...string) {
	day.Helper()
	out, err := day.try(words)
	require.Errorf(day, err, "%s\n%s", strings.Join(words, " "), out)
	for _, text := range texts {
		assert.Contains(day, out, text)
	}
}

func (day *releaseDay) try(words []string) (string, error) {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = day.root
	start := time.Now()
	out, err := cmd.CombinedOutput()
	day.Logf("%.1f s: %s", time.Since(start).Seconds(), strings.Join(words, " "))
	return string(out), err
}

func (day *releaseDay) read(name string) string {
	day.Helper()
	text, err := os.ReadFile(filepath.Join(day.root, filepath.FromSlash(name)))
	require.NoError(day, err)
	return string(text)
}

func (day *releaseDay) write(name, text string) {
	day.Helper()
	file := filepath.Join(day.root, filepath.FromSlash(name))
	require.NoError(day, os.MkdirAll(filepath.Dir(file), 0o777))
	require.NoError(day, os.WriteFile(file, []byte(text), 0o666))
}

// edit replaces a text that a file of the copy has once.
func (day *releaseDay) edit(name, old, text string) {
	day.Helper()
	was := day.read(name)
	require.Equalf(day, 1, strings.Count(was, old), "%s: %q", name, old)
	day.write(name, strings.Replace(was, old, text, 1))
}

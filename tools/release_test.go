package tools_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReleaseDay takes the steps of CONTRIBUTING.md for a new CUDA version in a copy of the checkout, with a version that
// it makes of the newest one. It stops wherever a maintainer does, and does what the message asks for. The driver alone
// has changed, so that no other package is generated.
func TestReleaseDay(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the generator, its tests and the driver package: make proofs")
	}
	day := newReleaseDay(t)
	day.pin()
	day.compare()
	day.generate()
	day.document()
	day.keepNames()
	day.findVersions()
	day.prove()
	day.acceptAPI()
}

// pin is step 1.
func (day *releaseDay) pin() {
	assert.Contains(day, day.runs(day.step("go run ./tools/headers add %[2]s")), "pinning nvidia-cuda-runtime "+day.next+".1\n")
	assert.Contains(day, day.read("gen/model/since.txt"), "driver cuDeviceGetName_v2 "+day.next+"\ndriver cuStreamWalk "+day.next+"\n")
}

// compare is step 2.
func (day *releaseDay) compare() {
	seen := day.runs(slices.Insert(day.step("go run ./tools/apidiff %[1]s %[2]s"), 3, "-api", "driver"))
	for _, change := range []string{
		"function added:\n  CUresult cuDeviceGetName_v2(", "function removed:\n  CUresult cuDeviceGetNvSciSyncAttributes(",
		"function changed:\n  cuDeviceGetLuid: ", "plain name remapped:\n  cuDeviceGetName: cuDeviceGetName -> cuDeviceGetName_v2",
		"enum added:\n  CUwalkMode", "  CUlimit.CU_LIMIT_WALK: 99", "struct added:\n  CUwalkParams_v1: 16 bytes", "  CU_WALK_STEPS_MAX: 64",
		"callback added:\n  CUlogsReceiver: ", "callback removed:\n  CUlogsCallback: ", "CUDA_VERSION: ",
	} {
		assert.Contains(day, seen, change)
	}
}

// generateDriver does for the driver what make generate does for all packages.
var generateDriver = []string{"go", "generate", "-run", "-api driver ", "./cuda/generated"}

// generate is step 3. Each stop asks for quirks.
func (day *releaseDay) generate() {
	day.edit("cuda/generated/generate.go", "-cuda "+day.was+" -api driver", "-cuda "+day.next+" -api driver")
	day.stops([]string{"go", "test", "-run", "^TestGenerateLines$", "./gen"}, "gen/model/row.go says that driver is from CUDA "+day.was, "set the version in both")
	day.edit("gen/model/row.go", `Package: "driver", Versions: []string{"`+day.was+`"}`, `Package: "driver", Versions: []string{"`+day.next+`"}`)
	day.stops(generateDriver, "the quirk for CUlogsCallback (", ") matches nothing in cuda.h of CUDA "+day.next+": bound its range")
	day.edit("gen/model/quirk.go", `{"driver", "12.9", "", "CUlogsCallback"`, `{"driver", "12.9", "`+day.was+`", "CUlogsCallback"`)
	day.stops(generateDriver, "cuda.h of CUDA "+day.next+" has declarations that the generator does not know what to do with:",
		"callback type CUwalkCallback has no quirk row that says on which thread CUDA calls it", "callback type CUlogsReceiver has no quirk row",
		"macro CU_WALK_PARAMS_INIT has a body that is no constant: a skip quirk must say why it is left out")
	day.edit("gen/model/quirk.go", "\n\t// Status types.\n", `
	{"driver", "`+day.next+`", "", "CUlogsReceiver", callback("the thread whose call failed, inside that call", false), "CUlogsCallback under another name"},
	{"driver", "`+day.next+`", "", "CUwalkCallback", callback("a thread that CUDA does not name", false), "the header promises no thread"},
	{"driver", "`+day.next+`", "", "CU_WALK_PARAMS_INIT", skip, "an initialiser for a struct"},

	// Status types.
`)
	said := day.runs(generateDriver)
	assert.Contains(day, said, "loses functions that this header does not declare: CuDeviceGetNvSciSyncAttributes\n")
	assert.Contains(day, said, "loses types that this header does not declare: CUlogsCallback\n")
	assert.Contains(day, said, "changes functions that this header declares with other types: CuDeviceGetLuid, CuLogsRegisterCallback\n")
}

// document is step 4.
func (day *releaseDay) document() {
	texts := []string{"go", "test", "-short", "-run", "^(TestCoverage|TestStreamsComplete|TestCommentsSaySomething|.*Committed|TestNothingVanishes)$/^driver", "./gen/doc"}
	references := []string{"go", "test", "-short", "-run", "^TestHeaderDocs$/^" + day.next + "$/^driver$", "./gen/doc"}
	day.page("go test ./gen/doc")
	day.stops(texts, "[cuStreamWalk]", "functions without text", "[CUwalkMode CUwalkParams_v1 CUwalkCallback CUlogsReceiver]", "types without text",
		"cuStreamWalk has no text")
	day.stops(references, "the comments refer to cuDeviceGetNvSciSyncAttributes, which nothing declares: list it in danglingRefs")
	day.write("gen/doc/text/walk.txt", walkText)
	day.stops(texts, "CuStreamWalk calls cuStreamWalk.")
	day.edit("gen/doc/aliases.go", "var danglingRefs = map[string]string{\n", "var danglingRefs = map[string]string{\n\t\"cuDeviceGetNvSciSyncAttributes\": \"gone\",\n")
	day.runs(generateDriver)
	day.runs(texts)
	day.runs(references)
}

// walkText is a maintainer's text for what the release adds.
const walkText = `# What came with the release.

cuStreamWalk
	walks along a stream.

	param hStream: the stream
	param params: how to walk
	param callback: is told of each step
	param userData: for callback
	error CUDA_ERROR_INVALID_VALUE: params is nil
	order: synchronous; it does not wait for the stream's work.
	capture: allowed.
	go: any thread; no context has to be current.

CUwalkMode
	is a way to walk.

CUwalkParams
	says how to walk.

CUwalkCallback
	is told of each step.

CUlogsReceiver
	is told what the driver logs.
`

// keepNames is step 5.
func (day *releaseDay) keepNames() {
	names := day.read("cuda/generated/driver/names.txt")
	for line := range strings.Lines(day.names) {
		assert.Contains(day, names, line)
	}
	assert.Contains(day, names, "\ncuStreamWalk cuStreamWalk\n")
}

// findVersions is step 6.
func (day *releaseDay) findVersions() {
	places := day.runs([]string{"sh", "-c", day.page(`git grep -n '%[3]s' -- '*.go' '*.md' '*.sh' ':!cuda/generated/*/z*' ':!gen/testdata'`)})
	assert.Contains(day, places, "tools/simdriver/sim/build.go:")
	day.edit("tools/simdriver/sim/build.go", `"`+day.was+`"`, `"`+day.next+`"`)
}

// prove is step 7, for the driver.
func (day *releaseDay) prove() {
	day.runs([]string{"go", "test", "-short", "-run", "^(TestProof|TestUpToDate|TestGenerateLines)$/^driver$", "./gen"})
	day.runs([]string{"go", "build", "./cuda/...", "./tools/simdriver/..."})
	day.runs([]string{"go", "vet", "./cuda/generated/driver"})
}

// acceptAPI is the rest of step 7, and what a major version of the module does about lost names.
func (day *releaseDay) acceptAPI() {
	compare, write, remove := []string{"go", "run", "./tools/api"}, []string{"go", "run", "./tools/api", "-w"}, day.step("go run ./tools/api -w -remove")
	day.stops(compare, "+ func CuStreamWalk(", "run make api and add a line to CHANGELOG.md")
	day.stops(write, "- func CuDeviceGetLuid(*byte, *uint32, CUdevice) error", "- func CuDeviceGetNvSciSyncAttributes(", "- type CUlogsCallback uintptr",
		"- const CUDA_VERSION ", "api/ would lose lines (4): undo that, or see docs/versioning.md")
	day.runs(remove)
	assert.Empty(day, day.runs(compare))
}

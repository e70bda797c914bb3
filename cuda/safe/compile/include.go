package compile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cudabind/cudabind/cuda/safe"
)

// The key of an image must change with every header that the compiler reads. NVRTC does not tell
// which it read, so all are found beforehand: every file that the source, or a file found that way,
// can name, in all folders where the compiler looks. These are a few more than the compiler reads,
// never fewer; where that is in doubt, the image is not cached. It also tells which headers of an
// fs.FS to pass to NVRTC, and whether CUDA's own headers are needed.

// origin is where a text lies that includes others. A source from a file system has both folders,
// as NVRTC takes its name for a path.
type origin struct {
	files int    // the file system: 0 none, 1 that of the source, from 2 on Options.Headers
	dir   string // in files
	disk  string // on disk
	cuda  bool   // among CUDA's own headers
}

// lookup is a name to be looked for.
type lookup struct {
	include
	from origin
}

// includes are the headers that a source can include.
type includes struct {
	o       *Options
	source  string // its name
	cuda    *cudaHeaders
	files   []fs.FS // by origin.files
	lookups []lookup
	seen    map[lookup]bool
	given   map[lookup]bool         // those that memory answers
	memory  map[string]memoryHeader // by the words of the #include
	disk    map[string]diskHeader   // by path
	real    map[string]string       // folders without links
	folders []string                // of CUDA's headers, to be searched after IncludePaths
	own     map[string]bool         // folders of CUDA's headers, also among IncludePaths
	missing []string                // found nowhere
	unsure  bool                    // the image may follow from other files, too
	partly  bool                    // a header of CUDA names others in a way that is not understood
}

type memoryHeader struct{ path, text string }

type diskHeader struct {
	sum  [sha256.Size]byte
	info fs.FileInfo
	cuda bool
	mark bool // it begins with a byte order mark
}

// findIncludes finds all that a source and its headers include.
func findIncludes(ctx context.Context, o *Options, t text, cuda *cudaHeaders) (*includes, error) {
	i := &includes{
		o: o, source: t.file, cuda: cuda, files: append([]fs.FS{nil, t.files}, o.Headers...), own: map[string]bool{}, seen: map[lookup]bool{}, given: map[lookup]bool{},
		memory: map[string]memoryHeader{}, disk: map[string]diskHeader{}, real: map[string]string{},
	}
	for _, dir := range o.IncludePaths {
		i.own[dir] = hasHeaders(dir)
	}
	i.read(t.source, t.origin())
	for _, name := range slices.Sorted(maps.Keys(o.Defines)) {
		i.read("#define "+name+" "+o.Defines[name]+"\n", origin{})
	}
	i.read(strings.Join(o.Kernels, "\n"), origin{})
	for at := 0; at < len(i.lookups); at++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		folders := len(i.folders)
		if err := i.find(i.lookups[at]); err != nil {
			return nil, err
		}
		if len(i.folders) > folders {
			at = -1 // all names are looked for in the new folders, too
		}
	}
	if err := i.apart(); err != nil {
		return nil, err
	}
	i.addStandard()
	if i.partly {
		i.shadows()
	}
	return i, nil
}

// read takes in what a text names.
func (i *includes) read(text string, from origin) {
	all, unsure := scan(text)
	if from.cuda {
		i.partly = i.partly || unsure
	} else {
		i.unsure = i.unsure || unsure || depends(text)
	}
	for _, name := range all {
		l := lookup{name, from}
		if !name.quoted {
			l.from = origin{cuda: from.cuda}
		}
		if !i.seen[l] {
			i.seen[l] = true
			i.lookups = append(i.lookups, l)
		}
	}
}

func (i *includes) find(l lookup) error {
	if !l.from.cuda {
		if found, err := i.inMemory(l); found || err != nil {
			i.given[l] = found
			return err
		}
	}
	if i.onDisk(l) || l.from.cuda && l.name != cccl || slices.Contains(i.missing, l.name) {
		return nil
	}
	folders := i.cuda.find(l.name)
	for _, dir := range folders {
		if !slices.Contains(i.folders, dir) {
			i.folders, i.own[dir] = append(i.folders, dir), true
		}
	}
	if len(folders) == 0 {
		i.missing = append(i.missing, l.name)
	}
	return nil
}

// inMemory looks for a header in the file systems. NVRTC tells such headers apart by the words of
// the #include alone, and takes them before those on disk.
func (i *includes) inMemory(l lookup) (bool, error) {
	places := []origin{{files: l.from.files, dir: path.Join(l.from.dir, l.name)}} // beside the file
	for n := 2; n < len(i.files); n++ {
		places = append(places, origin{files: n, dir: path.Clean(l.name)})
	}
	for _, place := range places {
		files, file := i.files[place.files], place.dir
		if files == nil || !fs.ValidPath(file) {
			continue
		}
		info, err := fs.Stat(files, file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrInvalid) || err == nil && info.IsDir() {
			continue // as where a file has the name of a folder
		}
		text, err := readFS(files, file)
		if err == nil {
			text, err = plain(text, "the header "+file)
		}
		if err != nil {
			return false, err
		}
		before, twice := i.memory[l.name]
		if twice && before.path != file {
			return false, fmt.Errorf("%w: #include %q stands for %s in one file and for %s in another; NVRTC takes both for the same: include them by their whole paths", safe.ErrInvalidArgument, l.name, before.path, file)
		}
		if twice && before.text != text {
			return false, fmt.Errorf("%w: #include %q stands for two files %s of different file systems; NVRTC takes both for the same: rename one", safe.ErrInvalidArgument, l.name, file)
		}
		i.memory[l.name] = memoryHeader{file, text}
		i.read(text, origin{files: place.files, dir: path.Dir(file), disk: folderOf(l.name)})
		return true, nil
	}
	return false, nil
}

// apart returns an error if NVRTC would take a header of the file systems for one on disk, of CUDA for instance, because the
// words of their #include are the same. A name in angle brackets may be meant to do that.
func (i *includes) apart() error {
	for _, l := range i.lookups {
		header, ok := i.memory[l.name]
		if !ok || !l.quoted || i.given[l] {
			continue
		}
		for _, dir := range slices.Concat([]string{l.from.disk}, i.o.IncludePaths, i.folders) {
			file := within(dir, l.name)
			text, _, err := readFile(file, maxText)
			if err != nil {
				continue
			}
			if strings.TrimPrefix(text, utf8Mark) == header.text {
				break
			}
			return fmt.Errorf("%w: #include %q stands for %s, which is in memory, and in another file for %s; NVRTC takes both for the same: rename yours", safe.ErrInvalidArgument, l.name, header.path, file)
		}
	}
	return nil
}

// onDisk looks for a header beside the file that includes it, in IncludePaths and among CUDA's
// headers. All files that are there count, and not only the first, whatever the compiler's order.
// For a name without a dot the compiler looks for name.stdh, too.
func (i *includes) onDisk(l lookup) (found bool) {
	names := []string{l.name}
	if !strings.Contains(path.Base(l.name), ".") {
		names = append(names, l.name+".stdh")
	}
	folders := slices.Concat(i.o.IncludePaths, i.folders)
	for _, name := range names {
		if filepath.IsAbs(name) {
			found = i.visit(name, false) || found
			continue
		}
		if l.quoted {
			found = i.visit(within(l.from.disk, name), l.from.cuda) || found
		}
		for _, dir := range folders {
			found = i.visit(within(dir, name), i.own[dir]) || found
		}
	}
	return found
}

// within is the path by which NVRTC opens a file: it does not resolve "..", which depends on links.
func within(dir, name string) string { return dir + "/" + name }

// folderOf is the folder of a file, with its "..".
func folderOf(file string) string {
	for n := len(file) - 1; n >= 0; n-- {
		if os.IsPathSeparator(file[n]) {
			return file[:n]
		}
	}
	return "."
}

// visit reads a file if it is there. Whatever the path, a file in a folder is read once, as
// headers may include each other for ever by longer and longer paths.
func (i *includes) visit(file string, cuda bool) (found bool) {
	info, err := os.Stat(file)
	if err != nil {
		i.unsure = i.unsure || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
		return false
	}
	if info.IsDir() {
		return false // the compiler goes on to the next folder
	}
	folder, err := i.realFolder(folderOf(file))
	file = within(folder, filepath.Base(file))
	if before, ok := i.disk[file]; ok && err == nil && (cuda || !before.cuda) {
		return true
	}
	text := ""
	if err == nil && special(file, info) {
		err = fs.ErrInvalid
	}
	if err == nil {
		text, info, err = readFile(file, maxText)
	}
	if err != nil {
		i.unsure = true // the compiler reads it, or says why not
		return true
	}
	i.disk[file] = diskHeader{sha256.Sum256([]byte(text)), info, cuda, strings.HasPrefix(text, utf8Mark)}
	i.read(text, origin{disk: folder, cuda: cuda})
	return true
}

// realFolder resolves the links and the ".." in the path of a folder.
func (i *includes) realFolder(dir string) (string, error) {
	if real, ok := i.real[dir]; ok {
		return real, nil
	}
	real, err := filepath.EvalSymlinks(dir + "/")
	if err == nil {
		i.real[dir] = real
	}
	return real, err
}

// special tells whether reading a file may wait or have effects although it is a regular one, as
// that of some files of the kernel does. They have no size.
func special(file string, info fs.FileInfo) bool {
	if info.Size() > 0 {
		return false
	}
	real, err := filepath.EvalSymlinks(file)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	return err != nil || strings.HasPrefix(real, "/proc/") || strings.HasPrefix(real, "/sys/")
}

// headers are those to pass to NVRTC.
func (i *includes) headers() (all []header) {
	for _, name := range slices.Sorted(maps.Keys(i.memory)) {
		all = append(all, header{name, i.memory[name].text})
	}
	return all
}

// addTo adds all headers to the key of an image.
func (i *includes) addTo(k key) error {
	for _, h := range i.headers() {
		k.add("header", h.name, h.text)
	}
	for _, file := range slices.Sorted(maps.Keys(i.disk)) {
		sum := i.disk[file].sum
		k.add("file", file, string(sum[:]))
	}
	for _, dir := range slices.Sorted(maps.Keys(i.real)) {
		k.add("path", dir, i.real[dir])
	}
	for _, same := range i.same() {
		k.add(append([]string{"same"}, same...)...)
	}
	if !i.partly {
		return nil
	}
	for _, dir := range i.ownFolders() {
		stamp, err := stampOf(dir)
		if err != nil {
			return err
		}
		k.add("folder", dir, stamp)
	}
	return nil
}

// same returns the files that are found by several paths: to #pragma once, they are one.
func (i *includes) same() (all [][]string) {
	type size struct{ bytes, changed int64 }
	infos, alike := map[string]fs.FileInfo{}, map[size][]string{}
	add := func(file string, info fs.FileInfo) {
		infos[file] = info
		s := size{info.Size(), info.ModTime().UnixNano()}
		alike[s] = append(alike[s], file)
	}
	for file, h := range i.disk {
		add(file, h.info)
	}
	for _, name := range append(slices.Collect(maps.Keys(i.memory)), i.source) { // NVRTC looks for these on disk, too
		if info, err := os.Stat(name); err == nil && infos[name] == nil {
			add(name, info)
		}
	}
	for _, files := range alike {
		slices.Sort(files)
		for n, file := range files {
			for _, other := range files[:n] {
				if os.SameFile(infos[file], infos[other]) {
					all = append(all, []string{other, file})
				}
			}
		}
	}
	slices.SortFunc(all, slices.Compare)
	return all
}

// state tells whether files have changed, also if their contents are as before.
func (i *includes) state() string {
	k := key{sha256.New()}
	for _, file := range slices.Sorted(maps.Keys(i.disk)) {
		info := i.disk[file].info
		k.add(file, info.ModTime().String(), strconv.FormatInt(changed(info), 10))
	}
	return k.sum()
}

// ownFolders are the folders of CUDA's headers.
func (i *includes) ownFolders() (all []string) {
	for dir, own := range i.own {
		if own {
			all = append(all, dir)
		}
	}
	slices.Sort(all)
	return all
}

// shadows looks for folders of the user that have what a folder of CUDA has, in case that CUDA's
// headers name it in a way that is not understood: they come first.
func (i *includes) shadows() {
	for _, own := range i.ownFolders() {
		entries, err := os.ReadDir(own)
		i.unsure = i.unsure || err != nil && !errors.Is(err, fs.ErrNotExist)
		for _, dir := range i.o.IncludePaths {
			for _, e := range entries {
				i.unsure = i.unsure || !i.own[dir] && exists(within(dir, e.Name()))
			}
		}
	}
}

// hostCode are the messages of NVRTC for what only nvcc compiles: host functions, launches by <<<>>>, calls of the runtime.
var hostCode = regexp.MustCompile(`not allowed in JIT mode|kernel launch could not be processed|'__cudaCDP2LaunchDevice|(identifier|function) "cuda[A-Z]\w*.*" (is undefined|was referenced but not defined)`)

const deviceOnly = "NVRTC compiles device code only: mark what kernels use __device__; move main, host functions, what these include, and <<<>>> " +
	"into another file, or put them between #ifndef __CUDACC_RTC__ and #endif"

// hint says where headers that the compiler did not find were looked for, which one it cannot read, and what to do
// with host code.
func (i *includes) hint(log string) string {
	for _, name := range i.missing {
		if !strings.Contains(log, `"`+name+`"`) {
			continue
		}
		text := fmt.Sprintf("%s: %s", name, i.cuda.looked())
		if strings.ContainsAny(name, "./") {
			return text
		}
		if std := "cuda/std/" + name; i.cuda.find(std) != nil { // a header of C++
			return fmt.Sprintf("%s: include %s in its place", name, std)
		}
		return text + ". " + deviceOnly
	}
	if hostCode.MatchString(log) {
		return deviceOnly
	}
	for _, file := range slices.Sorted(maps.Keys(i.disk)) {
		if i.disk[file].mark && strings.Contains(log, path.Base(file)+"(1)") {
			return fmt.Sprintf("%s begins with a byte order mark, which NVRTC does not read: store it as UTF-8 without one", file)
		}
	}
	return ""
}

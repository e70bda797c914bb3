//go:build unix

package compile

import (
	"crypto/sha256"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/internal/trust"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var someProduct = &product{Code: []byte("code"), Names: map[string]string{"k<int>": "_Z1kIiEvv"}, Log: "warned"}

func cacheIn(t *testing.T, dir string, limit int64) *cache {
	t.Helper()
	c, err := openCache(&Options{CacheFolder: dir, CacheBytes: limit})
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "cache")
	c := cacheIn(t, dir, 0)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	assert.Nil(t, c.get("a"))
	c.put("a", someProduct)
	assert.Equal(t, someProduct, c.get("a"))
	assert.Nil(t, c.get("b"))
	info, err = os.Stat(filepath.Join(dir, "a.image"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing else is left")
	var none *cache
	none.put("a", someProduct)
	assert.Nil(t, none.get("a"))
	none.close()
}

// TestCacheUnlimited: the largest limit keeps all images.
func TestCacheUnlimited(t *testing.T) {
	c := cacheIn(t, filepath.Join(t.TempDir(), "cache"), math.MaxInt64)
	c.put("a", someProduct)
	assert.Equal(t, someProduct, c.get("a"))
}

func TestCacheBroken(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	c := cacheIn(t, dir, 0)
	file := filepath.Join(dir, "a.image")
	whole := encode("a", someProduct)
	for name, test := range map[string]struct {
		data []byte
		mode fs.FileMode
	}{
		"empty":               {nil, 0o600},
		"cut":                 {whole[:len(whole)-1], 0o600},
		"longer":              {append(append([]byte{}, whole...), 0), 0o600},
		"another key's":       {encode("b", someProduct), 0o600},
		"one bit":             {append(append([]byte{}, whole[:60]...), append([]byte{whole[60] ^ 1}, whole[61:]...)...), 0o600},
		"others can write it": {whole, 0o666},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, test.data, 0o600))
			require.NoError(t, os.Chmod(file, test.mode))
			assert.Nil(t, c.get("a"))
			c.put("a", someProduct)
			assert.Equal(t, someProduct, c.get("a"), "it is replaced")
		})
	}
	t.Run("a folder", func(t *testing.T) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "d.image"), 0o700))
		assert.Nil(t, c.get("d"))
		c.put("d", someProduct) // in vain
		left, err := filepath.Glob(filepath.Join(dir, temporary+"*"))
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	t.Run("a link out of it", func(t *testing.T) {
		outside := filepath.Join(t.TempDir(), "a")
		require.NoError(t, os.WriteFile(outside, encode("l", someProduct), 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "l.image")))
		assert.Nil(t, c.get("l"))
	})
}

func TestCacheRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o702} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		_, err := openCache(&Options{CacheFolder: dir})
		assert.ErrorIs(t, err, fs.ErrPermission, mode)
		assert.ErrorContains(t, err, "chmod go-w")
		assert.ErrorContains(t, err, "the cache folder "+dir)
	}
	around := t.TempDir()
	require.NoError(t, os.Chmod(around, 0o777))
	_, err := openCache(&Options{CacheFolder: filepath.Join(around, "cache")})
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.ErrorContains(t, err, around+" belongs to another user, or others can replace what is in it")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = openCache(&Options{CacheFolder: file})
	assert.Error(t, err, "a file")

	c, err := openCache(&Options{CacheFolder: file, NoCache: true})
	assert.NoError(t, err, "only headers want it")
	assert.Nil(t, c)
}

// TestCacheDefault: a default folder that cannot be used, or that is not the user's alone, is not used.
func TestCacheDefault(t *testing.T) {
	root := os.Geteuid() == 0
	mkdir := func(t *testing.T, dir string, mode fs.FileMode, owner int) {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chmod(dir, mode))
		if owner != 0 {
			require.NoError(t, os.Chown(dir, owner, owner))
		}
	}
	for name, test := range map[string]struct {
		set   func(t *testing.T, base string) // base is the user's cache folder, and is not there
		root  bool                            // needs the rights to give a folder away
		used  bool
		makes bool // in base
	}{
		"nothing there":                {func(*testing.T, string) {}, false, true, true},
		"a folder":                     {func(t *testing.T, base string) { mkdir(t, base, 0o755, 0) }, false, true, true},
		"like /tmp":                    {func(t *testing.T, base string) { mkdir(t, base, 0o777|fs.ModeSticky, 0) }, false, true, true},
		"others can write":             {func(t *testing.T, base string) { mkdir(t, base, 0o777, 0) }, false, false, false},
		"a file":                       {func(t *testing.T, base string) { require.NoError(t, os.WriteFile(base, nil, 0o600)) }, false, false, false},
		"another user's home":          {func(t *testing.T, base string) { mkdir(t, base, 0o755, 12345) }, true, false, false},
		"another user's, like /tmp":    {func(t *testing.T, base string) { mkdir(t, base, 0o777|fs.ModeSticky, 12345) }, true, false, false},
		"another user's cudabind":      {func(t *testing.T, base string) { mkdir(t, base, 0o755, 0); mkdir(t, base+"/cudabind", 0o755, 12345) }, true, false, true},
		"another user's, of old":       {func(t *testing.T, base string) { makeOld(t, base, 0o700, 12345) }, true, false, true},
		"one that others can write to": {func(t *testing.T, base string) { makeOld(t, base, 0o777, 0) }, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.root && !root {
				t.Skip("needs root, which can give a folder away")
			}
			base := filepath.Join(t.TempDir(), "base")
			test.set(t, base)
			t.Setenv("XDG_CACHE_HOME", base)
			c, err := openCache(&Options{})
			require.NoError(t, err)
			assert.Equal(t, test.used, c != nil)
			c.close()
			assert.Equal(t, test.makes, exists(filepath.Join(base, "cudabind")), "what is made there")
		})
	}
	for name, env := range map[string][2]string{"no home": {"", ""}, "where nothing can be made": {"/proc/self", "/proc/self"}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", env[0])
			t.Setenv("HOME", env[1])
			c, err := openCache(&Options{})
			assert.NoError(t, err)
			assert.Nil(t, c)
		})
	}
}

// makeOld makes the default folder as it may be from before.
func makeOld(t *testing.T, base string, mode fs.FileMode, owner int) {
	dir := filepath.Join(base, "cudabind", "compile")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Chmod(dir, mode))
	if owner != 0 {
		require.NoError(t, os.Chown(dir, owner, owner))
	}
}

// TestCacheSecure: the environment chooses no folder for a program with more rights than its user.
func TestCacheSecure(t *testing.T) {
	secure = func() bool { return true }
	defer func() { secure = trust.Secure }()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	assert.Empty(t, (&Options{}).cacheFolder())
	assert.Equal(t, "/chosen", (&Options{CacheFolder: "/chosen"}).cacheFolder())
	dir, err := temporaryFolder()
	require.NoError(t, err)
	defer os.Remove(dir)
	assert.Equal(t, "/tmp", filepath.Dir(dir))
}

// TestTemporaryFolder: others cannot replace it.
func TestTemporaryFolder(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	dir, err := temporaryFolder()
	require.NoError(t, err)
	assert.Equal(t, parent, filepath.Dir(dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	for _, mode := range []fs.FileMode{0o777, 0o770} {
		require.NoError(t, os.Chmod(parent, mode))
		_, err = temporaryFolder()
		assert.ErrorIs(t, err, fs.ErrPermission, mode)
		assert.ErrorContains(t, err, "Options.CacheFolder")
	}
	require.NoError(t, os.Chmod(parent, 0o770|fs.ModeSticky))
	_, err = temporaryFolder()
	assert.NoError(t, err, "others can replace nothing of another user's")
}

// TestCacheFull: what cannot be stored is no error, and what is no entry is not read.
func TestCacheFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	c := cacheIn(t, dir, 1<<20)
	entry := filepath.Join(dir, "a"+entrySuffix)
	require.NoError(t, syscall.Mkfifo(entry, 0o600))
	assert.Nil(t, c.get("a"), "a pipe")
	c.put("a", someProduct)
	assert.Equal(t, someProduct, c.get("a"))
	require.NoError(t, os.Truncate(entry, 1<<40))
	assert.Nil(t, c.get("a"), "larger than all")
	require.NoError(t, os.Truncate(entry, 1<<19))
	assert.Nil(t, c.get("a"))
	c.root.Close()
	c.put("b", someProduct)
	assert.Nil(t, c.get("b"))
}

func TestCacheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which can give a folder away")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.Chown(dir, 12345, 12345))
	_, err := openCache(&Options{CacheFolder: dir})
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.ErrorContains(t, err, "another user")
}

// name is the name of an entry, which is a hash.
func name(text string) string {
	k := key{sha256.New()}
	k.add(text)
	return k.sum()
}

func TestCacheLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	size := int64(len(encode(name("0"), someProduct)))
	c := cacheIn(t, dir, 3*size)
	for n, key := range []string{"0", "1", "2"} {
		c.put(name(key), someProduct)
		old := time.Now().Add(time.Duration(n-10) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name(key)+entrySuffix), old, old))
	}
	assert.NotNil(t, c.get(name("0")), "the oldest is used")
	c.put(name("3"), someProduct)
	assert.NotNil(t, c.get(name("0")))
	assert.Nil(t, c.get(name("1")), "now the oldest")
	assert.NotNil(t, c.get(name("2")))
	assert.NotNil(t, c.get(name("3")))
	c.put(name("4"), &product{Code: make([]byte, 4*size)})
	assert.Nil(t, c.get(name("4")), "larger than the cache")
	assert.NotNil(t, c.get(name("3")))
}

// TestCacheForeign: only files that the cache has made are removed, by name, content and owner.
func TestCacheForeign(t *testing.T) {
	whole, old := encode(name("a"), someProduct), time.Now().Add(-2*time.Hour)
	half := temporary + strings.Repeat("A", 26)
	for title, test := range map[string]struct {
		name    string
		data    []byte
		owner   int
		removed bool
	}{
		"an image":                     {name("a") + entrySuffix, whole, 0, true},
		"one of an earlier version":    {name("a") + entrySuffix, []byte("cudabind image 1 and more"), 0, true},
		"left by a process":            {half, whole[:40], 0, true},
		"left before a byte":           {half, nil, 0, true},
		"left after a few":             {half, whole[:3], 0, true},
		"a disk":                       {"disk.image", whole, 0, false},
		"a longer name":                {name("a") + "0" + entrySuffix, whole, 0, false},
		"capitals":                     {strings.ToUpper(name("a")) + entrySuffix, whole, 0, false},
		"other content":                {name("a") + entrySuffix, []byte("a picture of something"), 0, false},
		"no content":                   {name("a") + entrySuffix, nil, 0, false},
		"another's image":              {name("a") + entrySuffix, whole, 12345, false},
		"another's, left":              {half, whole, 12345, false},
		"a temporary file":             {temporary + "mine", whole, 0, false},
		"a temporary name's content":   {half, []byte("mine"), 0, false},
		"a temporary name, and longer": {half + "A", whole, 0, false},
	} {
		t.Run(title, func(t *testing.T) {
			if test.owner != 0 && os.Geteuid() != 0 {
				t.Skip("needs root, which can give a file away")
			}
			dir := filepath.Join(t.TempDir(), "cache")
			c := cacheIn(t, dir, 1)
			file := filepath.Join(dir, test.name)
			require.NoError(t, os.WriteFile(file, test.data, 0o600))
			require.NoError(t, os.Chtimes(file, old, old))
			if test.owner != 0 {
				require.NoError(t, os.Chown(file, test.owner, test.owner))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name("z")+entrySuffix), encode(name("z"), someProduct), 0o600)) // more than fits
			c.trim()
			if test.removed {
				assert.NoFileExists(t, file)
			} else {
				assert.FileExists(t, file)
			}
		})
	}
	dir := filepath.Join(t.TempDir(), "cache")
	c := cacheIn(t, dir, 0)
	require.NoError(t, os.WriteFile(filepath.Join(dir, half), whole[:40], 0o600))
	c.trim()
	assert.FileExists(t, filepath.Join(dir, half), "another process may be writing it")
}

func TestCacheAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var all sync.WaitGroup
	for range 8 {
		c := cacheIn(t, dir, 2000)
		all.Go(func() {
			for n := range 200 {
				key := name(string(rune('a' + n%20)))
				if p := c.get(key); p != nil {
					assert.Equal(t, someProduct, p)
				}
				c.put(key, someProduct)
			}
		})
	}
	all.Wait()
	names, err := filepath.Glob(filepath.Join(dir, temporary+"*"))
	require.NoError(t, err)
	assert.Empty(t, names)
}

// TestKey: texts that follow each other are not taken for others.
func TestKey(t *testing.T) {
	seen := map[string][]string{}
	for _, texts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}, {""}, {strings.Repeat("a", 8)}} {
		k := key{sha256.New()}
		k.add(texts...)
		sum := k.sum()
		assert.Nil(t, seen[sum])
		seen[sum] = texts
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("a", encode("a", someProduct))
	f.Add("", encode("", &product{}))
	f.Add("a", []byte(entryMagic))
	f.Add("a", []byte("\x00\x00\x00\x00"))                                       // without a log
	f.Add("a", []byte("\x02\x00\x00\x00"+"\x00\x00\x00\x00"+"\x00\x00\x00\x00")) // a name alone
	f.Add("a", []byte("\x01\x00\x00\x00"+"\xff\xff\xff\xff"))                    // a log past the end
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		if p := decode(key, data); p != nil {
			again := decode(key, encode(key, p))
			assert.Equal(t, p, again)
		}
		// Whatever follows the hash must not be read out of bounds.
		k := sha256.Sum256(append([]byte(key), data...))
		decode(key, append(append([]byte(entryMagic), k[:]...), data...))
	})
}
